"""Reports: one folder with a self-contained page, Markdown, tables, figures and results.json.

:func:`write_report` is the door. :mod:`.model` says what a report consists of, :mod:`.render`
writes it, and the page of each kind of experiment turns its result into a report.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from convexmarket.errors import ConvexMarketError, DataError, ParameterError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.problem.base import ProblemModel
from convexmarket.lab.report.citations import with_citations
from convexmarket.lab.report.diff import Diff
from convexmarket.lab.report.diff_report import diff_report
from convexmarket.lab.report.model import ATTACHMENT, Report
from convexmarket.lab.report.render import Format, write_folder
from convexmarket.lab.report.results import read_results
from convexmarket.lab.report.workshop import put_back
from convexmarket.studies.journal import read_journal

__all__ = ["build_report", "rewrite_report", "write_report"]


def build_report(result: Any) -> Report:
    """Describe the result of an experiment, or a comparison of two, as a report."""
    if isinstance(result, Report):
        return result
    if isinstance(result, Diff):
        return diff_report(result)
    problem = getattr(result, "problem", None)
    if not isinstance(problem, ProblemModel):
        raise ParameterError(
            f"there is no report for a {type(result).__name__}; give the result of an experiment,"
            " or a Report"
        )
    return with_citations(KINDS[problem.kind].page(result))


def write_report(result: Any, out_dir: str | Path, formats: Collection[Format] = ()) -> Path:
    """Write the report of an experiment into a folder.

    Parameters
    ----------
    result : object
        What :func:`convexmarket.lab.run_problem` returned, or a :class:`Report` of one's
        own making.
    out_dir : path
        The folder; an earlier report in it is replaced, all at once.
    formats : collection of {"csv", "tex", "svg", "pdf"}
        What to write besides the page, Markdown, PNG figures and ``results.json``.

    Returns
    -------
    pathlib.Path
        The HTML page, ``out_dir/index.html``.

    Raises
    ------
    ParameterError
        If there is no report for such a result, or ``out_dir`` holds something else than a report.
    """
    return write_folder(build_report(result), out_dir, formats)


def rewrite_report(
    folder: str | Path, out_dir: str | Path | None = None, formats: Collection[Format] = ()
) -> Path:
    """Write a report again from its results, without running what gave them.

    Parameters
    ----------
    folder : path
        The folder of a report, or the ``results.json`` in it.
    out_dir : path, optional
        Where to write it; by default in its place.
    formats : collection of {"csv", "tex", "svg", "pdf"}
        As for :func:`write_report`.

    Returns
    -------
    pathlib.Path
        The HTML page. For the same version of the package the files are the same, byte by byte.

    Raises
    ------
    DataError, NotSupportedError
        If the results cannot be read; see :func:`read_results`.
    ParameterError
        If ``out_dir`` holds something else than a report, or a study's journal is a symbolic link.
    """
    put_back(Path(folder).resolve())
    result = read_results(folder)
    source = Path(folder) if Path(folder).is_dir() else Path(folder).parent
    attached = {
        path.name: read_journal(path)
        for path in sorted(source.iterdir())
        if ATTACHMENT.fullmatch(path.name)
    }
    try:
        report = replace(build_report(result), attachments=attached)
        return write_folder(report, out_dir or source, formats)
    except (ConvexMarketError, OSError, MemoryError):
        raise
    except Exception as error:  # the results are a stranger's: columns renamed, words for numbers
        raise DataError(
            f"{source} holds results that this version cannot show ({type(error).__name__}); run"
            " the problem again, and report it if that does not help"
        ) from error
