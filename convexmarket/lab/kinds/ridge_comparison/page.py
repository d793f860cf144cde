"""The report of a comparison of private ridge regressions."""

from __future__ import annotations

from functools import partial

import pandas as pd

from convexmarket.lab.kinds.ridge_comparison import figures as ridge_figures
from convexmarket.lab.kinds.ridge_comparison.figures import LOSSES, PARAMETERS
from convexmarket.lab.kinds.ridge_comparison.problem import SweepTable
from convexmarket.lab.kinds.ridge_comparison.run import (
    CLOSE,
    CONFIRMING_DRAWS,
    METHODS,
    MUCH,
    ORDER,
    SAME,
    RidgeComparisonResult,
)
from convexmarket.lab.report.model import Fact, Figure, Report, Section, Table
from convexmarket.lab.report.parts import reproduction_section, select, short
from convexmarket.lab.report.words import count, format_percent

__all__ = ["ridge_comparison_report"]

HEADERS = {
    "jorgensen_max": "Jorgensen max",
    "jorgensen_mean": "Jorgensen mean",
    "pdp_op": "PDP-OP",
    "nonpersonalized": "non-personalised",
    "nonprivate": "non-private",
    "pdp_op_tight": "PDP-OP tight",
    "pdp_op_optimal": "PDP-OP optimal weights",
}
STATISTICS = {"mean": "expected", "std": "standard deviation of the"}
EVERY_METHOD = (
    "PDP-OP and the non-personalised baseline keep what was promised to each row: their noise "
    "covers the sensitivity used here, which is proven.",
    "The baseline of Jorgensen et al. is run as the paper runs it, with weights and noise that "
    "follow the size of the sample. Whether a row was sampled then changes the noise for "
    "everybody, so the argument that sampling lowers a row's loss to what it asked for does not "
    "apply when the row is replaced: only the threshold is guaranteed to each row. Small cases "
    "lose up to eighty times what was promised (docs/theory.md, 7.2). Its losses here are those "
    "of a mechanism that promises less than it says.",
    "The non-private regression guarantees nothing.",
)


def ridge_comparison_report(result: RidgeComparisonResult) -> Report:
    """Describe a comparison of private ridge regressions.

    Parameters
    ----------
    result : RidgeComparisonResult

    Returns
    -------
    Report
        To be written by :func:`convexmarket.lab.report.render.write_folder`.
    """
    sweeps = [
        _sweep_section(result, number, sweep) for number, sweep in enumerate(result.problem.sweeps)
    ]
    return Report(
        title=result.problem.title,
        summary=_summary(result),
        sections=(
            *sweeps,
            _gain_section(result, "pdp_op_tight"),
            *([_gain_section(result, "pdp_op_optimal")] if _has_optimal(result) else []),
            _bound_section(result),
            _confirmation_section(result),
            Section("What is guaranteed", EVERY_METHOD, points=result.caveats),
            reproduction_section(result.problem, result.provenance, result.timings),
        ),
        results=result,
        facts=_facts(result),
    )


def _has_optimal(result: RidgeComparisonResult) -> bool:
    return bool((result.gains.method == "pdp_op_optimal").any())


# ---------------------------------------------------------------- the summary


def _facts(result: RidgeComparisonResult) -> tuple[Fact, ...]:
    facts = []
    lambdas = select(result.orderings, parameter="regularization")
    if len(lambdas):
        facts.append(Fact("orderings that hold over λ", f"{lambdas.ours.sum()} of {len(lambdas)}"))
    if len(result.published):
        close = int(result.published.close.sum())
        facts.append(
            Fact(f"published cells within {CLOSE:g}×", f"{close} of {len(result.published)}")
        )
    if result.problem.learner.sensitivity == "paper":
        best = select(result.gains, method="pdp_op_tight").ratio.min()
        facts.append(Fact("best loss ratio of the tight sensitivity", short(float(best))))
    facts.append(Fact("draws of data and levels", str(result.problem.run.draws)))
    return tuple(facts)


def _summary(result: RidgeComparisonResult) -> tuple[str, ...]:
    words = [result.problem.description.strip().replace("\n", " ")]
    lambdas = select(result.orderings, parameter="regularization")
    if len(lambdas):
        words.append(
            f"The claimed ordering, {' < '.join(METHODS[name] for name in ORDER)}, the last at "
            f"least {MUCH:g} times the one before, holds at {lambdas.ours.sum()} of "
            f"{count(len(lambdas), 'pair')} of λ and loss in the medians over the draws, and in "
            f"{format_percent(float(lambdas.share_of_draws.mean()))} of single draws."
        )
    if len(result.published):
        words.append(_published_words(result.published))
    tight = select(result.gains, method="pdp_op_tight")
    if result.best_regularization is not None:
        cells = select(result.cells, parameter="regularization", method="pdp_op", loss="unreg")
        best = f"the bound of Theorem 3.6 is smallest at λ = {short(result.best_regularization)}"
        if len(cells):
            lowest = float(cells.sort_values("mean").value.iloc[0])
            best += f"; of those compared, λ = {lowest:g} has the smallest expected test loss"
        words.append(f"For PDP-OP {best}.")
    if result.problem.learner.sensitivity == "paper":
        words.append(
            "With the tight sensitivity the same guarantees need less noise: the expected loss is "
            f"{short(float(tight.ratio.min()))} to {short(float(tight.ratio.max()))} times that "
            "with the published one."
        )
    return tuple(words)


def _published_words(published: pd.DataFrame) -> str:
    """Say how many published cells come out, and where they do not."""
    text = (
        f"{int(published.close.sum())} of {len(published)} published cells are within a factor of "
        f"{CLOSE:g} of our median"
    )
    twice = int(published.duplicated(["sweep", "value", "method", "loss", "statistic"]).sum())
    if twice:
        text += f" ({count(twice, 'cell')} printed in two tables counted in both)"
    text += "."
    far = published[~published.close]
    if len(far):
        inside = int(far.percentile.between(0.0, 1.0, inclusive="neither").sum())
        text += (
            f" Of the {len(far)} that are not close, {inside} lie within the range of our "
            "single draws: the paper shows one draw."
        )
    return text


# ---------------------------------------------------------------- one sweep


def _sweep_section(result: RidgeComparisonResult, number: int, sweep: SweepTable) -> Section:
    """Show the losses over one parameter, and beside the published tables."""
    cells = result.cells[result.cells.sweep == number]
    published = result.published[result.published.sweep == number]
    name = f"{number + 1}_{sweep.parameter}"
    parameter = PARAMETERS[sweep.parameter]
    if sweep.parameter == "label_noise":  # it changes the optimal weights and nothing else
        return Section(
            f"Over the {parameter}",
            (_fixed_words(result, sweep), "Only the weights that minimise the bound depend on it."),
            tables=_cells_tables(name, cells, parameter),
        )
    figures = [_figure(f"losses_{name}", cells, published, "mean", parameter)]
    if "std" in set(published.statistic):
        figures.append(_figure(f"spread_{name}", cells, published, "std", parameter))
    files = list(dict.fromkeys(published.file))
    tables = [_verdicts(name, published)] if files else []
    for file in files:
        rows = published[published.file == file]
        tables += [
            _published_table(rows[rows.loss == loss], parameter, loss)
            for loss in dict.fromkeys(rows.loss)
        ]
    tables += _cells_tables(name, cells, parameter)
    prose = [_fixed_words(result, sweep), _ordering_words(result, number)]
    prose += [_table_words(published[published.file == file]) for file in files]
    return Section(
        f"Over the {parameter}" if sweep.parameter != "regularization" else "Over λ",
        tuple(text for text in prose if text),
        figures=tuple(figures),
        tables=tuple(tables),
    )


def _figure(
    name: str, cells: pd.DataFrame, published: pd.DataFrame, statistic: str, parameter: str
) -> Figure:
    what = "Expected losses" if statistic == "mean" else "Standard deviation of the losses"
    crosses = "; crosses are published" if statistic in set(published.statistic) else ""
    return Figure(
        name,
        f"{what} over {parameter}; the lowest line is the best method. Median over the draws, "
        f"band from 5% to 95%{crosses}.",
        partial(ridge_figures.losses_over, cells, published, statistic),
        f"{what} of four methods over {parameter}, on a logarithmic scale.",
    )


def _fixed_words(result: RidgeComparisonResult, sweep: SweepTable) -> str:
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
    return f"Fixed: {', '.join(f'{word} {value:g}' for word, value in fixed.values())}."


def _ordering_words(result: RidgeComparisonResult, number: int) -> str:
    rows = result.orderings[result.orderings.sweep == number]
    text = (
        f"PDP-OP < Jorgensen max < Jorgensen mean << non-personalised (<<: {MUCH:g} times) holds "
        f"in our medians at {int(rows.ours.sum())} of {count(len(rows), 'pair')} of value and "
        f"loss, in {format_percent(float(rows.share_of_draws.mean()))} of all draws"
    )
    printed = rows.published.dropna()
    if len(printed):
        text += f", and in print at {int(printed.sum())} of {len(printed)}"
    missed = rows[~rows.ours]
    if len(missed):
        text += (
            f". {int(missed.in_order.sum())} of the {len(missed)} others have the same order with "
            "a smaller factor"
        )
    beaten = _beaten(result.cells[result.cells.sweep == number])
    if beaten:
        text += (
            f". At {count(beaten, 'pair')} a baseline of Jorgensen et al., whose promise is not "
            "proven, has a smaller loss than PDP-OP"
        )
    return f"{text}."


def _beaten(cells: pd.DataFrame) -> int:
    """Count the pairs of value and loss where PDP-OP is not the best of the personalised."""
    wide = cells.pivot_table(index=["value", "loss"], columns="method", values="mean")
    baselines = wide[["jorgensen_max", "jorgensen_mean"]].min(axis=1)
    return int((baselines < wide.pdp_op * (1 - SAME)).sum())


def _table_words(table: pd.DataFrame) -> str:
    """Say of one published table whether its figures come out."""
    return (
        f"{_table_name(table)}: {int(table.close.sum())} of {len(table)} cells are within a factor "
        f"of {CLOSE:g} of our median; ours over published lies between "
        f"{short(float(table.ratio.min()))} and {short(float(table.ratio.max()))}."
    )


def _verdicts(name: str, published: pd.DataFrame) -> Table:
    """Say column by column of the published tables whether their figures come out."""
    rows = [
        {
            "table": _table_name(column),
            "loss": LOSSES[str(loss)],
            "method": METHODS[str(method)],
            "cells": len(column),
            "close": int(column.close.sum()),
            "lowest": float(column.ratio.min()),
            "highest": float(column.ratio.max()),
            "percentile": float(column.percentile.median()),
        }
        for (_, loss, method), column in published.groupby(["file", "loss", "method"], sort=False)
    ]
    return Table(
        f"verdicts_{name}",
        "Our medians over the published figures, column by column, and the share of our single "
        "draws that lie below the published figure (median over the column).",
        pd.DataFrame(rows),
        {
            "close": f"within {CLOSE:g}×",
            "lowest": "lowest ratio",
            "highest": "highest ratio",
            "percentile": "draws below",
        },
        {"lowest": ".3g", "highest": ".3g", "percentile": ".0%"},
    )


def _table_name(table: pd.DataFrame) -> str:
    stem = str(table.file.iloc[0]).rsplit("/", 1)[-1].removesuffix(".csv")
    return stem.replace("table0", "table").replace("table", "Table ").strip().capitalize()


def _published_table(table: pd.DataFrame, parameter: str, loss: str) -> Table:
    """Put published and own figures of one loss side by side, one row per value."""
    name = _table_name(table)
    wide = table.pivot_table(
        index="value", columns="method", values=["published", "ours"], sort=False
    )
    columns, headers = {"value": wide.index.to_numpy()}, {"value": parameter}
    for method in dict.fromkeys(table.method):
        for source in ("published", "ours"):
            columns[f"{method}_{source}"] = wide[source, method].to_numpy()
            headers[f"{method}_{source}"] = f"{HEADERS[method]}, {source}"
    statistic = STATISTICS[str(table.statistic.iloc[0])]
    return Table(
        f"{name.lower().replace(' ', '_')}_{loss}",
        f"{name}: {statistic} {LOSSES[loss]}, as published and the median of our draws.",
        pd.DataFrame(columns),
        headers,
        dict.fromkeys(columns, ".3g") | {"value": "g"},
    )


def _cells_tables(name: str, cells: pd.DataFrame, parameter: str) -> tuple[Table, ...]:
    """Show the medians of every method, one table per loss."""
    tables = []
    for loss, label in LOSSES.items():
        wide = cells[cells.loss == loss].pivot_table(
            index="value", columns="method", values="mean", sort=False
        )
        methods = [method for method in METHODS if method in wide]
        tables.append(
            Table(
                f"medians_{name}_{loss}",
                f"Expected {label} of every method, median over the draws.",
                wide[methods].reset_index(),
                {"value": parameter, **{method: HEADERS[method] for method in methods}},
                dict.fromkeys(methods, ".3g") | {"value": "g"},
            )
        )
    return tuple(tables)


# ---------------------------------------------------------------- what is ours


def _gain_section(result: RidgeComparisonResult, method: str) -> Section:
    """Compare a choice of ours with the paper's."""
    gains = select(result.gains, method=method)
    tight = method == "pdp_op_tight"
    if tight and result.problem.learner.sensitivity == "tight":
        return Section(
            "The tight sensitivity",
            ("Every method here uses the tight sensitivity already (docs/theory.md, 7.1).",),
        )
    heading = "The tight sensitivity" if tight else "Weights that minimise the bound"
    ends = gains.sort_values("ratio").iloc[[0, -1]].to_dict("records")
    extremes = " and ".join(
        f"{short(row['ratio'])} ({LOSSES[row['loss']]} at {PARAMETERS[row['parameter']]} = "
        f"{row['value']:g})"
        for row in ends
    )
    words = (
        "The published sensitivity adds up bounds that cannot be attained together. The proven "
        "constant of docs/theory.md, 7.1, keeps the same guarantees with less noise."
        if tight
        else "Under the same guarantees, the weights that minimise Theorem 3.6's bound are never "
        "worse in that bound than weights proportional to ε. In test loss they can be: the bound "
        "divides the noise of the labels by λ where the data's own curvature counts too, so it "
        "buys more spread, and accepts more noise, than pays."
    )
    differing = gains[(gains.ratio - 1).abs() > SAME]
    smaller = int((differing.ratio < 1).sum())
    tally = (
        f"The ratio of expected losses lies between {extremes}. Of {len(gains)} pairs of value and "
        f"loss it is below one at {smaller}, above one at {len(differing) - smaller}, and one at "
        f"{len(gains) - len(differing)}, where the two choices agree."
    )
    if differing.empty:
        tally = (
            "Here the noise of privacy outweighs that of the labels so much that the two choices "
            f"agree at all {len(gains)} pairs of value and loss; problems/ridge-weights.toml shows "
            "a case where they differ."
        )
    figures = [
        Figure(
            f"gain_{method}_{number + 1}",
            f"Loss over that of the paper's choice, over {PARAMETERS[sweep.parameter]}; below one "
            "is better. Medians over the draws.",
            partial(
                ridge_figures.gain_ratios,
                gains[gains.sweep == number],
                method,
                sweep.parameter,
            ),
            f"Ratio of losses over {PARAMETERS[sweep.parameter]}.",
        )
        for number, sweep in enumerate(result.problem.sweeps)
        if (number == 0 or sweep.parameter == "label_noise")
        and len(differing[differing.sweep == number])
    ]
    return Section(
        heading,
        (words, tally),
        figures=tuple(figures),
        tables=()
        if differing.empty
        else (
            Table(
                f"gains_{method}",
                "Loss over that of the paper's choice (median over the draws), and the share of "
                "draws in which it is smaller.",
                gains.drop(columns=["method", "sweep"]),
                {"wins": "smaller in"},
                {"ratio": ".4g", "wins": ".0%", "value": "g"},
            ),
        ),
    )


def _bound_section(result: RidgeComparisonResult) -> Section:
    """Draw Theorem 3.6."""
    learner, best = result.problem.learner, result.best_regularization
    found = (
        f"Their sum is smallest at λ = {short(best)}."
        if best is not None
        else "Their sum falls all the way to the right, where the model is zero and its error is "
        "‖θ*‖: with so few rows and so much privacy the bound cannot tell any of these models from "
        "no model, although the test losses can."
    )
    return Section(
        "Theorem 3.6: three errors, one λ",
        (
            f"With probability {1 - learner.failure_probability:g} the released model is closer to "
            "the true one than three terms: regularisation, which grows with λ, and the "
            f"noise of privacy and of the labels, which fall. {found}",
            "The theorem is evaluated with public assumptions alone: ‖θ*‖ at most "
            f"{learner.coef_norm:.3g}, noise of the labels {learner.label_noise:g}, and "
            "smallest eigenvalue of the weighted second moments at least "
            f"{learner.smallest_eigenvalue:.3g}.",
        ),
        figures=(
            Figure(
                "error_bound",
                "The terms of Theorem 3.6 over λ, for PDP-OP with the sensitivity of this run. "
                "Where the sum lies above the dotted line, the bound promises less than the zero "
                "model keeps.",
                partial(ridge_figures.error_bound, result.bound, learner.coef_norm, best),
                "Three error terms and their sum over lambda, on logarithmic scales.",
            ),
        ),
        tables=(
            Table(
                "error_bound",
                "The terms of Theorem 3.6.",
                result.bound.iloc[::10],
                {"regularization": "λ", "bias": "regularisation", "labels": "label noise"},
                dict.fromkeys(("bias", "privacy", "labels", "total"), ".3g"),
            ),
        ),
    )


def _confirmation_section(result: RidgeComparisonResult) -> Section:
    largest = float(result.confirmation.z.abs().max())
    return Section(
        "How the losses were computed, and a check",
        (
            "The test loss of a released model is a quadratic in the noise, whose radius and "
            "direction are independent with known moments. So its mean and standard deviation over "
            "the noise are closed forms; for sampled rows they are so given the sample, and "
            f"{result.problem.run.samples} samples are drawn.",
            f"Up to {CONFIRMING_DRAWS:,} releases simulated in some cells of the first draw agree: "
            f"the largest distance is {largest:.1f} standard errors, of "
            f"{count(len(result.confirmation), 'cell')}.",
        ),
        tables=(
            Table(
                "confirmation",
                "Closed forms and simulations.",
                result.confirmation.assign(method=result.confirmation.method.map(METHODS)),
                {"z": "standard errors apart"},
                {"exact": ".4g", "simulated": ".4g", "z": ".2f", "value": "g"},
            ),
        ),
    )
