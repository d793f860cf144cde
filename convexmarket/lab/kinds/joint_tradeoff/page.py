"""What the page of the joint problem over gamma shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.joint_tradeoff.problem import JointTradeoffProblem
from convexmarket.lab.kinds.tradeoff.page import GREEK, KEY, at_edges, curve_figures
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.report.claims import JOINT_WARNING
from convexmarket.lab.report.marks import Curve, Scatter
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import own_data_words, select, short
from convexmarket.lab.report.words import equals, format_percent
from convexmarket.lab.result import Result

__all__ = ["joint_tradeoff_report", "shown_point", "shown_sellers"]

JOINT, TWO_STEP, NAIVE = "joint", "two-step", "naive"
HEADERS = GREEK | {
    "payments": "expected payments",
    "error_mean": "test error",
    "error_std": "its std",
    "overall_mean": "overall error",
    "overall_std": "std",
    "message": "why",
    "residual": "first-order residual",
    "starts_spread": "spread of the starts",
    "convexity_ratio": "convexity ratio",
    "binding": "ends of the range of η that decided",
    "expected_payment": "expected payment ψ(c)·ε",
    "validation_overall": "overall error on the validation rows",
}
DIFFERENCES = {
    "other": "compared with",
    "error": "difference in test error",
    "payments": "in expected payments",
    "overall": "in overall error",
    "low": "95% from",
    "high": "to",
    "verdict": "joint is",
}


def joint_tradeoff_report(result: Result[JointTradeoffProblem]) -> Report:
    """Describe a run of the joint problem over gamma."""
    candidates, known = result.tables["candidates"], answered(result)
    planned = select(candidates, model=JOINT)
    solved, joint = planned[planned.message == ""], select(known, model=JOINT)
    others, naive = known[known.model != NAIVE], select(known, model=NAIVE)
    ratios = joint.convexity_ratio.agg(["min", "max"]) if len(joint) else ()
    private = select(known, model=TWO_STEP).guarantee_max
    point = shown_point(result)
    shown = {} if point is None else _shown(result, point)
    drawn = (
        curve_figures(
            known,
            result.numbers["baseline_error"],
            "Read the error from the dashed line up: that is what a model costs that pays nobody "
            "and protects nobody.",
            "expected payments",
        )
        if len(known)
        else []
    )
    return page(
        "convexmarket.lab.kinds.joint_tradeoff",
        result,
        facts=_facts(result, point),
        tables=_tables(result),
        figures=[*drawn, *_compared(result), *shown.pop("figures", [])],
        warning=JOINT_WARNING,
        of_sellers=isinstance(result.problem.data, OwnTable),
        own=own_data_words(result.problem, result.provenance),
        compared={name: _counts(result, name) for name in (TWO_STEP, NAIVE)},
        won=_won(result),
        failed=int((candidates.message != "").sum()),
        tried=len(candidates),
        ends=[
            [rows.iloc[place].to_dict() for place in (0, -1)]
            for _, rows in joint.sort_values("gamma").groupby("scenario", sort=False)
        ],
        drawn=[figure.name for figure in drawn],
        naive=len(naive),
        at_end=int(_at_ends(naive.eta, result.problem.naive.eta_range).sum()),
        naive_global=len(naive) and bool((naive.status == "global").all()),
        others=len(others),
        bound=int((others.binding.fillna("") != "").sum()),
        guarantees=[float(private.min()), float(private.max())] if len(private) else (),
        planned=len(planned),
        solved=len(solved),
        statuses=[*solved.status.value_counts().items()],
        residual=float(solved.residual.max()) if len(solved) else None,
        spread=float(solved.starts_spread.max()) if len(solved) else None,
        ratios=[*dict.fromkeys(map(short, ratios))],
        convex=len(joint) and float(joint.convexity_ratio.min()) < 1,
        joint=len(joint),
        edges=at_edges(result.problem, joint),
        short=short,
        **{"where": "", "bought": (), "everybody": None} | shown,
    )


def answered(result: Result[Any], **values: str | float) -> pd.DataFrame:
    """Return the rows of the curve that have an answer."""
    return select(result.tables["curve"].dropna(subset=["overall_mean"]), **values)


def shown_point(result: Result[Any]) -> tuple[str, float] | None:
    """Return the scenario and the gamma whose purchases are shown: the first, and the middle."""
    sellers = result.tables["sellers"]
    if sellers.empty:
        return None
    for scenario, rows in sellers.groupby("scenario", sort=False):
        gammas = [set(select(rows, model=model).gamma) for model in (JOINT, TWO_STEP)]
        both = sorted(map(float, set.intersection(*gammas)))
        if both:
            return str(scenario), both[len(both) // 2]
    return None


def shown_sellers(result: Result[Any], point: tuple[str, float]) -> pd.DataFrame:
    """Return the sellers of the joint and the two-step purchase; losses are the joint model's."""
    at = select(result.tables["sellers"], scenario=point[0], gamma=point[1])
    losses = select(at, model=JOINT).set_index("id").loss
    pair = at[at.model.isin([JOINT, TWO_STEP])]
    return pair.assign(loss=pair.id.map(losses))


def _facts(result: Result[Any], point: tuple[str, float] | None) -> list[tuple[str, str]]:
    reproduced = sum(claim.verdict == "reproduced" for claim in result.claims)
    facts = [("claims of the papers that came out", f"{reproduced} of {len(result.claims)}")]
    if won := _won(result):
        told = "joint overall error below the private two-step one"
        facts.append((told, f"{won['lower']} of {won['of']}"))
    if point is not None:
        for model in (JOINT, TWO_STEP):
            row = answered(result, scenario=point[0], gamma=point[1], model=model).iloc[0]
            where = f"{model}, {equals('γ', point[1])}"
            facts.append((f"test error, {where}", format_percent(row.error_mean)))
    baseline = format_percent(result.numbers["baseline_error"])
    return [
        *facts,
        ("test error without privacy", baseline),
        ("differential privacy of the joint model", "none"),
    ]


def _counts(result: Result[Any], other: str) -> list[tuple[str, int, int, int]]:
    """Count at how many gammas the joint model's overall error is below another's, and above."""
    against = select(result.tables["comparisons"], other=other)
    found = []
    for scenario, rows in against.groupby("scenario", sort=False):
        lower, higher = (int((rows.verdict == word).sum()) for word in ("lower", "higher"))
        found.append((str(scenario), lower, higher, len(rows)))
    return found


def _won(result: Result[Any]) -> dict[str, int] | None:
    """Return the counts against the two-step mechanism, over all scenarios."""
    counts = _counts(result, TWO_STEP)
    if not counts:
        return None
    lower, higher, of = (sum(numbers) for numbers in list(zip(*counts, strict=True))[1:])
    return {"lower": lower, "higher": higher, "of": of}


def _at_ends(etas: pd.Series, ends: tuple[float, float]) -> np.ndarray:
    return np.isclose(etas.to_numpy()[:, None], ends, rtol=1e-9, atol=0.0).any(axis=1)


def _shown(result: Result[Any], point: tuple[str, float]) -> dict[str, Any]:
    """Return what the page tells of one purchase of each model, and its figure."""
    sellers = shown_sellers(result, point)
    everybody = sellers[sellers.model == JOINT]
    where = f"{equals('γ', point[1])}, {point[0]} sensitivities"
    across = {"loss": "loss of the row", "sensitivity": "sensitivity c (money per unit of ε)"}
    places = [
        sellers.assign(panel=label, across=sellers[name], multiples=len(everybody) * sellers.weight)
        for name, label in across.items()
    ]
    return {
        "where": where,
        "bought": [
            {
                "model": model,
                "bought": int((rows.weight > 0).sum()),
                "of": len(rows),
                "largest": float(rows.epsilon.max()),
                "loss": float(np.dot(rows.weight, rows.loss)),
                "positive": float(rows.weight[rows.label == 1].sum()),
            }
            for model, rows in sellers.groupby("model", sort=False)
        ],
        "everybody": {
            "loss": float(everybody.loss.mean()),
            "positive": float((everybody.label == 1).mean()),
        },
        "figures": [
            Figure(
                "purchases",
                "Weight of each seller against the loss of its row under the joint problem's own "
                f"model, and against its sensitivity ({where}). Where the points of the joint "
                "problem fall to the right in the left panel, it buys rows that its model fits "
                "already.",
                Scatter(
                    pd.concat(places),
                    "across",
                    "multiples",
                    y_label="weight, in multiples of the average",
                    hue="model",
                    panels="panel",
                    free="x",
                ),
                "Two scatter plots of weights. The numbers are in the table sellers.",
            )
        ],
    }


# ----------------------------------------------------------------------------------- figures


def _compared(result: Result[Any]) -> list[Figure]:
    against = select(result.tables["comparisons"], other=TWO_STEP)
    if against.empty:
        return []
    return [
        Figure(
            "joint_minus_two_step",
            "Overall error of the joint problem minus that of the two-step mechanism, with 95% "
            "intervals, paired over noise draws. Below the line looking at the data pays, above "
            "it costs; an interval across the line tells nothing.",
            Curve(
                against.replace([-np.inf, np.inf], np.nan),
                "gamma",
                "overall",
                "γ (log scale)",
                "difference in overall error",
                panels="scenario",
                log="x",
                zero=False,
                levels={"no difference": 0.0},
                low="low",
                high="high",
            ),
            "Points with intervals over gamma. The numbers are in the table comparisons.",
        )
    ]


# ------------------------------------------------------------------------------------ tables


def _tables(result: Result[Any]) -> list[Table]:
    tables, curve = result.tables, result.tables["curve"]
    failed = tables["candidates"][tables["candidates"].message != ""]
    why = [*KEY, "mu", "sigma", "regularization", "status", "message"]
    shown = [
        Table(
            "tradeoff",
            "Every model at every γ; std, the standard deviation over noise draws, is that of "
            "both errors. The total guarantee is that of the two-step model; the others have "
            "none.",
            _columns(
                curve,
                *("n_bought", "epsilon_max", "guarantee_max", "payments"),
                *("error_mean", "overall_mean", "overall_std"),
            ),
            HEADERS,
            dict.fromkeys(("error_mean", "overall_mean", "overall_std"), ".4f"),
            rows_shown=60,
        ),
        Table(
            "comparisons",
            "The joint problem minus the other model, at the same γ; the interval is that of "
            "the overall error.",
            tables["comparisons"],
            HEADERS | DIFFERENCES,
            dict.fromkeys(("error", "overall", "low", "high"), "+.4f"),
            rows_shown=60,
        ),
        Table(
            "sellers",
            "Every seller in every purchase; the loss is that under the model which was trained "
            "on the purchase without noise.",
            tables["sellers"],
            HEADERS,
            rows_shown=10,
        ),
        Table(
            "certificates",
            "What is known of the optimality of every answer.",
            _columns(
                curve,
                *("status", "objective", "lower_bound", "residual", "starts_spread"),
                *("convexity_ratio", "binding"),
            ),
            HEADERS,
            {"objective": ".6g", "lower_bound": ".6g", "residual": ".1e", "starts_spread": ".1e"},
            rows_shown=60,
        ),
        Table(
            "hyperparameters",
            "What was chosen.",
            _columns(curve, "mu", "sigma", "regularization", "eta", "validation_error"),
            HEADERS,
            {"validation_error": ".4f"},
            rows_shown=60,
        ),
        Table(
            "candidates",
            "Everything that was tried.",
            tables["candidates"],
            HEADERS,
            {"validation_error": ".4f", "validation_overall": ".4f"},
            rows_shown=5,
        ),
        Table(
            "draws",
            "Test error of every noise draw.",
            tables["draws"],
            HEADERS,
            {"test_error": ".4f"},
            rows_shown=5,
        ),
    ]
    if len(failed):
        shown.append(Table("failures", "Candidates without an answer.", failed[why], HEADERS))
    return shown


def _columns(curve: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return columns; those that no row has are left out, whole numbers stay whole."""
    found = curve[[*KEY, *(name for name in names if name in curve)]]
    return found.astype({"n_bought": "Int64"}) if "n_bought" in found else found
