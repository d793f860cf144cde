"""Reports: one folder with a self-contained page, Markdown, tables, figures and results.json.

:func:`write_report` is the door. :mod:`.model` says what a report consists of, :mod:`.render`
writes it, and each experiment has a module that turns its result into a report; registering that
function with :data:`build_report` is all a new experiment needs to do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import Any

from convexmarket.errors import ConvexMarketError, DataError, ParameterError
from convexmarket.experiments.joint_methods import JointMethodsResult
from convexmarket.experiments.joint_sweep import JointSweepResult
from convexmarket.experiments.joint_tradeoff import JointTradeoffResult
from convexmarket.experiments.online_market import OnlineMarketResult
from convexmarket.experiments.online_study import OnlineStudyResult
from convexmarket.experiments.regression_market import RegressionMarketResult
from convexmarket.experiments.release_comparison import ReleaseComparisonResult
from convexmarket.experiments.ridge import RidgeComparisonResult
from convexmarket.experiments.solver_study import SolverStudyResult
from convexmarket.experiments.tradeoff import TradeoffResult
from convexmarket.experiments.variants import VariantsResult
from convexmarket.report.diff import Diff, diff_results
from convexmarket.report.diff_report import diff_report
from convexmarket.report.joint_methods import joint_methods_report
from convexmarket.report.joint_sweep import joint_sweep_report
from convexmarket.report.joint_tradeoff import joint_tradeoff_report
from convexmarket.report.model import (
    ATTACHMENT,
    Fact,
    Figure,
    Frontier,
    Report,
    Section,
    Series,
    Table,
)
from convexmarket.report.online_market import online_market_report
from convexmarket.report.online_study import online_study_report
from convexmarket.report.regression_market import regression_market_report
from convexmarket.report.release_comparison import release_comparison_report
from convexmarket.report.render import write_folder
from convexmarket.report.results import read_results
from convexmarket.report.ridge import ridge_comparison_report
from convexmarket.report.solver_study import solver_study_report
from convexmarket.report.tradeoff import tradeoff_report
from convexmarket.report.variants import variants_report
from convexmarket.report.workshop import put_back
from convexmarket.study.journal import read_journal

__all__ = [
    "Diff",
    "Fact",
    "Figure",
    "Frontier",
    "Report",
    "Section",
    "Series",
    "Table",
    "build_report",
    "diff_report",
    "diff_results",
    "joint_methods_report",
    "joint_sweep_report",
    "joint_tradeoff_report",
    "online_market_report",
    "online_study_report",
    "read_results",
    "regression_market_report",
    "release_comparison_report",
    "rewrite_report",
    "ridge_comparison_report",
    "solver_study_report",
    "tradeoff_report",
    "variants_report",
    "write_folder",
    "write_report",
]


@singledispatch
def build_report(result: Any) -> Report:
    """Describe the result of an experiment as a report."""
    raise ParameterError(
        f"there is no report for a {type(result).__name__}; give the result of an experiment, or a "
        "Report"
    )


@build_report.register
def _(result: Report) -> Report:
    return result


build_report.register(TradeoffResult, tradeoff_report)
build_report.register(JointTradeoffResult, joint_tradeoff_report)
build_report.register(RegressionMarketResult, regression_market_report)
build_report.register(RidgeComparisonResult, ridge_comparison_report)
build_report.register(VariantsResult, variants_report)
build_report.register(JointMethodsResult, joint_methods_report)
build_report.register(JointSweepResult, joint_sweep_report)
build_report.register(OnlineMarketResult, online_market_report)
build_report.register(OnlineStudyResult, online_study_report)
build_report.register(SolverStudyResult, solver_study_report)
build_report.register(ReleaseComparisonResult, release_comparison_report)
build_report.register(Diff, diff_report)


def write_report(result: Any, out_dir: str | Path) -> Path:
    """Write the report of an experiment into a folder.

    Parameters
    ----------
    result : object
        What :func:`convexmarket.experiments.run_problem` returned, or a :class:`Report` of one's
        own making.
    out_dir : path
        The folder; an earlier report in it is replaced, all at once.

    Returns
    -------
    pathlib.Path
        The HTML page, ``out_dir/index.html``.

    Raises
    ------
    ParameterError
        If there is no report for such a result, or ``out_dir`` holds something else than a report.
    """
    return write_folder(build_report(result), out_dir)


def rewrite_report(folder: str | Path, out_dir: str | Path | None = None) -> Path:
    """Write a report again from its results, without running what gave them.

    Parameters
    ----------
    folder : path
        The folder of a report, or the ``results.json`` in it.
    out_dir : path, optional
        Where to write it; by default in its place.

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
        return write_folder(report, out_dir or source)
    except (ConvexMarketError, OSError, MemoryError):
        raise
    except Exception as error:  # the results are a stranger's: columns renamed, words for numbers
        raise DataError(
            f"{source} holds results that this version cannot show ({type(error).__name__}); run"
            " the problem again, and report it if that does not help"
        ) from error
