"""Statements, the matrix of times and the report of a comparison of solvers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.display import axes
from convexmarket.report import Report, compare, escape_markdown
from convexmarket.studies.measure import EXACT
from convexmarket.studies.verdicts import counted, seconds, shifted_geometric_mean, wide

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
_APPENDIX = {
    "runs": "The runs",
    "references": "The references",
    "means": "Times by size",
    "rates": "Outcomes by size",
    "profiles": "Performance profiles",
}

Tables = Mapping[str, pd.DataFrame]


def _name(solver: Any, formulation: Any) -> str:
    return str(solver) if solver == EXACT else f"{solver}, {formulation}"


def fastest(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest solver of each class and setting at its largest size, and the next.

    Only solvers that solve every instance compete, by the shifted geometric mean of their times.
    ``ratio`` is the geometric mean of the next one's time to the fastest one's on the same
    instances, ``low`` and ``high`` the ends of its 95 % interval; missing where there is none.
    """
    rows = []
    for (kind, setting), group in counted(runs).groupby(["problem_class", "setting"], sort=False):
        size = group["size"].max()
        group = group[(group["size"] == size) & (group.solver != EXACT)]
        row = {"problem_class": kind, "setting": setting, "size": size, "fastest": "", "next": ""}
        times = wide(group, seconds(group))
        solved = times[times.columns[np.isfinite(times.to_numpy()).all(axis=0)]]
        order = shifted_geometric_mean(solved).sort_values()
        row |= {"seconds": order.iloc[0] if len(order) else np.nan}
        row |= {
            place: _name(*order.index[k])
            for k, place in enumerate(("fastest", "next")[: len(order)])
        }
        row |= dict.fromkeys(("ratio", "low", "high"), np.nan)
        if len(order) > 1:
            best, second = (np.log(solved[contender]) for contender in order.index[:2])
            ratio = compare(second, best)
            row |= {"ratio": np.exp(ratio.estimate)}
            if np.isfinite(ratio.high):
                row |= {"low": np.exp(ratio.low), "high": np.exp(ratio.high)}
        if len(group):
            rows.append(row)
    names = [
        "problem_class",
        "setting",
        "size",
        "fastest",
        "seconds",
        "next",
        "ratio",
        "low",
        "high",
    ]
    return pd.DataFrame(rows, columns=names)


def statements(tables: Tables, facts: Mapping[str, Any]) -> list[str]:
    """Return the fastest of each class, wrong answers, and solvers that cannot take a problem."""
    runs = tables["runs"]
    texts = [_sentence(row) for row in fastest(runs).itertuples()]
    return (texts + _exceptions(runs, facts)) or ["No run ended."]


def _sentence(row: Any) -> str:
    place = f"{row.problem_class}, setting {row.setting}, size {row.size:,}"
    if not row.fastest:
        return f"{place}: no solver solves every instance."
    text = f"{place}: {row.fastest} is the fastest solver with {row.seconds:.2g} s"
    if not row.next:
        return f"{text}; no other solves every instance."
    interval = "" if np.isnan(row.high) else f" (95 % interval {row.low:.2g} to {row.high:.2g})"
    return f"{text}; {row.next} takes {row.ratio:.2g} times as long{interval}."


def _exceptions(runs: pd.DataFrame, facts: Mapping[str, Any]) -> list[str]:
    """Return sentences on wrong answers, unsupported problems and absent solvers."""
    texts = []
    wrong, unable = runs[runs.outcome == "wrong"], runs[runs.outcome == "unsupported"]
    for solver, rows in wrong.groupby("solver", sort=False):
        texts.append(
            f"{solver}: a status that our residuals refute in {len(rows)} of "
            f"{(counted(runs).solver == solver).sum()} runs "
            f"({', '.join(rows.formulation.unique())})."
        )
    refused: dict[str, list[str]] = {}
    for solver, rows in unable.groupby("solver", sort=False):
        kinds = rows.groupby("problem_class", sort=False).formulation.unique()
        pairs = ", ".join(f"{kind} ({', '.join(names)})" for kind, names in kinds.items())
        refused.setdefault(pairs, []).append(str(solver))
    texts += [f"{', '.join(names)} cannot take {pairs}." for pairs, names in refused.items()]
    if facts["absent"]:
        texts.append(f"Not installed: {', '.join(facts['absent'])}.")
    return texts


def plot(
    tables: Tables,
    ax: Any = None,
    *,
    problem_class: str | None = None,
    setting: str | None = None,
) -> Any:
    """Draw the matrix of one class and setting, the first by default.

    There is a row per solver and formulation, the exact method first, and a column per size. A tile
    holds the geometric mean of the seconds, or the worst outcome. Solvers that cannot take a
    formulation have no row.
    """
    runs = tables["runs"]
    runs = runs[runs.problem_class == (problem_class or runs.problem_class.iloc[0])]
    runs = runs[runs.setting == (setting or runs.setting.iloc[0])]
    runs = counted(runs) if len(counted(runs)) else runs
    runs = runs.assign(
        row=[_name(*pair) for pair in zip(runs.solver, runs.formulation, strict=True)]
    )
    order = sorted(runs.row.unique(), key=lambda name: (name != EXACT, name))
    return _tiles(runs, "row", order, "size", sorted(runs["size"].unique()), ax)


def _overview(runs: pd.DataFrame) -> Any:
    """Draw a matrix of the solvers in their first formulation by class, at the largest sizes."""
    able = counted(runs)
    able = able[able["size"] == able.groupby("problem_class")["size"].transform("max")]
    able = able[able.setting == able.setting.iloc[0]]
    times = seconds(able).groupby([able.problem_class, able.solver, able.formulation]).mean()
    best = times.groupby(level=[0, 1]).idxmin()
    places = list(zip(able.problem_class, able.solver, able.formulation, strict=True))
    able = able[[place in set(best) for place in places]]
    order = sorted(able.solver.unique(), key=lambda name: (name != EXACT, name))
    return _tiles(able, "problem_class", list(able.problem_class.unique()), "solver", order, None)


def _tiles(runs: pd.DataFrame, y: str, rows: list[Any], x: str, columns: list[Any], ax: Any) -> Any:
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    names = [f"{name:,}" if x == "size" else str(name) for name in columns]
    if ax is None:
        from matplotlib import pyplot as plt

        size = (2.6 + 0.8 * len(columns), 0.9 + 0.3 * len(rows))
        _, ax = plt.subplots(figsize=size, layout="constrained")
    ax = axes(ax)
    times = runs.total_s[runs.outcome == "solved"]
    low, high = (times.min(), times.max()) if len(times) else (1.0, 1.0)
    norm = LogNorm(low, max(high, 1.01 * low))
    shades = np.full((len(rows), len(columns)), np.nan)
    for place, tile in runs.groupby([y, x], sort=False):
        i, j = rows.index(place[0]), columns.index(place[1])
        text, shades[i, j], colour = _tile(tile)
        if colour is not None:
            ax.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, color=colour, lw=0))
        dark = np.isfinite(shades[i, j]) and norm(shades[i, j]) > 0.6
        ax.text(j, i, text, ha="center", va="center", fontsize=7, color="w" if dark else "k")
    ax.imshow(shades, norm=norm, cmap="Blues", aspect="auto")
    ax.set_xticks(range(len(columns)), names, fontsize=8)
    ax.set_yticks(range(len(rows)), rows, fontsize=8)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(x)
    return ax


def _tile(rows: pd.DataFrame) -> tuple[str, float, str | None]:
    """Return text, seconds and colour of the runs of one tile."""
    for outcome, mark in _MARKS.items():  # the worst first
        if count := int((rows.outcome == outcome).sum()):
            more = f" {count}/{len(rows)}" if count < len(rows) else ""
            return mark + more, np.nan, _RED if outcome == "wrong" else _GREY
    mean = float(np.exp(np.log(rows.total_s).mean()))
    return f"{mean:.2g}", mean, None


def fill(
    report: Report,
    tables: Tables,
    facts: Mapping[str, Any],
    keys: Mapping[str, Sequence[str]],
) -> None:
    """Add the matrices, statements and tables to a report; the matrix leads."""
    runs, best = tables["runs"], fastest(tables["runs"])
    groups = dict.fromkeys(zip(runs.problem_class, runs.setting, strict=True))
    exceptions = _exceptions(runs, facts)
    if best.problem_class.nunique() > 1 and (best.fastest != "").any():
        ranked = best[best.fastest != ""]
        leads = ranked.fastest.str.partition(",")[0].value_counts()
        leaders = " and ".join(leads.index[leads == leads.max()])
        verb = "lead" if " and " in leaders else "leads"
        report.headline(
            f"At the largest size some solver solves every instance in {len(ranked)} of "
            f"{len(best)} comparisons of a class under a setting. {leaders} {verb} most "
            f"often ({leads.max()} times); the 95 % interval to the next one excludes a tie in "
            f"{int((best.low > 1).sum())}."
        )
        alt = "Seconds or worst outcome by class and solver, each in its fastest formulation"
        report.add(_overview(runs).figure, f"{alt}, at the largest size", name="overview", alt=alt)
        report.add(
            best,
            "The fastest solver at the largest size",
            name="fastest",
            keys=["problem_class", "setting"],
            headers={"low": "95 % from", "high": "to"},
        )
    else:
        report.headline(statements(tables, facts)[0])
    for kind, setting in groups:
        ax = plot(tables, problem_class=kind, setting=setting)
        name = f"{kind}-{setting}".lower().replace(" ", "-")
        caption = f"Seconds of {kind}, setting {setting}"
        alt = f"{caption}, by solver and size, or the worst outcome"
        report.add(ax.figure, caption, name=name, alt=alt, appendix=len(groups) > 2)
    report.add("\n".join(f"- {escape_markdown(text)}" for text in exceptions))
    if "rates" in tables:
        rates = tables["rates"]
        doubtful = ["wrong", "inaccurate", "failed", "crashed"]
        rows = rates[rates["size"].isna() & (rates[doubtful].sum(axis=1) > 0)]
        names = [*keys["rates"][:2], "solver", "formulation"]
        rows = rows[[*names, "runs", "solved", *doubtful]].sort_values("wrong", ascending=False)
        report.add(rows, "Contenders with failures other than limits", name="rates", keys=names)
    machine = facts["machine"]
    report.add(
        f"{len(counted(runs)):,} runs on {', '.join(machine['cpus'])}, {machine['system']}; "
        f"{'each bound to one core' if machine['pinned'] else 'not bound to cores'}."
    )
    report.add("\n".join(f"- {text}" for text in facts["caveats"]), appendix=True)
    for name, caption in _APPENDIX.items():
        if name in tables:
            report.add(tables[name], caption, name=f"all-{name}", keys=keys[name], appendix=True)
