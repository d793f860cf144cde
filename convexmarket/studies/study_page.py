"""What a study of markets shows: statements, figures and a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
#: The columns before the measured ones.
_FIRST = "status"


def _axes_of(runs: pd.DataFrame) -> list[str]:
    """Return the axes of a table of runs: the key columns between market and draw."""
    names = list(runs.columns[1 : runs.columns.get_loc(_FIRST)])
    return [name for name in names if name != "draw"]


def _place(row: Any, names: list[str]) -> str:
    values = [f"{name} = {getattr(row, name)}" for name in names if getattr(row, name) not in ("",)]
    return f"{row.market} ({', '.join(values)})" if values else str(row.market)


def statements(tables: Mapping[str, pd.DataFrame], _facts: Mapping[str, Any]) -> list[str]:
    """Return how many markets were solved, what failed and what the audits show."""
    runs, audits = tables["runs"], tables["audits"]
    solved = runs[runs.status == "solved"]
    texts = []
    if len(solved):
        texts.append(
            f"{len(solved)} of {len(runs)} runs were solved, with a certified relative gap of at "
            f"most {solved['gap'].max():.1e}."
        )
    else:
        texts.append(f"None of {len(runs)} runs was solved.")
    names = _axes_of(runs)
    failed = runs[runs.status != "solved"]
    texts += [
        f"{_place(row, names)}: {row.status}. {row.message}" for row in failed.head(5).itertuples()
    ]
    if len(failed) > 5:
        texts.append(f"{len(failed) - 5} more runs failed; the table has their messages.")
    for verdict, rows in solved.groupby("incentives", sort=False):
        markets = ", ".join(rows.market.unique())
        texts.append(f"Truthful prices exist {verdict}: {markets}.")
    if "max_gain" in audits and len(audited := audits[audits.max_gain.notna()]):
        gain = audited.max_gain.max()
        honest = audited.incentive_compatible.astype(bool).all()
        found = "no seller gained by a misreport" if honest else f"a seller gained {gain:.3g}"
        texts.append(f"Of {len(audited)} audited markets, {found}.")
    return texts


def _coordinates(runs: pd.DataFrame) -> tuple[str, str]:
    """Return the columns of the main figure."""
    x = "payments" if runs.payments.notna().all() else "expected_payments"
    if not (runs[x].notna().any() and runs[x].abs().max() > 0):
        x = "eta"
    return x, "test_error" if "test_error" in runs else "error"


def plot(tables: Mapping[str, pd.DataFrame], ax: Any = None) -> Any:
    """Draw the error against the payments, one line or point for each market."""
    runs = tables["runs"]
    solved = runs[runs.status == "solved"]
    ax = axes(ax)
    if solved.empty:
        ax.text(0.5, 0.5, "no market was solved", ha="center", transform=ax.transAxes)
        return ax
    x, y = _coordinates(solved)
    ax.set(xlabel=_WORDS.get(x, x), ylabel=_WORDS[y])
    names = _axes_of(runs)
    for market, rows in solved.groupby("market", sort=False):
        points = rows.groupby([name for name in names if rows[name].notna().all()] or "market")
        line = points[[x, y]].mean().sort_values(x)
        ax.plot(line[x], line[y], "o-" if len(line) > 1 else "o", ms=4, label=str(market))
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


_WORDS = {
    "payments": "payments",
    "expected_payments": "expected payments",
    "eta": "total privacy η",
    "error": "error: objective without payments",
    "test_error": "test error",
}


def fill(
    report: Report,
    tables: Mapping[str, pd.DataFrame],
    facts: Mapping[str, Any],
    keys: Mapping[str, Sequence[str]],
) -> None:
    """Add statements, figures and tables to a report."""
    runs = tables["runs"]
    sentences = statements(tables, facts)
    report.headline(sentences[0])
    for text in sentences[1:]:
        report.add(escape_markdown(text))
    if (runs.status == "solved").any():
        figure = plot(tables).figure
        report.add(figure, "What each market pays, and its error", name="trade-off")
        figure = _guarantees(tables["sellers"]).figure
        report.add(figure, "What each seller sells, by its sensitivity", name="guarantees")
    if formulas := facts.get("formulas"):
        rows = [{"market": name, "problem": text} for name, text in formulas.items()]
        report.add(pd.DataFrame(rows), "The markets", name="markets", keys=["market"])
    shown = [name for name in _SHOWN if name in runs and _holds(runs[name])]
    names = keys["runs"]
    report.add(runs[[*names, *shown]], "The runs", name="runs", keys=names)
    if len(tables["audits"]):
        report.add(tables["audits"], "Audits of incentives", name="audits", keys=names)
    report.add("\n".join(f"- {text}" for text in facts["caveats"]), appendix=True)
    rest = [name for name in runs if name not in {*names, *shown}]
    report.add(runs[[*names, *rest]], "More of the runs", name="more", keys=names, appendix=True)
    for name in ("sellers", "fits"):
        if name in tables and len(tables[name]):
            caption = f"The {name}"
            report.add(tables[name], caption, name=name, keys=keys[name], appendix=True)


def _holds(column: pd.Series) -> bool:
    return bool(column.notna().any() and (column.astype(str) != "").any())


def _guarantees(sellers: pd.DataFrame) -> Any:
    """Draw the guarantees of the first run of each market against the sensitivities."""
    ax = axes(xlabel="sensitivity", ylabel="ε sold")
    for market, rows in _first_runs(sellers):
        ordered = rows.sort_values("sensitivity")
        ax.plot(ordered.sensitivity, ordered.epsilon, ".", ms=4, label=market)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _first_runs(sellers: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for market, rows in sellers.groupby("market", sort=False):
        again = np.flatnonzero(rows.id.to_numpy() == rows.id.iloc[0])
        yield str(market), rows.iloc[: again[1]] if again.size > 1 else rows
