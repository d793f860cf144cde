"""Statements, the matrix of times and the report of a comparison of solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.display import axes
from convexmarket.report import Report, compare, escape_markdown
from convexmarket.studies import verdicts
from convexmarket.studies.measure import EXACT

#: Labels of outcomes on a tile; other outcomes are shown by their names.
_MARKS = {
    "inaccurate": "inacc.",
    "time limit": "time",
    "memory limit": "memory",
    "crashed": "crash",
    "unsupported": "–",
}
#: Outcomes other than a time, from the worst.
_WORST = (*verdicts.COUNTED[1:], "unsupported")
_FASTEST = [*verdicts.GROUP, "size", "fastest", "seconds", "next", "ratio", "low", "high"]


def _name(solver: Any, formulation: Any) -> str:
    return str(solver) if solver == EXACT else f"{solver}, {formulation}"


def fastest(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest solver of each class and setting at its largest size, and the next.

    Only solvers that solve every instance compete, by the shifted geometric mean of their times.
    ``ratio`` is the geometric mean of the ratio of their times on the same instances; ``low`` and
    ``high`` are the ends of its 95 % interval. All three are missing if no second solver competes.
    """
    rows = []
    solvers = verdicts.counted(runs[runs.solver != EXACT])
    for labels, group in solvers.groupby(verdicts.GROUP, sort=False):
        group = group[group["size"] == group["size"].max()]
        times = verdicts.wide(group, verdicts.seconds(group))
        solved = times[times.columns[np.isfinite(times.to_numpy()).all(axis=0)]]
        order = verdicts.shifted_geometric_mean(solved).sort_values()
        names, ends = [_name(*contender) for contender in order.index[:2]], np.full(3, np.nan)
        if len(order) > 1:
            ratio = compare(*(np.log(solved[contender]) for contender in order.index[1::-1]))
            ends = np.exp([ratio.estimate, ratio.low, ratio.high])
            ends = np.where(np.isfinite(ends), ends, np.nan)
        first, second, *_ = *names, "", ""
        rows.append([*labels, group["size"].iloc[0], first, order.min(), second, *ends])
    return pd.DataFrame(rows, columns=_FASTEST)


def statements(runs: Any) -> list[str]:
    """Return the fastest of each class, wrong answers, and unsupported problems of solvers."""
    texts = [_sentence(row) for row in fastest(runs.tables["runs"]).itertuples()]
    return (texts + _exceptions(runs)) or ["No run ended."]


def _sentence(row: Any) -> str:
    place = f"{row.problem_class}, setting {row.setting}, size {row.size:,}"
    if not row.fastest:
        return f"{place}: no solver solves every instance."
    text = f"{place}: {row.fastest} is the fastest solver with {row.seconds:.2g} s"
    if not row.next:
        return f"{text}; no other solves every instance."
    interval = "" if np.isnan(row.high) else f" (95 % interval {row.low:.2g} to {row.high:.2g})"
    return f"{text}; {row.next} takes {row.ratio:.2g} times as long{interval}."


def _exceptions(runs: Any) -> list[str]:
    """Return sentences on wrong answers, unsupported problems and absent solvers."""
    texts, table, absent = [], runs.tables["runs"], runs.facts["absent"]
    for solver, rows in table.groupby("solver", sort=False):
        if len(wrong := rows[rows.outcome == "wrong"]):
            texts.append(
                f"{solver}: a status that our residuals refute in {len(wrong)} of "
                f"{len(verdicts.counted(rows))} runs ({', '.join(wrong.formulation.unique())})."
            )
    refused: dict[str, list[str]] = {}
    for solver, rows in table[table.outcome == "unsupported"].groupby("solver", sort=False):
        kinds = rows.groupby("problem_class", sort=False).formulation.unique()
        pairs = ", ".join(f"{kind} ({', '.join(names)})" for kind, names in kinds.items())
        refused.setdefault(pairs, []).append(str(solver))
    texts += [f"{', '.join(names)} cannot take {pairs}." for pairs, names in refused.items()]
    return texts + ([f"Not installed: {', '.join(absent)}."] if absent else [])


def plot(runs: Any, ax: Any = None) -> Any:
    """Draw the matrix of the first class and setting."""
    return _matrix(next(iter(runs.tables["runs"].groupby(verdicts.GROUP, sort=False)))[1], ax)


def _matrix(runs: pd.DataFrame, ax: Any = None) -> Any:
    """Draw a row per solver and formulation, the exact method first, and a column per size.

    A tile holds the geometric mean of the seconds, or the worst outcome. Solvers that lack a
    formulation have no row.
    """
    runs = verdicts.counted(runs) if len(verdicts.counted(runs)) else runs
    names = [_name(*pair) for pair in zip(runs.solver, runs.formulation, strict=True)]
    return _tiles(runs.assign(row=names), "row", _exact_first(names), "size", ax)


def _exact_first(names: Any) -> list[str]:
    return sorted(set(names), key=lambda name: (name != EXACT, name))


def _overview(runs: pd.DataFrame) -> Any:
    """Draw a matrix of the solvers in their first formulation by class, at the largest sizes."""
    able = verdicts.counted(runs)
    able = able[able["size"] == able.groupby("problem_class")["size"].transform("max")]
    able = able[able.setting == able.setting.iloc[0]]
    contender = ["problem_class", "solver", "formulation"]
    times = able.assign(seconds=verdicts.seconds(able)).groupby(contender).seconds.mean()
    best = times[times.groupby(level=[0, 1]).idxmin()].index
    able = able[pd.MultiIndex.from_frame(able[contender]).isin(best)]
    return _tiles(able, "problem_class", list(able.problem_class.unique()), "solver")


def _tiles(runs: pd.DataFrame, y: str, rows: list[str], x: str, ax: Any = None) -> Any:
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    columns: list[Any] = _exact_first(runs[x]) if x == "solver" else sorted(runs[x].unique())
    fresh, ax = ax is None, axes(ax, xlabel=x)
    if fresh:
        ax.figure.set_size_inches(2.6 + 0.8 * len(columns), 0.9 + 0.3 * len(rows))
    times = runs.total_s[runs.outcome == "solved"]
    low, high = (times.min(), times.max()) if len(times) else (1.0, 1.0)
    norm = LogNorm(low, max(high, 1.01 * low))
    shades = np.full((len(rows), len(columns)), np.nan)
    for place, tile in runs.groupby([y, x], sort=False):
        i, j = rows.index(str(place[0])), columns.index(place[1])
        worst = next((name for name in _WORST if (tile.outcome == name).any()), "")
        dark = False
        if worst:
            count = int((tile.outcome == worst).sum())
            text = _MARKS.get(worst, worst) + (f" {count}/{len(tile)}" if count < len(tile) else "")
            colour = "#d6604d" if worst == "wrong" else "0.88"
            ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color=colour, lw=0))
        else:
            shades[i, j] = np.exp(np.log(tile.total_s).mean())
            text, dark = f"{shades[i, j]:.2g}", norm(shades[i, j]) > 0.6
        ax.text(j, i, text, ha="center", va="center", fontsize=7, color="w" if dark else "k")
    ax.imshow(shades, norm=norm, cmap="Blues", aspect="auto")
    names = [f"{name:,}" if x == "size" else str(name) for name in columns]
    ax.set_xticks(range(len(columns)), names, fontsize=8)
    ax.set_yticks(range(len(rows)), rows, fontsize=8)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return ax


def fill(report: Report, runs: Any) -> None:
    """Add the matrices, statements and tables to a report; the matrix leads."""
    tables, facts, table = runs.tables, runs.facts, runs.tables["runs"]
    best = fastest(table)
    ranked = best[best.fastest != ""]
    if best.problem_class.nunique() > 1 and len(ranked):
        leads = ranked.fastest.str.partition(",")[0].value_counts()
        leaders = " and ".join(leads.index[leads == leads.max()])
        report.headline(
            f"At the largest size some solver solves every instance in {len(ranked)} of "
            f"{len(best)} comparisons of a class under a setting. {leaders} "
            f"{'lead' if ' and ' in leaders else 'leads'} most often ({leads.max()} times); the "
            f"95 % interval to the next one excludes a tie in {int((best.low > 1).sum())}."
        )
        caption = "Seconds or worst outcome of the fastest formulations, at the largest size"
        report.add(_overview(table).figure, caption, name="overview", alt=caption)
        headers = {"low": "95 % from", "high": "to"}
        caption = "The fastest solver at the largest size"
        report.add(best, caption, name="fastest", keys=verdicts.GROUP, headers=headers)
    else:
        report.headline(statements(runs)[0])
    groups = table.groupby(verdicts.GROUP, sort=False)
    for (kind, setting), rows in groups:
        name = f"{kind}-{setting}".lower().replace(" ", "-")
        caption = f"Seconds or worst outcome of {kind}, setting {setting}, by solver and size"
        figure = _matrix(rows).figure
        report.add(figure, caption, name=name, alt=caption, appendix=groups.ngroups > 2)
    report.add("\n".join(f"- {escape_markdown(text)}" for text in _exceptions(runs)))
    if "rates" in tables:
        rates, names = tables["rates"], [*verdicts.GROUP, "solver", "formulation"]
        doubtful = ["wrong", "inaccurate", "failed", "crashed"]
        rows = rates[rates["size"].isna() & (rates[doubtful].sum(axis=1) > 0)]
        rows = rows[[*names, "runs", "solved", *doubtful]].sort_values("wrong", ascending=False)
        report.add(rows, "Contenders with failures other than limits", name="rates", keys=names)
    machine = facts["machine"]
    pinned = "each bound to one core" if machine["pinned"] else "not bound to cores"
    where = f"{', '.join(machine['cpus'])}, {machine['system']}"
    report.add(f"{len(verdicts.counted(table)):,} runs on {where}; {pinned}.")
    report.add("\n".join(f"- {text}" for text in facts["caveats"]), appendix=True)
    for name, rows in tables.items():
        report.add(rows, f"All {name}", name=f"all-{name}", keys=runs.keys[name], appendix=True)
