"""Reports of the results of problem files.

Each kind has a function that begins a report with its finding, figures and tables. What all kinds
have in common follows here: claims, certificates, audits, caveats and the problem file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from convexmarket.errors import ParameterError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.problem.base import ProblemModel
from convexmarket.lab.problem.own import OwnTable
from convexmarket.report import Report, escape_markdown

__all__ = ["claim_audits", "keys_of", "report_of"]

#: Columns that identify the rows of a table, where it has them.
KEYS = (
    *("scenario", "model", "variant", "value", "gamma", "regularization", "plan", "group"),
    *("id", "draw", "sensitivity", "quantity", "feature"),
)


def report_of(result: Any) -> Report:
    """Describe the result of a problem file as a report.

    Parameters
    ----------
    result : Result
        From :func:`convexmarket.lab.run_problem`.

    Returns
    -------
    Report

    Raises
    ------
    ParameterError
        If it is not the result of a problem file.
    """
    problem = getattr(result, "problem", None)
    if not isinstance(problem, ProblemModel):
        raise ParameterError(f"result must come from run_problem, got a {type(result).__name__}")
    settings = dict(result.provenance)
    versions, file = settings.pop("versions", {}), settings.pop("problem_file", None)
    report = Report(
        problem.title,
        settings={"problem": problem.model_dump(mode="json"), "problem file": file, **settings},
    )
    report.versions = {key: str(value) for key, value in versions.items()}
    if problem.description:
        report.add(escape_markdown(problem.description))
    data = getattr(problem, "data", None)
    if isinstance(data, OwnTable):
        report.add(_origin(data, result.provenance.get("rows", {})))
    KINDS[problem.kind].page(result, report)
    _add_tables(report, result.tables)
    _add_background(report, result)
    return report


def _origin(data: OwnTable, rows: Mapping[str, int]) -> str:
    """Return where the reports of a user's table come from, and which rows are public."""
    column, file = escape_markdown(data.report), escape_markdown(data.file)
    source = "are simulated" if data.report is None else f"are the column “{column}” of “{file}”"
    public = ", ".join(f"{number:,} for {part}" for part, number in rows.items() if part != "train")
    not_bought = f" Public rows, which are not bought: {public}." if public else ""
    return f"The reports {source}.{not_bought}"


def _add_tables(report: Report, tables: Mapping[str, pd.DataFrame]) -> None:
    """Add the tables of a result that the report does not have yet, with their keys."""
    for table, frame in tables.items():
        name = table.replace("_", "-")
        if frame.empty or name in [each.name for each in report.tables]:
            continue
        caption = table.replace("_", " ").capitalize()
        report.add(frame, caption, name=name, keys=keys_of(frame), rows=15, appendix=True)


def claim_audits(report: Report, audits: pd.DataFrame, label: str) -> None:
    """Claim that the audits found no gain from a misreport and no loss; ``label`` names markets."""
    if "max_gain" not in audits or (audits := audits.dropna(subset=["max_gain"])).empty:
        return
    audits = audits.set_index(label)
    report.claim(
        "No seller gains from any misreport",
        holds=audits.incentive_compatible.astype(bool),
        detail=f"The largest gain is {audits.max_gain.max():.1e}.",
    )
    report.claim(
        "No truthful seller loses",
        holds=audits.individually_rational.astype(bool),
        detail=f"The smallest surplus is {audits.min_surplus.min():.1e}.",
    )


def keys_of(frame: pd.DataFrame) -> Sequence[str]:
    """Return the fewest of the known key columns that identify the rows, or none."""
    known = [column for column in KEYS if column in frame]
    for end in range(1, len(known) + 1):
        if not frame.duplicated(known[:end]).any():
            return known[:end]
    return ()


def _add_background(report: Report, result: Any) -> None:
    """Add claims, certificates, caveats and what reproduces the run."""
    if result.claims:
        claims = pd.DataFrame([claim.to_dict() for claim in result.claims])
        report.add(
            claims, "What the papers claim, and the results", name="papers", rows=len(claims)
        )
    if result.certificates:
        frame = pd.DataFrame(result.certificates).drop(columns="solves", errors="ignore")
        frame = frame.dropna(axis="columns", how="all")
        if "gap" in frame:
            gap = float(pd.to_numeric(frame.gap, errors="coerce").max())
            report.add(f"The largest relative gap of a certificate is {gap:.1e}.", appendix=True)
        caption = "Certificates: objective, lower bound and relative gap of every allocation"
        report.add(frame, caption, name="certificates", keys=keys_of(frame), rows=15, appendix=True)
    problem = result.problem
    for title, points in (("Caveats", result.caveats), ("Notes", problem.notes)):
        if points:
            listed = "\n".join(f"- {escape_markdown(point)}" for point in points)
            report.add(f"## {title}\n\n{listed}", appendix=True)
    if problem.source is not None:
        fence = "`" * 8
        text = problem.source.text.replace(fence, "")
        report.add(f"## Problem file\n\n{fence}toml\n{text}\n{fence}", appendix=True)
    times = pd.DataFrame(result.timings.items(), columns=["stage", "seconds"])
    if len(times):
        report.add(times, "Seconds", name="timings", keys=["stage"], appendix=True)
