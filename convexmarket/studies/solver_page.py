"""What a comparison of solvers shows: statements, the matrix of times and a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.display import axes
from convexmarket.report import Report, compare, escape_markdown
from convexmarket.studies.measure import EXACT
from convexmarket.studies.metrics import (
    counted,
    seconds,
    shifted_geometric_mean,
    wide,
)

__all__ = ["fill", "plot", "statements"]

#: The text of a tile that is not a time.
_MARKS = {
    "wrong": "wrong",
    "inaccurate": "inacc.",
    "failed": "failed",
    "time limit": "time",
    "memory limit": "memory",
    "crashed": "crash",
    "unsupported": "–",
}
_GREY, _RED = "0.88", "#d6604d"


def _name(solver: Any, formulation: Any) -> str:
    return str(solver) if solver == EXACT else f"{solver}, {formulation}"


def statements(tables: Mapping[str, pd.DataFrame], facts: Mapping[str, Any]) -> list[str]:
    """Return the fastest of each class, wrong answers, and solvers that cannot take a problem."""
    runs, texts = tables["runs"], []
    for (kind, setting), rows in counted(runs).groupby(["problem_class", "setting"], sort=False):
        largest = rows[(rows["size"] == rows["size"].max()) & (rows.solver != EXACT)]
        if text := _fastest(largest):
            size = rows["size"].max()
            texts.append(f"{kind}, setting {setting}, size {size:,}: {text}")
    for solver in runs.solver[runs.outcome == "wrong"].unique():
        rows = runs[runs.solver == solver]
        wrong = rows[rows.outcome == "wrong"]
        texts.append(
            f"{solver}: a status that our residuals refute in {len(wrong)} of {len(counted(rows))} "
            f"runs ({', '.join(wrong.formulation.unique())})."
        )
    unable = runs[runs.outcome == "unsupported"]
    for solver in unable.solver.unique():
        rows = unable[unable.solver == solver]
        pairs = (rows.problem_class + " (" + rows.formulation + ")").unique()
        texts.append(f"{solver} cannot take {', '.join(pairs)}.")
    if facts["absent"]:
        texts.append(f"Not installed: {', '.join(facts['absent'])}.")
    return texts or ["No run ended."]


def _fastest(runs: pd.DataFrame) -> str:
    """Return the solver of least mean time among those that solve every instance, and the next."""
    times = wide(runs, seconds(runs))
    solved = times[times.columns[np.isfinite(times.to_numpy()).all(axis=0)]]
    if solved.empty:
        return "no solver solves every instance." if len(runs) else ""
    order = shifted_geometric_mean(solved).sort_values()
    text = f"{_name(*order.index[0])} is the fastest solver with {order.iloc[0]:.2g} s"
    if len(order) == 1:
        return f"{text}; no other solves every instance."
    logs = [np.log(solved[contender]) for contender in order.index[:2]]
    ratio = compare(logs[1], logs[0])
    low, high = np.exp([ratio.low, ratio.high])
    interval = f" (95 % interval {low:.2g} to {high:.2g})" if np.isfinite(high) else ""
    return (
        f"{text}; {_name(*order.index[1])} takes {np.exp(ratio.estimate):.2g} times as "
        f"long{interval}."
    )


def plot(
    tables: Mapping[str, pd.DataFrame],
    ax: Any = None,
    *,
    problem_class: str | None = None,
    setting: str | None = None,
) -> Any:
    """Draw the matrix of one class: a tile per solver, formulation and size.

    A tile holds the geometric mean of the seconds, or the worst outcome. Solvers that cannot take a
    formulation have no row.
    """
    from matplotlib.colors import LogNorm

    runs = tables["runs"]
    kind = runs.problem_class.iloc[0] if problem_class is None else problem_class
    runs = runs[runs.problem_class == kind]
    level = runs.setting.iloc[0] if setting is None else setting
    runs = runs[runs.setting == level]
    able = counted(runs)
    runs = able if len(able) else runs
    contenders = list(dict.fromkeys(zip(runs.solver, runs.formulation, strict=True)))
    contenders.sort(key=lambda pair: (pair[0] != EXACT, pair[0], pair[1]))
    sizes = sorted(runs["size"].unique())
    if ax is None:
        from matplotlib import pyplot as plt

        figure = (2.6 + 0.8 * len(sizes), 0.8 + 0.3 * len(contenders))
        _, ax = plt.subplots(figsize=figure, layout="constrained")
    ax = axes(ax)
    times = runs.total_s[runs.outcome == "solved"]
    low, high = (times.min(), times.max()) if len(times) else (1.0, 1.0)
    norm = LogNorm(low, max(high, 1.01 * low))
    shades = np.full((len(contenders), len(sizes)), np.nan)
    for i, (solver, formulation) in enumerate(contenders):
        for j, size in enumerate(sizes):
            rows = runs[(runs.solver == solver) & (runs.formulation == formulation)]
            text, seconds, colour = _tile(rows[rows["size"] == size])
            shades[i, j] = seconds
            if colour is not None:
                ax.add_patch(_patch(j, i, colour))
            dark = np.isfinite(seconds) and norm(seconds) > 0.6
            ax.text(j, i, text, ha="center", va="center", fontsize=7, color="w" if dark else "k")
    ax.imshow(shades, norm=norm, cmap="Blues", aspect="auto")
    ax.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes])
    ax.set_yticks(range(len(contenders)), [_name(*pair) for pair in contenders], fontsize=8)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("size")
    return ax


def _patch(x: float, y: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.5, y - 0.5), 1, 1, color=colour, lw=0)


def _tile(rows: pd.DataFrame) -> tuple[str, float, str | None]:
    """Return text, seconds and colour of the runs of one tile."""
    if rows.empty:
        return "", np.nan, None
    worst = next((mark for mark in _MARKS if (rows.outcome == mark).any()), "")
    if worst:
        count = int((rows.outcome == worst).sum())
        more = f" {count}/{len(rows)}" if count < len(rows) else ""
        return _MARKS[worst] + more, np.nan, _RED if worst == "wrong" else _GREY
    seconds = float(np.exp(np.log(rows.total_s).mean()))
    return f"{seconds:.2g}", seconds, None


def fill(
    report: Report,
    tables: Mapping[str, pd.DataFrame],
    facts: Mapping[str, Any],
    keys: Mapping[str, Sequence[str]],
) -> None:
    """Add the matrix of each class and setting, statements and tables to a report."""
    runs = tables["runs"]
    sentences = statements(tables, facts)
    report.headline(sentences[0])
    report.add("\n".join(f"- {escape_markdown(text)}" for text in sentences))
    for kind, setting in dict.fromkeys(zip(runs.problem_class, runs.setting, strict=True)):
        ax = plot(tables, problem_class=kind, setting=setting)
        name = f"{kind}-{setting}".lower().replace(" ", "-")
        report.add(ax.figure, f"Seconds of {kind}, setting {setting}", name=name)
    for name, caption in _TABLES.items():
        if name in tables:
            rows = tables[name]
            rows = rows[rows["size"].isna()].drop(columns="size")
            report.add(rows, caption, name=name, keys=[k for k in keys[name] if k != "size"])
    machine = facts["machine"]
    report.add(
        f"{len(counted(runs)):,} runs on {', '.join(machine['cpus'])}, {machine['system']}; "
        f"{'each bound to one core' if machine['pinned'] else 'not bound to cores'}."
    )
    report.add("\n".join(f"- {text}" for text in facts["caveats"]), appendix=True)
    for name, caption in _APPENDIX.items():
        if name in tables:
            report.add(tables[name], caption, name=f"all-{name}", keys=keys[name], appendix=True)


_TABLES = {"means": "Times, all sizes together", "rates": "Outcomes, all sizes together"}
_APPENDIX = {
    "runs": "The runs",
    "references": "The references",
    "means": "Times by size",
    "rates": "Outcomes by size",
    "profiles": "Performance profiles",
}
