"""What the reports of several experiments have in common: certificates, audits, provenance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.problem.base import ProblemModel
from convexmarket.lab.problem.declared import ReportsTable
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.report.model import Listing, Section, Table, in_markdown
from convexmarket.lab.report.words import count, format_number, listing

__all__ = [
    "INCENTIVES",
    "METHOD_WORDS",
    "audit_section",
    "audit_words",
    "certificate_section",
    "gap_words",
    "own_data_words",
    "promise_words",
    "reports_words",
    "reproduction",
    "reproduction_section",
    "select",
    "settings_table",
    "short",
]

WEAK_EPSILON = 5.0  # beyond it, exp(epsilon) > 148: a promise in form more than in substance

METHOD_WORDS = {
    "exact": (
        "The exact method compares every stationary point over η, in closed form; the lower bound "
        "is the value of the dual problem at the η it chose, so the gap measures rounding."
    ),
    "projections": (
        "The search with projections evaluates the market exactly at a few η, without a solver. "
        "Each evaluation gives a lower bound at every η, and the search ends when nothing better "
        "is left between."
    ),
    "line_search": (
        "The search's lower bound holds at every η and needs no trust in the solver: a wrong "
        "answer of the solver widens the gap, and cannot hide in it."
    ),
    "branch_and_bound": (
        "Branch and bound solves the market at a few η. Each solve gives a lower bound at every η, "
        "with no trust in the solver, and the search ends when nothing better is left between."
    ),
}
INCENTIVES = (
    "Incentives: truth is each seller's best reply, alone, when the prior of sensitivities is "
    "common knowledge and correct, μ, σ and γ were fixed before any report, the allocation is a "
    "global optimum (see the certificate), and sellers can misstate their sensitivity but not "
    "their data or their labels. Sellers who agree to lie together may gain."
)


def short(value: float) -> str:
    """Write a number with three significant digits."""
    return format_number(value, digits=3)


def select(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Return the rows that have these values."""
    kept = np.ones(len(frame), dtype=bool)
    for column, value in values.items():
        kept &= frame[column].to_numpy() == value
    return frame[kept]


def promise_words(epsilon: float) -> str:
    """Say what a guarantee of epsilon promises, and that a large one promises little."""
    factor = format_number(math.exp(epsilon)) if epsilon < 700 else "∞"
    text = (
        "exchanging that seller's row changes the probability of any released model by at most a "
        f"factor exp({short(epsilon)}) = {factor}, on the assumptions listed below."
    )
    if epsilon > WEAK_EPSILON:
        text += (
            " A factor as large as that is a weak promise: it holds, but it would not keep an "
            "observer of the model from guessing the row."
        )
    return text


def gap_words(largest: float, where: str = "at every γ") -> str:
    """Say how far from optimal the allocations can be; ``largest`` is the largest relative gap."""
    return (
        "Every allocation of the mechanism carries a lower bound on what any allocation could "
        f"reach; the objective is within {format_number(largest, digits=2)} (relative) of it, "
        f"{where}."
    )


def reports_words(sellers: Iterable[ReportsTable]) -> str:
    """Say what reports a page's first sentence is about: simulated ones, or those of a file."""
    tables = list(dict.fromkeys(sellers))
    files = list(dict.fromkeys(f"“{table.file}”" for table in tables if table.file is not None))
    said = [f"the sellers' own reports of {listing(files)}"] if files else []
    sources = [one for table in tables for one in table.groups or (table,)]
    if any(one.count is not None for one in sources):
        said.append("simulated reports")
    return f"With {listing(said)}: " if said else ""


def own_data_words(problem: ProblemModel, provenance: Mapping[str, Any]) -> tuple[str, ...]:
    """Say, of a file of the user's own, whose reports these are and which rows are public.

    Nothing where the data are no file of the user's own.
    """
    data = getattr(problem, "data", None)
    if not isinstance(data, OwnTable):
        return ()
    file, rows = f"“{data.file}”", provenance["rows"]
    if data.report is None:
        reports = (
            f"Simulated reports: data.report names none in {file}, so they are drawn from the "
            "prior, and who sells and for how much is a simulation."
        )
    else:
        reports = f"The reports are the sellers' own, of the column “{data.report}” of {file}."
    parts = [*data.public_shares, *data.public_files]
    public = listing([f"{count(rows[part], 'row')} for {_USES[part]}" for part in parts])
    files = listing([f"“{name}”" for name in data.public_files.values()])
    origin = f"of {files}" if files else "drawn from it by the seed of the run"
    return (
        f"{reports} {public}, {origin}, are public: they are not bought, and no guarantee covers "
        "them.",
        "The errors on this page are those of many models of the rows that are bought, so that no "
        "guarantee covers the page: keep it as private as the rows.",
    )


_USES = {"validation": "choosing parameters", "test": "the test"}


def audit_words(audits: pd.DataFrame, largest_payment: float) -> str:
    """Say whether lying pays and whether taking part costs, in any of the markets."""
    gain, surplus = (
        _up_to_rounding(float(money), largest_payment)
        for money in (audits.max_gain.max(), audits.min_surplus.min())
    )
    gained = f"the largest gain of any seller audited from any misreport is {gain}"
    if bool(audits.incentive_compatible.all()):
        truth = f"The audit of each market finds nothing to gain from lying alone: {gained}"
    else:
        truth = f"The audit finds a market where lying pays: {gained}"
    if bool(audits.individually_rational.all()):
        loss = f"no seller audited loses by taking part: the smallest surplus is {surplus}"
    else:
        loss = f"taking part can cost a seller: the smallest surplus is {surplus}"
    return f"{truth}; {loss}."


def _up_to_rounding(money: float, largest_payment: float) -> str:
    """Write an amount; next to nothing, compared with what is paid, is nothing."""
    if 0 < abs(money) < 1e-12 * largest_payment:
        return "zero up to rounding"
    return format_number(money, digits=2)


def certificate_section(
    certificates: Sequence[Mapping[str, Any]],
    largest_gap: float,
    key: Sequence[str],
    headers: Mapping[str, str],
) -> Section:
    """Say what certifies the allocations; ``key`` are the columns that tell them apart."""
    methods = sorted({str(entry["method"]) for entry in certificates})
    prose = [
        " ".join([gap_words(largest_gap), *(METHOD_WORDS.get(name, "") for name in methods)]),
        "Optimality is more than tidiness here. The payments make truth the best reply of "
        "each seller alone only if the allocation is the global optimum for every report; a local "
        "optimum would price the same data differently and reward lying.",
    ]
    table = Table(
        "certificates",
        "Objective, lower bound and relative gap of every allocation.",
        _certificates(certificates, key),
        headers,
        {"objective": ".6g", "lower_bound": ".6g"},
    )
    return Section("The certificate", tuple(text.strip() for text in prose), tables=(table,))


def _certificates(certificates: Sequence[Mapping[str, Any]], key: Sequence[str]) -> pd.DataFrame:
    """List the certificates without what none of them has, and without the log of the search."""
    frame = pd.DataFrame([dict(entry) for entry in certificates]).drop(
        columns=["solves", "seconds"], errors="ignore"
    )
    frame = frame.dropna(axis="columns", how="all")
    if "binding" in frame:
        frame["binding"] = [listing(bounds) or None for bounds in frame.binding]
    return frame[[*key, *(name for name in frame if name not in key)]]


def audit_section(
    audits: pd.DataFrame, largest_payment: float, headers: Mapping[str, str]
) -> Section:
    """Say what the audits of incentives found."""
    gains = {"max_gain": "largest gain from a misreport", "min_surplus": "smallest surplus"}
    return Section(
        "The audit of incentives",
        (
            audit_words(audits, largest_payment),
            "The audit takes one seller at a time, solves the market again at each of many "
            "misreports, with all others truthful, and compares what the seller would earn with "
            "what it earns by the truth. Of a large market it takes a random sample of the "
            "sellers; the table says how many. It checks reports and nothing else; what pairs gain "
            "who lie together is not in it.",
        ),
        tables=(
            Table(
                "audits",
                "Largest gain of any seller alone from any misreport, and smallest surplus of any "
                "seller who tells the truth.",
                audits,
                {**headers, **gains},
            ),
        ),
    )


def reproduction_section(
    problem: ProblemModel, provenance: Mapping[str, Any], timings: Mapping[str, float]
) -> Section:
    """List what determines a run: the problem file to the letter, seeds and versions."""
    notes = " The problem file notes:" if problem.notes else ""
    told = (
        "The run is determined by the problem file, its seeds and the versions below; "
        "results.json holds them together with everything shown here. Timings vary from run "
        f"to run.{notes}"
    )
    return Section(
        "How to reproduce this",
        body=(*in_markdown([told], problem.notes), *reproduction(problem, provenance, timings)),
    )


def reproduction(
    problem: ProblemModel, provenance: Mapping[str, Any], timings: Mapping[str, float]
) -> tuple[Listing, Table, Table]:
    """Return the problem file, and the tables ``provenance`` and ``timings``."""
    source = problem.source
    if source is None:
        listing = Listing("The problem, as JSON", problem.model_dump_json(indent=1))
    else:
        changed = f", run with {', '.join(source.overrides)}" if source.overrides else ""
        listing = Listing(f"The problem file{changed}", source.text)
    return (
        listing,
        settings_table("provenance", "Seeds, versions and machine.", provenance),
        settings_table("timings", "Seconds spent.", timings),
    )


def settings_table(name: str, caption: str, settings: Mapping[str, Any]) -> Table:
    """Write nested settings as one row for each key path, without the text of problem files."""
    rows = [row for row in _flatten(settings) if not row[0].endswith("file.text")]
    frame = pd.DataFrame(rows, columns=["key", "value"]).astype({"value": object})
    return Table(name, caption, frame, rows_shown=100)


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in settings.items():
        path = f"{prefix}{key}"
        if isinstance(value, list | tuple) and any(isinstance(item, Mapping) for item in value):
            value = dict(enumerate(value, start=1))
        if isinstance(value, Mapping):
            rows += _flatten(value, f"{path}.")
        elif isinstance(value, list | tuple):
            rows.append((path, ", ".join(str(item) for item in value) or None))
        else:
            rows.append((path, value))
    return rows
