"""Statements, figures and the report of a study of markets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.display import axes
from convexmarket.report import Report, escape_markdown

__all__ = ["fill", "plot", "statements"]

#: Columns of the main table on a page, where they hold something.
_SHOWN = (
    "status",
    "error",
    "payments",
    "expected_payments",
    "eta",
    "n_bought",
    "epsilon_max",
    "test_error",
    "objective",
    "gap",
)
_WORDS = {
    "payments": "payments",
    "expected_payments": "expected payments",
    "eta": "total privacy η",
    "error": "error: objective without payments",
    "test_error": "test error",
}
#: Failed runs that the statements name.
_NAMED = 5

Tables = Mapping[str, pd.DataFrame]


def _axes_of(runs: pd.DataFrame) -> list[str]:
    """Return the axes of a study: the key columns between market and status, but draw."""
    names = list(runs.columns[1 : runs.columns.get_loc("status")])
    return [name for name in names if name != "draw"]


def statements(tables: Tables, _facts: Mapping[str, Any]) -> list[str]:
    """Describe the numbers of solved and failed markets, and the audits."""
    runs, audits = tables["runs"], tables["audits"]
    solved, failed = runs[runs.status == "solved"], runs[runs.status != "solved"]
    texts = [f"None of {len(runs)} runs was solved."]
    if len(solved):
        texts = [
            f"{len(solved)} of {len(runs)} runs were solved, with a certified relative gap of at "
            f"most {solved['gap'].max():.1e}."
        ]
    names = _axes_of(runs)
    for row in failed.head(_NAMED).to_dict("records"):
        place = ", ".join(f"{name} = {row[name]}" for name in names if row[name] != "")
        place = f"{row['market']} ({place})" if place else row["market"]
        texts.append(f"{place}: {row['status']}. {row['message']}")
    if len(failed) > _NAMED:
        texts.append(f"{len(failed) - _NAMED} more runs failed; the table has their messages.")
    for verdict, rows in solved.groupby("incentives", sort=False):
        texts.append(f"Truthful prices exist {verdict}: {', '.join(rows.market.unique())}.")
    if "max_gain" in audits and len(audited := audits[audits.max_gain.notna()]):
        honest = audited.incentive_compatible.astype(bool).all()
        gain = f"a seller gained {audited.max_gain.max():.3g}"
        result = "no seller gained by a misreport" if honest else gain
        texts.append(f"Of {len(audited)} audited markets, {result}.")
    return texts


def plot(tables: Tables, ax: Any = None) -> Any:
    """Draw the error against the payments, one line or point for each market."""
    runs = tables["runs"]
    solved = runs[runs.status == "solved"]
    ax = axes(ax)
    if solved.empty:
        ax.text(0.5, 0.5, "no market was solved", ha="center", transform=ax.transAxes)
        return ax
    x = "payments" if solved.payments.notna().all() else "expected_payments"
    if not (solved[x].notna().any() and solved[x].abs().max() > 0):
        x = "eta"
    y = "test_error" if "test_error" in solved else "error"
    ax.set(xlabel=_WORDS[x], ylabel=_WORDS[y])
    names = _axes_of(solved)
    for market, rows in solved.groupby("market", sort=False):
        points = rows.groupby([name for name in names if rows[name].notna().all()] or "market")
        line = points[[x, y]].mean().sort_values(x)
        ax.plot(line[x], line[y], "o-" if len(line) > 1 else "o", ms=4, label=str(market))
    return _with_legend(ax)


def _with_legend(ax: Any) -> Any:
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _guarantees(sellers: pd.DataFrame) -> Any:
    """Draw the guarantees of the first run of each market against the sensitivities."""
    ax = axes(xlabel="sensitivity", ylabel="ε sold")
    for market, rows in sellers.groupby("market", sort=False):
        again = np.flatnonzero(rows.id.to_numpy() == rows.id.iloc[0])
        first = rows.iloc[: again[1]] if again.size > 1 else rows
        ordered = first.sort_values("sensitivity")
        ax.plot(ordered.sensitivity, ordered.epsilon, ".", ms=4, label=str(market))
    return _with_legend(ax)


def fill(
    report: Report,
    tables: Tables,
    facts: Mapping[str, Any],
    keys: Mapping[str, Sequence[str]],
) -> None:
    """Add statements, figures and tables to a report."""
    runs, names = tables["runs"], keys["runs"]
    sentences = statements(tables, facts)
    report.headline(sentences[0])
    for text in sentences[1:]:
        report.add(escape_markdown(text))
    if (runs.status == "solved").any():
        report.add(plot(tables).figure, "Payments and error of each market", name="trade-off")
        figure = _guarantees(tables["sellers"]).figure
        report.add(figure, "Guarantees sold by sensitivity", name="guarantees")
    filled = [name for name in _SHOWN if name in runs and _holds(runs[name])]
    report.add(runs[[*names, *filled]], "The runs", name="runs", keys=names)
    if len(tables["audits"]):
        report.add(tables["audits"], "Audits of incentives", name="audits", keys=names)
    if formulas := facts.get("formulas"):
        rows = [{"market": name, "problem": text} for name, text in formulas.items()]
        report.add(pd.DataFrame(rows), "The markets", name="markets", keys=["market"])
    report.add("\n".join(f"- {text}" for text in facts["caveats"]), appendix=True)
    rest = [name for name in runs if name not in {*names, *filled}]
    report.add(runs[[*names, *rest]], "More of the runs", name="more", keys=names, appendix=True)
    for name in ("sellers", "fits"):
        if name in tables and len(tables[name]):
            caption = f"The {name}"
            report.add(tables[name], caption, name=name, keys=keys[name], appendix=True)


def _holds(column: pd.Series) -> bool:
    return bool(column.notna().any() and (column.astype(str) != "").any())
