"""Statements, matrices of times and report of a comparison of solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.display import axes
from convexmarket.report import Report, compare, escape_markdown
from convexmarket.studies import verdicts
from convexmarket.studies.measure import EXACT

#: Short labels of outcomes in a matrix. Other outcomes are labelled by their names.
_MARKS = {"inaccurate": "inacc.", "time limit": "time", "memory limit": "memory"}
_MARKS |= {"crashed": "crash", "unsupported": "–"}
#: Outcomes of runs from worst to best, and phrases for two outcomes in sentences about solvers.
_WORST = (*verdicts.COUNTED[1:], "unsupported", "solved")
_FAULTS = {"wrong": "has a status that our residuals refute for", "unsupported": "cannot take"}


def _name(solver: Any, formulation: Any) -> str:
    return str(solver) if solver == EXACT else f"{solver}, {formulation}"


def statements(runs: Any) -> list[str]:
    """Describe the fastest solvers, the wrong answers and the unsupported problems in sentences."""
    table, absent, texts = runs.tables["runs"], runs.facts["absent"], list[str]()
    able = verdicts.counted(table[table.solver != EXACT])
    for (kind, setting), group in able.groupby(verdicts.GROUP, sort=False):
        size = group["size"].max()
        race = _race(group[group["size"] == size])
        texts.append(f"{kind}, setting {setting}, size {size:,}: {race}.")
    for outcome, verb in _FAULTS.items():
        for solver, of_solver in table[table.outcome == outcome].groupby("solver", sort=False):
            kinds = of_solver.groupby("problem_class", sort=False).formulation.unique()
            pairs = ", ".join(f"{kind} ({', '.join(forms)})" for kind, forms in kinds.items())
            texts.append(f"{solver} {verb} {pairs}.")
    texts += [f"Not installed: {', '.join(absent)}."] if absent else []
    return texts or ["No run ended."]


def _race(runs: pd.DataFrame) -> str:
    """Compare the times of the two fastest CVXPY solvers that solve every instance."""
    times = verdicts.wide(runs)
    solved = times[times.columns[np.isfinite(times.to_numpy()).all(axis=0)]]
    order = verdicts.shifted_geometric_mean(solved).sort_values()
    if order.empty:
        return "no CVXPY solver solves every instance"
    first, *others = [_name(*contender) for contender in order.index]
    if not others:
        return f"{first} is the only CVXPY solver for every instance, with {order.min():.2g} s"
    ratio = compare(*(np.log(solved[contender]) for contender in order.index[1::-1]))
    middle, low, high = np.exp([ratio.estimate, ratio.low, ratio.high])
    lead = "has the smallest mean time" if ratio.verdict == "tie" else "is the fastest"
    ends = f"95 % interval {low:.2g} to {high:.2g}" if np.isfinite(high) else "one instance"
    ends += "; not significant" * (ratio.verdict == "tie")
    text = f"{first} {lead} of the CVXPY solvers, {order.min():.2g} s"
    return f"{text}; {others[0]} takes {middle:.1f} times as long ({ends})"


def plot(runs: Any, ax: Any = None) -> Any:
    """Plot the matrix of times for the first problem class and setting."""
    return _matrix(next(iter(runs.tables["runs"].groupby(verdicts.GROUP, sort=False)))[1], ax)


def _matrix(runs: pd.DataFrame, ax: Any = None) -> Any:
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    able = verdicts.counted(runs)
    able = runs if able.empty else able
    able = able.assign(name=list(map(_name, able.solver, able.formulation)))
    rows = sorted(set(able.name), key=lambda name: (name != EXACT, name))
    sizes = sorted(set(able["size"]))
    fresh, ax = ax is None, axes(ax, xlabel="size")
    if fresh:
        ax.figure.set_size_inches(2.6 + 0.8 * len(sizes), 0.9 + 0.3 * len(rows))
    times = able.total_s[able.outcome == "solved"]
    low, high = (times.min(), times.max()) if len(times) else (1.0, 1.0)
    norm, shades = LogNorm(low, max(high, 1.01 * low)), np.full((len(rows), len(sizes)), np.nan)
    for (name, size), tile in able.groupby(["name", "size"]):
        i, j, colour = rows.index(name), sizes.index(size), "k"
        worst = min(tile.outcome, key=_WORST.index)
        if worst == "solved":
            shades[i, j] = verdicts.shifted_geometric_mean(tile[["total_s"]]).item()
            text, colour = f"{shades[i, j]:.2g}", "w" if norm(shades[i, j]) > 0.6 else "k"
        else:
            count, back = (tile.outcome == worst).sum(), "#d6604d" if worst == "wrong" else "0.88"
            text = _MARKS.get(worst, worst) + (f" {count}/{len(tile)}" if count < len(tile) else "")
            ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color=back, lw=0))
        ax.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    ax.imshow(shades, norm=norm, cmap="Blues", aspect="auto")
    ax.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes], fontsize=8)
    ax.set_yticks(range(len(rows)), rows, fontsize=8)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return ax


def fill(report: Report, runs: Any) -> None:
    """Add the matrices, statements and tables to a report."""
    tables, machine, texts = runs.tables, runs.facts["machine"], statements(runs)
    report.headline(texts[0])
    for (kind, setting), rows in tables["runs"].groupby(verdicts.GROUP, sort=False):
        caption = f"Mean seconds (shifted geometric) or worst outcome: {kind}, setting {setting}"
        name = f"{kind}-{setting}".lower().replace(" ", "-")
        report.add(_matrix(rows).figure, caption, name=name, alt=caption)
    report.add("\n".join(f"- {escape_markdown(text)}" for text in texts[1:]))
    counts = verdicts.counted(tables["runs"]).outcome.value_counts()
    outcomes = ", ".join(f"{counts[each]:,} {each}" for each in verdicts.COUNTED if each in counts)
    limit = f"The time limit was {tables['runs'].time_limit_s.max():g} s."
    text = f"{counts.sum():,} runs on {machine['cpu']}, {machine['system']}: {outcomes or 'none'}."
    report.add(f"{text} {limit}")
    report.add("\n".join(f"- {text}" for text in runs.facts["caveats"]), appendix=True)
    for name, rows in tables.items():
        report.add(rows, f"All {name}", name=f"all-{name}", keys=runs.keys[name], appendix=True)
