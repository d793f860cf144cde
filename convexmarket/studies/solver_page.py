"""Statements, the matrix of times and the report of a comparison of solvers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from convexmarket.display import axes
from convexmarket.report import Report, compare, escape_markdown
from convexmarket.studies import verdicts
from convexmarket.studies.measure import EXACT

#: Labels of outcomes on a tile; other outcomes have their names as labels.
_MARKS = {
    "inaccurate": "inacc.",
    "time limit": "time",
    "memory limit": "memory",
    "crashed": "crash",
    "unsupported": "–",
}
#: Outcomes other than a time, the worst first.
_WORST = (*verdicts.COUNTED[1:], "unsupported")
_FASTEST = [*verdicts.GROUP, "size", "fastest", "seconds", "next", "ratio", "low", "high"]


def _name(solver: Any, formulation: Any) -> str:
    return str(solver) if solver == EXACT else f"{solver}, {formulation}"


def fastest(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the two fastest solvers of each class and setting at its largest size.

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
    """Return sentences on the fastest solvers, wrong answers and unsupported problems."""
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
    table, absent = runs.tables["runs"], runs.facts["absent"]
    texts, refused = [], dict[str, list[str]]()
    for solver, rows in table.groupby("solver", sort=False):
        if len(wrong := rows[rows.outcome == "wrong"]):
            texts.append(
                f"{solver}: a status that our residuals refute in {len(wrong)} of "
                f"{len(verdicts.counted(rows))} runs ({', '.join(wrong.formulation.unique())})."
            )
        unable = rows[rows.outcome == "unsupported"].groupby("problem_class", sort=False)
        kinds = (f"{kind} ({', '.join(each.formulation.unique())})" for kind, each in unable)
        if pairs := ", ".join(kinds):
            refused.setdefault(pairs, []).append(str(solver))
    texts += [f"{', '.join(names)} cannot take {pairs}." for pairs, names in refused.items()]
    return texts + ([f"Not installed: {', '.join(absent)}."] if absent else [])


def plot(runs: Any, ax: Any = None) -> Any:
    """Plot the matrix of the first class and setting."""
    return _matrix(next(iter(runs.tables["runs"].groupby(verdicts.GROUP, sort=False)))[1], ax)


def _matrix(runs: pd.DataFrame, ax: Any = None) -> Any:
    """Plot a row per solver and formulation, the exact method first, and a column per size.

    A tile holds the geometric mean of the seconds, or the worst outcome. Solvers that lack a
    formulation have no row.
    """
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    able = verdicts.counted(runs)
    able = runs if able.empty else able
    names = [_name(*pair) for pair in zip(able.solver, able.formulation, strict=True)]
    rows = sorted(set(names), key=lambda name: (name != EXACT, name))
    sizes = sorted(able["size"].unique())
    fresh, ax = ax is None, axes(ax, xlabel="size")
    if fresh:
        ax.figure.set_size_inches(2.6 + 0.8 * len(sizes), 0.9 + 0.3 * len(rows))
    times = able.total_s[able.outcome == "solved"]
    low, high = (times.min(), times.max()) if len(times) else (1.0, 1.0)
    norm = LogNorm(low, max(high, 1.01 * low))
    shades = np.full((len(rows), len(sizes)), np.nan)
    for (name, size), tile in able.groupby([pd.Series(names, able.index), "size"], sort=False):
        i, j, dark = rows.index(str(name)), sizes.index(size), False
        if worst := next((each for each in _WORST if (tile.outcome == each).any()), ""):
            count = int((tile.outcome == worst).sum())
            text = _MARKS.get(worst, worst) + (f" {count}/{len(tile)}" if count < len(tile) else "")
            colour = "#d6604d" if worst == "wrong" else "0.88"
            ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color=colour, lw=0))
        else:
            shades[i, j] = np.exp(np.log(tile.total_s).mean())
            text, dark = f"{shades[i, j]:.2g}", norm(shades[i, j]) > 0.6
        ax.text(j, i, text, ha="center", va="center", fontsize=7, color="w" if dark else "k")
    ax.imshow(shades, norm=norm, cmap="Blues", aspect="auto")
    ax.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes], fontsize=8)
    ax.set_yticks(range(len(rows)), rows, fontsize=8)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return ax


def fill(report: Report, runs: Any) -> None:
    """Add the matrices, statements and tables to a report, the first matrix on top."""
    tables, table, machine = runs.tables, runs.tables["runs"], runs.facts["machine"]
    best = fastest(table)
    ranked = best[best.fastest != ""]
    several = best.problem_class.nunique() > 1 and len(ranked)
    report.headline(_leaders(best, ranked) if several else statements(runs)[0])
    for (kind, setting), rows in table.groupby(verdicts.GROUP, sort=False):
        caption = f"Seconds or worst outcome of {kind}, setting {setting}, by solver and size"
        name = f"{kind}-{setting}".lower().replace(" ", "-")
        report.add(_matrix(rows).figure, caption, name=name, alt=caption)
    if several:
        headers = {"low": "95 % from", "high": "to"}
        caption = "The fastest solver at the largest size"
        report.add(best, caption, name="fastest", keys=verdicts.GROUP, headers=headers)
    report.add("\n".join(f"- {escape_markdown(text)}" for text in _exceptions(runs)))
    if "rates" in tables:
        rates, names = tables["rates"], [*verdicts.GROUP, "solver", "formulation"]
        doubtful = ["wrong", "inaccurate", "failed", "crashed"]
        rows = rates[rates["size"].isna() & (rates[doubtful].sum(axis=1) > 0)]
        rows = rows[[*names, "runs", "solved", *doubtful]].sort_values("wrong", ascending=False)
        report.add(rows, "Contenders with failures other than limits", name="rates", keys=names)
    pinned = "each bound to one core" if machine["pinned"] else "not bound to cores"
    where = f"{', '.join(machine['cpus'])}, {machine['system']}"
    report.add(f"{len(verdicts.counted(table)):,} runs on {where}; {pinned}.")
    report.add("\n".join(f"- {text}" for text in runs.facts["caveats"]), appendix=True)
    for name, rows in tables.items():
        report.add(rows, f"All {name}", name=f"all-{name}", keys=runs.keys[name], appendix=True)


def _leaders(best: pd.DataFrame, ranked: pd.DataFrame) -> str:
    leads = ranked.fastest.str.partition(",")[0].value_counts()
    leaders = leads.index[leads == leads.max()]
    return (
        f"At the largest size some solver solves every instance in {len(ranked)} of {len(best)} "
        f"comparisons of a class under a setting. {' and '.join(leaders)} "
        f"{'lead' if len(leaders) > 1 else 'leads'} most often ({leads.max()} times); the 95 % "
        f"interval to the next one excludes a tie in {int((best.low > 1).sum())}."
    )
