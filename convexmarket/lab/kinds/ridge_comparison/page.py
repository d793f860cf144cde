"""What the page of a comparison of private ridge regressions shows; its words: ``page.md.j2``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.ridge_comparison.problem import RidgeComparisonProblem, SweepTable
from convexmarket.lab.kinds.ridge_comparison.run import (
    CLOSE,
    CONFIRMING_DRAWS,
    METHODS,
    MUCH,
    ORDER,
    SAME,
)
from convexmarket.lab.report.marks import Curve
from convexmarket.lab.report.model import Figure, Report, Table
from convexmarket.lab.report.page import page
from convexmarket.lab.report.parts import select, short
from convexmarket.lab.report.words import equals
from convexmarket.lab.result import Result

__all__ = ["ridge_comparison_report"]

PARAMETERS = {
    "regularization": "λ",
    "eps_conservative": "ε of the conservatives",
    "eps_medium": "ε of the mediums",
    "f_conservative": "fraction of conservatives",
    "row_fraction": "fraction of the rows",
    "label_noise": "assumed noise of the labels",
}
LOSSES = {"unreg": "test loss", "reg": "regularised test loss"}
COLUMNS = METHODS | {"pdp_op_tight": "PDP-OP tight", "pdp_op_optimal": "PDP-OP optimal weights"}
STATISTICS = {"mean": "expected", "std": "standard deviation of the"}
#: What the other perturbations are compared with.
PERTURBED = ("pdp_op", "nonprivate")
TERMS = {
    "total": "sum",
    "bias": "regularisation",
    "privacy": "privacy noise",
    "labels": "label noise",
}
#: Parameters that span decades.
WIDE = ("regularization", "label_noise")
#: The largest distance, in standard errors, at which a simulation agrees with a closed form.
AGREES = 4.0


def ridge_comparison_report(result: Result[RidgeComparisonProblem]) -> Report:
    """Describe a comparison of private ridge regressions."""
    gains = {name: _gain(result, name) for name in dict.fromkeys(result.tables["gains"].method)}
    sweeps = [_sweep(result, number) for number in range(len(result.problem.sweeps))]
    tables, published = _tables(result), result.tables["published"]
    again = published.duplicated(["sweep", "value", "method", "loss", "statistic"])
    return page(
        "convexmarket.lab.kinds.ridge_comparison",
        result,
        facts=_facts(result),
        tables=tables,
        figures=_figures(result),
        appendix=[table.name for table in tables if table.name.startswith(("table_", "medians_"))],
        sweeps=sweeps,
        lead=next((sweep for sweep in sweeps if sweep["losses"]), None),
        order=[METHODS[name] for name in ORDER],
        much=MUCH,
        close=CLOSE,
        near=int(published.close.sum()) if len(published) else 0,
        twice=int(again.sum()),
        rounding=int((published.close & ~published.ratio.between(1 / CLOSE, CLOSE)).sum())
        if len(published)
        else 0,
        far=published[~published.close] if len(published) else published,
        outside=[
            row
            for row in _verdicts(published).to_dict("records")
            if row["percentile"] in (0.0, 1.0) and row["close"] < row["cells"]
        ],
        lowest=_lowest(result),
        ways=_ways(result),
        gains=gains,
        largest_z=float(result.tables["confirmation"].z.abs().max()),
        agrees=AGREES,
        simulated=CONFIRMING_DRAWS,
    )


def _facts(result: Result[RidgeComparisonProblem]) -> list[tuple[str, str]]:
    facts = []
    lambdas = select(result.tables["orderings"], parameter="regularization")
    if len(lambdas):
        facts.append(("orderings that hold over λ", f"{lambdas.ours.sum()} of {len(lambdas)}"))
    if len(result.tables["published"]):
        near = f"{result.tables['published'].close.sum()} of {len(result.tables['published'])}"
        facts.append((f"published cells within {CLOSE:g}×", near))
    if result.problem.learner.sensitivity == "paper":
        best = select(result.tables["gains"], method="pdp_op_tight").ratio.min()
        facts.append(("best loss ratio of the tight sensitivity", short(float(best))))
    return [*facts, ("draws of data and levels", str(result.problem.run.draws))]


def _sweep(result: Result[RidgeComparisonProblem], number: int) -> dict[str, Any]:
    """Return what is said of one sweep: what is fixed, orderings, published tables."""
    sweep = result.problem.sweeps[number]
    orderings = result.tables["orderings"][result.tables["orderings"].sweep == number]
    published = result.tables["published"][result.tables["published"].sweep == number]
    cells, draws = (
        of[of.sweep == number] for of in (result.tables["cells"], result.tables["draws"])
    )
    keys = ["value", "loss"]
    medians, spread = (cells.pivot_table(of, keys, "method") for of in ("mean", "std"))
    every = draws.pivot_table("std", [*keys, "draw"], "method")
    baselines = medians[["jorgensen_max", "jorgensen_mean"]].min(axis=1)
    files = published.groupby("file", sort=False) if len(published) else ()
    return {
        "number": number + 1,
        "parameter": PARAMETERS[sweep.parameter],
        "over": _the(sweep.parameter),
        "name": _stem(result, number),
        "fixed": _fixed(result, sweep),
        "losses": sweep.parameter != "label_noise",  # it changes the optimal weights alone
        "pairs": len(orderings),
        "holds": int(orderings.ours.sum()),
        "share": float(orderings.share_of_draws.mean()),
        "printed": orderings.published.dropna(),
        "smaller": int((orderings.in_order.astype(bool) & ~orderings.ours.astype(bool)).sum()),
        "steady": int(_steadier(spread).sum()),
        "steady_share": float(_steadier(every).mean()),
        "beaten": int((baselines < medians.pdp_op * (1 - SAME)).sum()),
        "files": [
            {"table": _name(str(file)), "n": len(rows), "close": int(rows.close.sum())}
            | {"low": rows.ratio.min(), "high": rows.ratio.max()}
            for file, rows in files
        ],
    }


def _steadier(spread: pd.DataFrame) -> pd.Series:
    """Say where the deviation of PDP-OP is below those of the baselines of Jorgensen et al."""
    baselines = spread[["jorgensen_max", "jorgensen_mean"]].min(axis=1)
    return spread.pdp_op < baselines * (1 - SAME)


def _best(result: Result[RidgeComparisonProblem]) -> pd.DataFrame:
    """Return which way to perturb has the smallest expected loss, value by value."""
    names = ["pdp_op", *result.problem.learner.perturbations]
    cells = result.tables["cells"]
    wide = cells[cells.method.isin(names)].pivot_table(
        "mean", ["sweep", "parameter", "value", "loss"], "method"
    )
    wide = wide[[name for name in names if name in wide]]  # of equal ones PDP-OP, the first
    return wide.assign(best=wide.idxmin(axis=1), ratio=wide.min(axis=1) / wide.pdp_op).reset_index()


def _the(parameter: str) -> str:
    return "λ" if parameter == "regularization" else f"the {PARAMETERS[parameter]}"


def _stem(result: Result[RidgeComparisonProblem], number: int) -> str:
    return f"{number + 1}_{result.problem.sweeps[number].parameter}"


def _fixed(result: Result[RidgeComparisonProblem], sweep: SweepTable) -> str:
    levels = sweep.privacy or result.problem.privacy
    fixed = {
        "regularization": ("λ", sweep.regularization or result.problem.learner.regularization),
        "eps_conservative": ("ε of conservatives from", levels.eps_conservative),
        "eps_medium": ("of mediums from", levels.eps_medium),
        "eps_liberal": ("of liberals", levels.eps_liberal),
        "f_conservative": ("fraction of conservatives", levels.f_conservative),
        "f_medium": ("fraction of mediums", levels.f_medium),
    }
    fixed.pop(sweep.parameter, None)
    return ", ".join(f"{word} {value:g}" for word, value in fixed.values())


def _ways(result: Result[RidgeComparisonProblem]) -> dict[str, Any] | None:
    """Return how often each way to perturb is the best, and by how much PDP-OP is bettered."""
    if not result.problem.learner.perturbations:
        return None
    best = _best(result)
    refused = result.tables["cells"].groupby("method")["mean"].agg(lambda of: int(of.isna().sum()))
    return {
        "n": len(best),
        "wins": {METHODS[str(name)]: int(n) for name, n in best.best.value_counts().items()},
        "ratio": float(best.ratio.min()),
        "refused": {METHODS[str(name)]: int(n) for name, n in refused.items() if n},
    }


def _lowest(result: Result[RidgeComparisonProblem]) -> dict[str, Any] | None:
    """Return the λ, of those compared, with the smallest expected test loss of PDP-OP."""
    cells = select(
        result.tables["cells"], parameter="regularization", method="pdp_op", loss="unreg"
    )
    if cells.empty:
        return None
    value = float(cells.value.iloc[int(cells["mean"].to_numpy().argmin())])
    return {"value": value, "edge": value in (cells.value.min(), cells.value.max())}


def _gain(result: Result[RidgeComparisonProblem], method: str) -> dict[str, Any]:
    """Return how the losses of a choice of ours compare with those of the paper's."""
    gains = select(result.tables["gains"], method=method)
    rows = gains.sort_values("ratio").to_dict("records")
    below, above = int((gains.ratio < 1 - SAME).sum()), int((gains.ratio > 1 + SAME).sum())
    ends = [
        {"ratio": row["ratio"], "loss": LOSSES[row["loss"]]}
        | {"at": equals(PARAMETERS[row["parameter"]], row["value"])}
        for row in (rows[0], rows[-1])
    ]
    return {"n": len(gains), "below": below, "above": above, "low": ends[0], "high": ends[1]}


# --------------------------------------------------------------------------------------- figures


def _figures(result: Result[RidgeComparisonProblem]) -> list[Figure]:
    found = []
    for number, sweep in enumerate(result.problem.sweeps):
        cells = result.tables["cells"][
            (result.tables["cells"].sweep == number) & result.tables["cells"].method.isin(ORDER)
        ]
        published = result.tables["published"][result.tables["published"].sweep == number]
        if sweep.parameter != "label_noise":
            name = _stem(result, number)
            if result.problem.learner.perturbations:
                found.append(_perturbed(f"perturbations_{name}", result, number))
                continue
            found.append(_losses(f"losses_{name}", cells, published, "mean"))
            found.append(_ratios(f"ratios_{name}", cells))
            if "std" in set(published.statistic):
                found.append(_losses(f"spread_{name}", cells, published, "std"))
        for method in dict.fromkeys(result.tables["gains"].method):
            gains = select(result.tables["gains"], method=method, sweep=number)
            first = number == 0 or sweep.parameter == "label_noise"
            if first and ((gains.ratio - 1).abs() > SAME).any():
                found.append(_gain_figure(gains, method, number))
    return [*found, _bound(result)]


def _over(cells: pd.DataFrame) -> dict[str, Any]:
    """Return the horizontal axis, and a panel for each loss."""
    parameter = str(cells.parameter.iloc[0])
    wide = parameter in WIDE
    label = PARAMETERS[parameter] + " (log scale)" * wide
    return {"x": "value", "x_label": label, "log": "x" * wide + "y", "panels": "panel"}


def _losses(name: str, cells: pd.DataFrame, published: pd.DataFrame, statistic: str) -> Figure:
    what = "Expected losses" if statistic == "mean" else "Standard deviation of the losses"
    printed = published[published.statistic == statistic]
    # A cell that two tables print alike is drawn once.
    printed = printed.drop_duplicates(["value", "method", "loss"])
    keys = ["value", "method", "loss"]
    rows = cells.merge(printed[[*keys, "published"]], on=keys, how="left")
    return Figure(
        name,
        f"{what} over {_the(str(cells.parameter.iloc[0]))}; the lowest line is the best "
        "method. Median over the draws, bars from 5% to 95%"
        f"{'; dashed: as published' if len(printed) else ''}.",
        Curve(
            rows.assign(method=rows.method.map(METHODS), panel=rows.loss.map(LOSSES)),
            y=statistic, low=f"{statistic}_low", high=f"{statistic}_high", hue="method",
            names=[METHODS[name] for name in ORDER], height=3.8,
            thin={"published": "published"} if len(printed) else {},
            y_label=f"{'loss' if statistic == 'mean' else 'standard deviation'} (log scale)",
            **_over(cells),
        ),
        f"{what} of four methods, on a logarithmic scale.",
    )  # fmt: skip


def _perturbed(name: str, result: Result[RidgeComparisonProblem], number: int) -> Figure:
    shown = [*PERTURBED, *result.problem.learner.perturbations]
    cells = result.tables["cells"]
    rows = cells[(cells.sweep == number) & cells.method.isin(shown)].dropna(subset="mean")
    return Figure(
        name,
        f"Expected losses over {_the(str(rows.parameter.iloc[0]))} where the output, the objective "
        "or the statistics are perturbed, under the same guarantees. Median over the draws; no "
        "point where no noise keeps them.",
        Curve(
            rows.assign(method=rows.method.map(METHODS), panel=rows.loss.map(LOSSES)),
            y="mean", hue="method", names=[METHODS[method] for method in shown], height=3.2,
            y_label="loss (log scale)",
            **_over(rows),
        ),
        "Expected losses of ways to perturb ridge regression, on a logarithmic scale.",
    )  # fmt: skip


def _ratios(name: str, cells: pd.DataFrame) -> Figure:
    keys = ["value", "loss"]
    known = cells[cells.method == "pdp_op"].set_index(keys)
    rows = cells[cells.method.str.startswith("jorgensen") & (cells.loss == "unreg")]
    there = known.reindex(pd.MultiIndex.from_frame(rows[keys]))
    rows = pd.concat(
        [
            rows.assign(
                ratio=rows[of].to_numpy() / there[of].to_numpy(),
                panel=words,
            )
            for of, words in (("mean", "test loss"), ("std", "its standard deviation"))
        ]
    )
    return Figure(
        name,
        "Where the lines of the losses lie on each other: the expected test loss of the baselines "
        "of Jorgensen et al., and its standard deviation over the noise, divided by that of "
        "PDP-OP. Above one PDP-OP is better.",
        Curve(
            rows.assign(method=rows.method.map(METHODS)),
            y="ratio", hue="method", names=[METHODS[name] for name in ORDER],
            levels={"as PDP-OP": 1.0}, y_label="loss over PDP-OP's (log scale)",
            height=2.9, **_over(cells),
        ),
        "Ratios of the losses of two baselines, and of their deviations, to that of PDP-OP.",
    )  # fmt: skip


def _gain_figure(gains: pd.DataFrame, method: str, number: int) -> Figure:
    return Figure(
        f"gain_{method}_{number + 1}",
        f"Loss over that of the paper's choice, over {_the(str(gains.parameter.iloc[0]))}; "
        "below one is better. Medians over the draws.",
        Curve(
            gains.assign(loss=gains.loss.map(LOSSES)), y="ratio", hue="loss", height=3.0,
            levels={"as the paper's choice": 1.0},
            y_label=f"{METHODS[method]}: loss over that of the paper's choice (log scale)",
            **_over(gains) | {"panels": None},
        ),
        "Ratio of losses.",
    )  # fmt: skip


def _bound(result: Result[RidgeComparisonProblem]) -> Figure:
    bound, norm = result.tables["bound"], result.problem.learner.coef_norm
    low, high = norm * 1e-4, max(norm, float(np.quantile(bound.total, 0.9)))
    long = [
        pd.DataFrame({"x": bound.regularization, "y": bound[name], "term": words})
        for name, words in TERMS.items()
    ]
    if result.numbers["best_regularization"] is not None:
        words = f"smallest sum, at {equals('λ', result.numbers['best_regularization'])}"
        best = {
            "x": [result.numbers["best_regularization"]],
            "y": [bound.total.min()],
            "term": [words],
        }
        long.append(pd.DataFrame(best))
    rows = pd.concat(long, ignore_index=True)
    return Figure(
        "error_bound",
        "The terms of Theorem 3.6 over λ, for PDP-OP with the sensitivity of this run. Where the "
        "sum lies above the dotted line, the bound promises less than the zero model keeps.",
        Curve(
            rows[rows.y.between(low, high)], x="x", y="y", hue="term", log="xy", height=3.6,
            levels={"the zero model": norm}, x_label="λ, the regularisation (log scale)",
            y_label="bound on the distance to the true model (log scale)",
        ),
        "Three error terms and their sum over lambda, on logarithmic scales.",
    )  # fmt: skip


# ---------------------------------------------------------------------------------------- tables


def _name(file: str) -> str:
    stem = file.rsplit("/", 1)[-1].removesuffix(".csv")
    return stem.replace("table0", "table").replace("table", "Table ").strip().capitalize()


def _verdicts(published: pd.DataFrame) -> pd.DataFrame:
    """Say column by column of the published tables whether their figures are reproduced."""
    columns = published.groupby(["sweep", "file", "loss", "method"], sort=False)
    several = published.drop_duplicates(["sweep", "parameter"]).parameter.duplicated().any()
    return pd.DataFrame(
        [
            {
                "table": _name(str(file)),
                "over": PARAMETERS[str(rows.parameter.iloc[0])]
                + f", sweep {rows.sweep.iloc[0] + 1}" * bool(several),
                "sweep": int(rows.sweep.iloc[0]),
                "loss": LOSSES[str(loss)],
                "method": METHODS[str(method)],
                "cells": len(rows),
                "close": int(rows.close.sum()),
                "lowest": float(rows.ratio.min()),
                "highest": float(rows.ratio.max()),
                "percentile": float(rows.percentile.median()),
            }
            for (_, file, loss, method), rows in columns
        ]
    )


def _tables(result: Result[RidgeComparisonProblem]) -> list[Table]:
    found = []
    if len(result.tables["published"]):
        found.append(
            Table(
                "verdicts",
                "Our medians over the published figures, column by column, and the share of our "
                "single draws that lie below the published figure (median over the column).",
                _verdicts(result.tables["published"]).drop(columns="sweep"),
                {"close": f"within {CLOSE:g}×", "lowest": "lowest ratio"}
                | {"highest": "highest ratio", "percentile": "draws below"},
                {"lowest": ".3g", "highest": ".3g", "percentile": ".0%"},
                rows_shown=60,
            )
        )
    known: set[str] = set()
    beside = result.tables["published"].groupby(["sweep", "file", "loss"], sort=False)
    for (sweep_of, file, loss), rows in ((map(str, key), rows) for key, rows in beside):
        name = f"{_name(file).lower().replace(' ', '_')}_{loss}"
        name += f"_{int(sweep_of) + 1}" * (
            name in known
        )  # a table may be compared in several sweeps
        known.add(name)
        found.append(_beside(name, rows))
    for number, sweep in enumerate(result.problem.sweeps):
        cells = result.tables["cells"][result.tables["cells"].sweep == number]
        for loss, label in LOSSES.items():
            wide = cells[cells.loss == loss].pivot_table(
                index="value", columns="method", values="mean", sort=False
            )
            found.append(
                Table(
                    f"medians_{_stem(result, number)}_{loss}",
                    f"Expected {label} of every method over {_the(sweep.parameter)}, "
                    "median over the draws.",
                    wide[[method for method in METHODS if method in wide]].reset_index(),
                    COLUMNS | {"value": PARAMETERS[sweep.parameter]},
                    dict.fromkeys(METHODS, ".3g") | {"value": "g"},
                )
            )
    if result.problem.learner.perturbations:
        best = _best(result)
        found.append(
            Table(
                "perturbations",
                "The smallest expected loss under the same guarantees, over PDP-OP's; all losses "
                "are in the appendix.",
                best.assign(best=best.best.map(METHODS))[
                    ["parameter", "value", "loss", "best", "ratio"]
                ],
                {"best": "smallest with"},
                {"ratio": ".3g", "value": "g"},
            )
        )
    for method in dict.fromkeys(result.tables["gains"].method):
        gains = select(result.tables["gains"], method=method)
        if ((gains.ratio - 1).abs() > SAME).any():
            found.append(
                Table(
                    f"gains_{method}",
                    "Loss over that of the paper's choice (median over the draws), and the share "
                    "of draws in which it is smaller.",
                    gains.drop(columns=["method", "sweep"]),
                    {"wins": "smaller in"},
                    {"ratio": ".4g", "wins": ".0%", "value": "g"},
                )
            )
    return [
        *found,
        Table(
            "error_bound",
            "The terms of Theorem 3.6.",
            result.tables["bound"].iloc[::10],
            TERMS | {"regularization": "λ", "total": "total", "privacy": "privacy"},
            dict.fromkeys(TERMS, ".3g"),
        ),
        Table(
            "confirmation",
            "Closed forms and simulations.",
            result.tables["confirmation"].assign(
                method=result.tables["confirmation"].method.map(METHODS)
            ),
            {"z": "standard errors apart"},
            {"exact": ".4g", "simulated": ".4g", "z": ".2f", "value": "g"},
        ),
    ]


def _beside(name: str, table: pd.DataFrame) -> Table:
    """Put published and own figures of one loss side by side, one row per value."""
    first = table.iloc[0]
    wide = table.pivot_table(
        index="value", columns="method", values=["published", "ours"], sort=False
    )
    pairs = [(m, source) for m in dict.fromkeys(table.method) for source in ("published", "ours")]
    frame = pd.DataFrame({f"{m}_{source}": wide[source, m] for m, source in pairs})
    return Table(
        name,
        f"{_name(first.file)}: {STATISTICS[first.statistic]} {LOSSES[first.loss]}, as published "
        "and the median of our draws.",
        frame.reset_index(),
        {f"{m}_{source}": f"{COLUMNS[m]}, {source}" for m, source in pairs}
        | {"value": PARAMETERS[first.parameter]},
        dict.fromkeys(map(str, frame), ".3g") | {"value": "g"},
    )
