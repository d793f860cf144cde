"""The report of a problem file."""

from __future__ import annotations

from convexmarket.report import Report, escape_markdown
from convexmarket.report.results import plain
from convexmarket.studies.files.file_tables import ProblemFile
from convexmarket.studies.runs import Runs

__all__ = ["report_of"]


def report_of(problem: ProblemFile, runs: Runs) -> Report:
    """Return the report of runs with the words of the problem file.

    The text and the values of the file are stored in the report's settings.
    """
    report = problem.report(runs)
    report.question = " ".join(problem.description.split())
    for note in problem.notes:
        report.add(escape_markdown(note), appendix=True)
    if (source := problem.source) is not None:
        report.settings["problem"] = plain(source.table)
        report.settings["problem file"] = {
            "path": source.path,
            "text": source.text,
            "overrides": list(source.overrides),
        }
    return report
