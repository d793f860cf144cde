"""Statements, figure and report of a study of markets."""

from __future__ import annotations

from typing import Any

import pandas as pd

from convexmarket.display import axes
from convexmarket.report import Report, escape_markdown, format_number

#: Columns of the main table of a report. Empty columns are omitted.
_SHOWN = ["status", "error", "payments", "expected_payments", "eta", "n_bought", "epsilon_max"]
_SHOWN += ["test_error", "objective", "gap"]
_WORDS = {"eta": "total privacy η", "error": "error: objective without payments"}
#: Largest number of failed runs that the statements describe.
_NAMED = 5


def _axes(runs: Any) -> list[str]:
    return [name for name in runs.keys["runs"] if name not in ("market", "draw")]


def statements(runs: Any) -> list[str]:
    """Describe the solved and failed runs, and the results of the audits, in sentences."""
    table, audits = runs.tables["runs"], runs.tables["audits"]
    solved, failed = table[table.status == "solved"], table[table.status != "solved"]
    largest = f", with a relative gap of at most {solved['gap'].max():.1e}" if len(solved) else ""
    texts = [f"{len(solved)} of {len(table)} runs were solved{largest}."]
    for row in failed.head(_NAMED).to_dict("records"):
        at = "".join(f", {name} = {row[name]}" for name in _axes(runs) if row[name] != "")
        texts.append(f"{row['market']}{at}: {row['status']}. {row['message']}")
    if len(failed) > _NAMED:
        texts.append(f"{len(failed) - _NAMED} more runs failed; see the table of runs.")
    for verdict, names in solved.groupby("incentives", sort=False).market.unique().items():
        texts.append(f"Truthful prices exist {verdict}: {', '.join(names)}.")
    if "max_gain" in audits and len(audited := audits[audits.max_gain.notna()]):
        honest = audited.incentive_compatible.astype(bool).all()
        gain = f"a seller gained {audited.max_gain.max():.3g}"
        result = "no seller gained by a misreport" if honest else gain
        texts.append(f"Of {len(audited)} audited markets, {result}.")
    return texts


def plot(runs: Any, ax: Any = None) -> Any:
    """Plot the error against the payments, with a line or a point for each market."""
    solved, ax = runs.tables["runs"].query("status == 'solved'"), axes(ax)
    if solved.empty:
        ax.text(0.5, 0.5, "no market was solved", ha="center", transform=ax.transAxes)
        return ax
    x = "payments" if solved.payments.notna().all() else "expected_payments"
    x = x if solved[x].abs().max() > 0 else "eta"
    y = "test_error" if "test_error" in solved else "error"
    xlabel, ylabel = (_WORDS.get(name, name.replace("_", " ")) for name in (x, y))
    ax.set(xlabel=xlabel, ylabel=ylabel)
    for market, rows in solved.groupby("market", sort=False):
        names = [name for name in _axes(runs) if rows[name].notna().all()]
        line = rows.groupby(names or "market")[[x, y]].mean().sort_values(x)
        ax.plot(line[x], line[y], "o-" if len(line) > 1 else "o", ms=4, label=str(market))
    return with_legend(ax)


def with_legend(ax: Any) -> Any:
    """Add a legend without a frame."""
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def fill(report: Report, runs: Any) -> None:
    """Add statements, figures and tables to a report."""
    table, names = runs.tables["runs"], list(runs.keys["runs"])
    first, *others = statements(runs)
    report.headline(first)
    for text in others:
        report.add(escape_markdown(text))
    report.add(plot(runs).figure, "Payments and error of each market", name="trade-off")
    shown = table[[*names, *(name for name in _SHOWN if name in table)]]
    report.add(shown.dropna(axis=1, how="all"), "The runs", name="overview", keys=names)
    if formulas := runs.facts.get("formulas"):
        problems = pd.DataFrame({"market": formulas.keys(), "problem": formulas.values()})
        report.add(problems, "The markets", name="markets", keys=["market"])
    finish(report, runs)


def finish(report: Report, runs: Any) -> None:
    """Add the verdicts of the audits, the caveats and all tables to a report."""
    audits: Any = runs.tables.get("audits", pd.DataFrame())
    audits = audits.dropna(subset=["max_gain"]) if "max_gain" in audits else audits[:0]
    if len(audits):
        audits = audits.set_index([k for k in runs.keys["audits"] if k not in ("model", "value")])
        report.claim(
            "No seller gains from any misreport",
            holds=audits.incentive_compatible.astype(bool),
            detail=f"The largest gain is {audits.max_gain.max():.1e}.",
        )
        report.claim(
            "No truthful seller loses",
            holds=audits.individually_rational.astype(bool),
            detail=f"The smallest surplus is {format_number(audits.min_surplus.min())}.",
        )
    caveats = "\n".join(f"- {escape_markdown(text)}" for text in runs.facts["caveats"])
    report.add(caveats, appendix=True)
    for name, table in runs.tables.items():
        if len(table):
            caption, stem = name.replace("_", " ").capitalize(), name.replace("_", "-")
            report.add(table, caption, name=stem, keys=runs.keys[name], appendix=True)
