"""The statements, the figure and the report of each kind of :class:`~convexmarket.Runs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from convexmarket.report import Report
from convexmarket.studies import online_page, solver_page, study_page

__all__ = ["PAGES", "Page"]

Tables = Mapping[str, pd.DataFrame]
Facts = Mapping[str, Any]
Keys = Mapping[str, Sequence[str]]


class Page(NamedTuple):
    """Three functions of the tables and the facts of a study."""

    statements: Callable[[Tables, Facts], list[str]]
    plot: Callable[[Tables, Any], Any]
    fill: Callable[[Report, Tables, Facts, Keys], None]


#: By kind of runs.
PAGES: dict[str, Page] = {
    "study": Page(study_page.statements, study_page.plot, study_page.fill),
    "online": Page(online_page.statements, online_page.plot, online_page.fill),
    "solvers": Page(solver_page.statements, solver_page.plot, solver_page.fill),
}
