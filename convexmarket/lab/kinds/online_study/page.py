"""What the page of a study of online policies shows; its words are in ``page.md.j2``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.online_study.problem import KNOWING, OnlineStudyProblem
from convexmarket.lab.kinds.online_study.run import MEASURES
from convexmarket.lab.report.marks import Curve
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.words import equals, fine_percent, format_number
from convexmarket.lab.result import Result

__all__ = ["POLICIES", "online_study_report"]

#: What each policy is called.
POLICIES = {
    "expectation": "general rule",
    "algorithm-3": "Algorithm 3",
    "replanned": "rest planned anew",
    "learnt": "prior learnt",
    "guess": "guess kept",
}
#: What the columns are called on the page.
WORDS = {
    "size": "m, expected",
    "fraction": "ξ",
    "arrived": "came",
    "empty": "draws without a purchase",
    "loss_low": "loss, from",
    "loss_high": "to (95%)",
    "paid_loss": "loss with the payments made",
    "offline": "loss in hindsight",
    "ratio_low": "ratio, from",
    "ratio_high": "to (95%)",
    "ratio_median": "median ratio, all draws",
    "ratio_limit": "limit for many sellers",
    "regret_low": "regret, from",
    "regret_high": "to (95%)",
    "eta": "η",
    "n_bought": "sellers bought from",
    "slope": "exponent",
    "low": "from",
    "high": "to (95%)",
    "last": "last two sizes",
    "n_points": "sizes",
}
BARS = "Error bars: 95% interval of the mean over draws"
GONE = f"{BARS}; one that reaches zero leaves the figure"
HOLLOW = "hollow: some draws bought nothing"
_MOST_CURVES, _MOST_PANELS = 4, 3


def online_study_report(result: Result[OnlineStudyProblem]) -> Report:
    """Describe a study of online policies."""
    study = result.problem.study
    several = len(study.fractions) > 1
    points = _named(result.tables["points"]).assign(
        **{
            f"excess{end}": result.tables["points"][f"ratio{end}"] - 1
            for end in ("", "_low", "_high")
        }
    )
    main = points[points.fraction == max(study.fractions)]
    known = main[np.isfinite(main.ratio)]
    last = known[known["size"] == known["size"].max()]
    first = main[(main.policy == POLICIES[study.policies[0]]) & np.isfinite(main.loss)]
    learners = [POLICIES[name] for name in study.policies if name in KNOWING]
    regrets = {name: _ends(main, name, "regret") for name in learners}
    largest = points[points["size"] == study.sizes[-1]].sort_values("fraction", ascending=False)
    by_fraction = [
        (name, rows.to_dict("records"))
        for name, rows in largest[np.isfinite(largest.ratio)].groupby("policy", sort=False)
    ]
    return page(
        "convexmarket.lab.kinds.online_study",
        result,
        facts=_facts(result, last),
        tables=_tables(result),
        figures=_figures(result, points, main),
        names=POLICIES,
        main=max(study.fractions),
        best=last.loc[last.ratio.idxmin()].to_dict() if len(last) else None,
        by_fraction=by_fraction if several else [],
        excesses=[(name, _ends(main, name, "ratio")) for name in map(POLICIES.get, study.policies)],
        regrets=[(name, rows) for name, rows in regrets.items() if rows],
        without_regret=[name for name, rows in regrets.items() if not rows],
        learners=learners,
        last=first.iloc[-1].to_dict() if len(first) else None,
        fit=_fit_above_the_floor(result, first),
        empty=_empty(result),
        limit_known=bool(result.tables["points"].ratio_limit.notna().any()),
    )


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(policy=[POLICIES[name] for name in frame.policy])


def _ends(points: pd.DataFrame, policy: str | None, column: str) -> list[dict[Any, Any]]:
    """Return the smallest and the largest size at which a policy bought something."""
    rows = points[(points.policy == policy) & np.isfinite(points[column])].to_dict("records")
    return [rows[0], *rows[1:][-1:]] if rows else []


def _fit_above_the_floor(result: Result[OnlineStudyProblem], first: pd.DataFrame) -> Any:
    if first.empty:
        return None
    fits, last = _named(result.tables["fits"]), first.iloc[-1]
    own = fits[(fits.policy == last.policy) & (fits.fraction == last.fraction)]
    own = own[(own["of"] == "loss above the floor") & np.isfinite(own.low)]
    return own.iloc[0].to_dict() if len(own) else None


def _empty(result: Result[OnlineStudyProblem]) -> list[dict[str, Any]]:
    """Return where nothing was bought, which no mean can show."""
    draws = _named(result.tables["draws"])
    nothing = draws[np.isinf(draws.loss)]
    return [
        {
            "policy": name,
            "runs": len(rows),
            "of": int((draws.policy == name).sum()),
            "largest": int(rows["size"].max()),
        }
        for name, rows in nothing.groupby("policy", sort=False)
    ]


def _facts(result: Result[OnlineStudyProblem], last: pd.DataFrame) -> list[tuple[str, str]]:
    study = result.problem.study
    facts = [
        ("sellers expected", f"{study.sizes[0]:,} to {study.sizes[-1]:,}"),
        ("draws of each", f"{study.draws}"),
        ("runs without a purchase", f"{int(np.isinf(result.tables['draws'].loss).sum()):,}"),
    ]
    for name in map(POLICIES.get, study.policies[:2]):
        excess = last[last.policy == name].excess
        facts.append((f"above hindsight, {name}", fine_percent(*excess) if len(excess) else "–"))
    if result.claims:
        good = sum(claim.verdict == "reproduced" for claim in result.claims)
        facts.append(("claims reproduced", f"{good} of {len(result.claims)}"))
    return facts


# ----------------------------------------------------------------------------------- figures


def _few(values: Sequence[float]) -> list[float]:
    """Return some of the values, evenly spaced and with the last, as many as a figure shows."""
    step = max(1, -(-len(values) // _MOST_CURVES))
    return list(values)[::-1][::step][::-1]


def _figures(
    result: Result[OnlineStudyProblem], points: pd.DataFrame, main: pd.DataFrame
) -> list[Figure]:
    study = result.problem.study
    several, names = len(study.fractions) > 1, [POLICIES[name] for name in study.policies]
    drawn, hue = points, "policy"
    if several:
        some = points[(points.policy == names[0]) & points.fraction.isin(_few(study.fractions))]
        hue = "fraction ξ"
        drawn = some.assign(**{hue: [equals("ξ", x) for x in some.fraction]})[::-1]
    drawn = drawn[np.isfinite(drawn.loss)]
    whose = f" of “{names[0]}”, by the fraction ξ that comes" if several else ""
    over_m: dict[str, Any] = {
        "x": "size",
        "hue": hue,
        "x_label": "m, sellers expected (log scale)",
        "log": "xy",
    }
    least = result.numbers["floor"]
    floor = {f"no loss is below {format_number(least)}": least} if least else {}
    goes = "falls towards the dotted bound" if least else "falls along a straight line"
    figures = []
    if len(drawn):
        figures = [
            Figure(
                "loss",
                f"The loss{whose}, over the number m of sellers expected, both on log scales. What "
                f"to see: whether it {goes}, and how far above the optimum in hindsight (dashed). "
                f"{BARS}; {HOLLOW}.",
                Curve(
                    drawn, y="loss", low="loss_low", high="loss_high", hollow="empty",
                    thin={"optimum in hindsight": "offline"}, levels=floor,
                    y_label="Loss, A's Eq. (11), a number without unit (log scale)", **over_m,
                ),
                "Curves of the loss over m. The numbers are in the table losses.",
            ),
            Figure(
                "ratio",
                f"The competitive ratio{whose}, less 1, over m, both on log scales: the share by "
                "which the loss exceeds that of the optimum in hindsight. What to see: a straight "
                "line downwards is a power of m; a level line is a loss that does not go away. "
                f"{GONE}; {HOLLOW}.",
                Curve(
                    drawn, y="excess", low="excess_low", high="excess_high", hollow="empty",
                    y_label="Competitive ratio less 1, a share of the optimum (log scale)",
                    **over_m,
                ),
                "Curves of the competitive ratio less 1 over m. The numbers are in the table "
                "ratios.",
            ),
        ]  # fmt: skip
    some = points[points["size"].isin(_few(study.sizes)) & points.policy.isin(names[:_MOST_PANELS])]
    some = some[np.isfinite(some.ratio)]
    if several and len(some):
        figures.append(
            Figure(
                "fractions",
                "The competitive ratio over the fraction ξ of the expected sellers who come. What "
                "to see: how fast it rises as fewer come, and whether curves of many sellers lie "
                "on each other: then the price of a wrong number does not grow with m. Dashed: "
                f"where the ratio goes as m grows. {BARS}; {HOLLOW}.",
                Curve(
                    some.assign(sellers=[equals("m", int(m)) for m in some["size"]]),
                    x="fraction", y="ratio", low="ratio_low", high="ratio_high", hue="sellers",
                    panels="policy", hollow="empty", log="y", height=3.7,
                    thin={"limit for many sellers": "ratio_limit"}
                    if some.ratio_limit.notna().any() else {},
                    x_label="ξ, share of the expected sellers who come",
                    y_label="competitive ratio (log scale)",
                ),
                "Curves of the competitive ratio over ξ. The numbers are in the table ratios.",
            )
        )  # fmt: skip
    ignorant = main[np.isfinite(main.regret)]
    if len(ignorant):
        against = {POLICIES[name]: POLICIES[known] for name, known in KNOWING.items()}
        log = "xy" if ignorant.regret.min() > 0 else "x"
        labels = [f"{name}, against {against[name]}" for name in ignorant.policy]
        figures.append(
            Figure(
                "regret",
                "Regret over m: by which share the loss of a policy that does not know the prior "
                "exceeds that of the same policy when it does, on the same sellers. What to see: "
                "regret that falls is ignorance that goes away, level regret is a guess that is "
                f"never corrected. {GONE}; paired over draws.",
                Curve(
                    ignorant.assign(policies=labels), y="regret", low="regret_low",
                    high="regret_high", hollow="empty",
                    y_label="Regret, as a share of the loss with known prior",
                    **over_m | {"hue": "policies", "log": log},
                ),
                "Curves of the regret over m. The numbers are in the table ratios.",
            )
        )  # fmt: skip
    return figures


# ------------------------------------------------------------------------------------ tables


def _tables(result: Result[OnlineStudyProblem]) -> list[Table]:
    several = len(result.problem.study.fractions) > 1
    points, draws, fits = map(
        _named, (result.tables["points"], result.tables["draws"], result.tables["fits"])
    )
    place = ["policy", *(["fraction"] if several else []), "size"]
    place += ["arrived", "empty"] if several else ["empty"]

    def means(*names: str) -> pd.DataFrame:
        return points[[*place, *(name for name in names if points[name].notna().any())]]

    ratios = ["ratio", "ratio_low", "ratio_high", "ratio_median"]
    ratios += ["ratio_limit"] if several else []
    shown = fits[fits.n_points > 1]
    return [
        Table(
            "losses",
            "Mean losses over the draws in which something was bought; of the optimum in "
            "hindsight, over all draws.",
            means("loss", "loss_low", "loss_high", "paid_loss", "offline"),
            WORDS,
            rows_shown=60,
        ),
        Table(
            "ratios",
            "Mean ratios over the draws in which something was bought. The median counts draws "
            "without a purchase as infinite.",
            means(*ratios, "regret", "regret_low", "regret_high"),
            WORDS,
            dict.fromkeys(ratios[:4], ".5f"),
            rows_shown=60,
        ),
        Table(
            "exponents",
            "Fitted exponents of m.",
            shown if several else shown.drop(columns="fraction"),
            WORDS,
            dict.fromkeys(("slope", "low", "high", "last"), ".3f"),
            rows_shown=60,
        ),
        Table(
            "purchases",
            "Means over the draws in which something was bought; seconds over all.",
            means("eta", "n_bought", "largest_weight", "payments", "seconds"),
            WORDS,
            rows_shown=80,
        ),
        Table(
            "draws",
            "Every policy and draw.",
            draws.drop(columns=[name for name in MEASURES if draws[name].isna().all()]),
            WORDS,
            rows_shown=8,
            complete=result.tables["draws"],
        ),
    ]
