"""Statements, figure and report of a study of markets."""

from __future__ import annotations

from typing import Any

import pandas as pd

from convexmarket.display import axes
from convexmarket.report import Report, escape_markdown, format_number

#: Columns of the main table of a report. Empty columns are omitted.
_SHOWN = ["solved", "error", "payments", "expected_payments", "eta", "n_bought", "epsilon_max"]
_SHOWN += ["test_error", "objective", "gap"]
_WORDS = {"eta": "total privacy η", "error": "error: objective without payments"}
_HONEST = "No tested misreport is profitable"
#: Largest number of kinds of failures that the statements describe.
_NAMED = 5


def _axes(runs: Any) -> list[str]:
    return [name for name in runs.keys["runs"] if name not in ("market", "draw")]


def statements(runs: Any) -> list[str]:
    """Describe the solved and failed runs, and the results of the audits, in sentences."""
    table = runs.tables["runs"]
    solved, failed = table[table.status == "solved"], table[table.status != "solved"]
    largest = f", with a relative gap of at most {solved['gap'].max():.1e}" if len(solved) else ""
    texts = [f"{len(solved)} of {len(table)} runs were solved{largest}."]
    failures = list(failed.groupby(["market", "status", "message"], sort=False, dropna=False))
    for (market, status, message), rows in failures[:_NAMED]:
        values = {name: {*rows[name].dropna()} - {""} for name in _axes(runs)}
        at = "".join(f", {name} = {min(x)}" for name, x in values.items() if len(x) == 1)
        count = f"{len(rows)} of {(table.market == market).sum()} runs"
        texts.append(f"{market}{at}: {status} in {count}. {message}")
    if rest := sum(len(rows) for _, rows in failures[_NAMED:]):
        texts.append(f"{rest} more runs failed; see the table of runs.")
    for verdict, names in solved.groupby("incentives", sort=False).market.unique().items():
        known = str(verdict).replace("by", "guaranteed by")
        texts.append(f"The existence of truthful prices is {known}: {', '.join(names)}.")
    if "test_error" in table and (constant := runs.facts.get("constant_error")) is not None:
        count = f"the models of {(table.test_error >= constant).sum()} of {len(table)} runs"
        texts.append(f"The best constant has test error {constant:.4g}; {count} are no better.")
    audits, coverage = _audited(runs)
    if len(audits):
        honest = audits.incentive_compatible.astype(bool).all()
        gain = f"A tested misreport gains {audits.max_gain.max():.3g}."
        texts.append(f"{_HONEST + '.' if honest else gain} {coverage}")
    return texts


def _audited(runs: Any) -> tuple[Any, str]:
    """Return the completed audits, and a sentence with the numbers of markets and sellers."""
    audits: Any = runs.tables.get("audits", pd.DataFrame())
    audits = audits.dropna(subset=["max_gain"]) if "max_gain" in audits else audits[:0]
    if audits.empty:
        return audits, ""
    what, count, rest = "plans" if "plan" in audits else "markets", f"{len(audits):,}", "."
    if runs.keys["audits"] == runs.keys.get("runs") and len(audits) < len(runs.tables["runs"]):
        count += f" of {len(runs.tables['runs']):,}"
        rest = "; the others were not audited."
    most = audits.sellers_audited.max()
    return audits, f"Audited {what}: {count}, with up to {most:,.0f} sellers each{rest}"


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
    table, names = runs.tables["runs"], ["market", *_axes(runs)]
    first, *others = statements(runs)
    report.headline(first)
    for text in others:
        report.add(escape_markdown(text))
    report.add(plot(runs).figure, "Mean payments and error of each market", name="trade-off")
    table = table.assign(solved=table.status == "solved")
    shown = table.groupby(names, sort=False, dropna=False)[[x for x in _SHOWN if x in table]].mean()
    caption = "Means over the runs (solved: share of runs; error: objective without payments)"
    report.add(shown.dropna(axis=1, how="all"), caption, name="overview")
    if formulas := runs.facts.get("formulas"):
        problems = pd.DataFrame({"market": formulas.keys(), "problem": formulas.values()})
        report.add(problems, "The markets", name="markets", keys=["market"])
    finish(report, runs)


def finish(report: Report, runs: Any) -> None:
    """Add the verdicts of the audits, the caveats and all tables to a report."""
    audits, coverage = _audited(runs)
    if len(audits):
        audits = audits.set_index([k for k in runs.keys["audits"] if k not in ("model", "value")])
        gain = f"The largest gain is {audits.max_gain.max():.1e}. {coverage}"
        report.claim(_HONEST, holds=audits.incentive_compatible.astype(bool), detail=gain)
        surplus = f"The smallest surplus is {format_number(audits.min_surplus.min())}. {coverage}"
        rational = audits.individually_rational.astype(bool)
        report.claim("No audited seller loses by a truthful report", holds=rational, detail=surplus)
    caveats = "\n".join(f"- {escape_markdown(text)}" for text in runs.facts["caveats"])
    report.add(caveats, appendix=True)
    for name, table in runs.tables.items():
        if len(table):
            caption, stem = name.replace("_", " ").capitalize(), name.replace("_", "-")
            shown = table.drop(columns="reason", errors="ignore")
            report.add(shown, caption, name=stem, keys=runs.keys[name], appendix=True)
        for reason, rows in table.groupby("reason", sort=False) if "reason" in table else ():
            text = f"({', '.join(rows.market.unique())}): {rows.incentives.iloc[0]}; {reason}."
            report.add(escape_markdown(f"Existence of truthful prices {text}"), appendix=True)
