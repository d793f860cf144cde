"""Which figures the report of a solver study has, and what each panel of them shows."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.solver_study import figures
from convexmarket.lab.kinds.solver_study.figures import Panel
from convexmarket.lab.kinds.solver_study.run import SolverStudyResult
from convexmarket.lab.kinds.solver_study.words import ranked, settings
from convexmarket.lab.report.model import Figure
from convexmarket.lab.report.parts import select
from convexmarket.lab.study.measure import EXACT
from convexmarket.lab.study.metrics import CONTENDER, counted, seconds

__all__ = ["growth_figure", "profile_figure", "split_figure"]

_MOST_LINES = 8


def _solvers(result: SolverStudyResult) -> list[str]:
    """Return the solvers in one order for all figures, so that each keeps its colour."""
    ran = set(counted(result.runs).solver)
    order = dict.fromkeys([*result.problem.study.solvers, *sorted(ran)])
    solvers = [name for name in order if name in ran and name != EXACT]
    return [*solvers, EXACT] if EXACT in ran else solvers


def _file_name(result: SolverStudyResult, figure: str, setting: str) -> str:
    """Name the file of a figure by its setting, also where two settings differ in capitals only."""
    slugs = [re.sub(r"[^a-z0-9]+", "-", name.lower()) for name in settings(result)]
    place = settings(result).index(setting)
    number = f"-{place + 1}" if slugs.count(slugs[place]) > 1 else ""
    return f"{figure}-{slugs[place]}{number}"


def _panels(result: SolverStudyResult, setting: str, numbers: pd.DataFrame) -> list[Panel]:
    """Return a panel for each class that has numbers, by contender: the fastest of all first.

    It shows the best formulation of every solver, then the next best.
    """
    panels = []
    for name, runs in select(counted(result.runs), setting=setting).groupby(
        "problem_class", sort=False
    ):
        rows = select(numbers, problem_class=name, setting=setting)
        table = ranked(result, str(name), setting)[CONTENDER].merge(
            rows[CONTENDER].drop_duplicates()
        )
        again = table.duplicated("solver")
        shown = pd.concat([table[~again], table[again]]).head(_MOST_LINES).sort_index()
        if len(shown):
            contenders = [(str(row.solver), str(row.formulation)) for row in shown.itertuples()]
            limit, tolerance = float(runs.time_limit_s.max()), float(runs.tolerance.max())
            drawn = rows.merge(shown)
            panels.append(Panel(str(name), contenders, drawn, limit, tolerance))
    return panels


def profile_figure(result: SolverStudyResult, setting: str, of: str) -> Figure | None:
    """Return the profiles of time or of accuracy, one panel per class."""
    solvers = _solvers(result)
    panels = _panels(result, setting, select(result.profiles, of=of))
    if not panels:
        return None
    if of == "time":
        solvers = [name for name in solvers if name != EXACT]
        says = (
            f"Performance profiles of time, setting “{setting}”: the share of the instances that a "
            "contender solves within so many times the time of the fastest solver on each. What to "
            "see: high at the left is fast, high at the right is reliable; a curve that stays "
            "below 100% does not solve all."
        )
        draw = partial(figures.time_profiles, panels, solvers)
    else:
        says = (
            f"Accuracy, setting “{setting}”: the share of the instances that are answered with at "
            "most this relative error, whatever the solver says of its answer. What to see: a "
            "curve that rises to the right of the dashed tolerance has answers that are not what "
            "was asked for."
        )
        draw = partial(figures.accuracy_profiles, panels, solvers)
    return Figure(
        _file_name(result, f"{of}-profile", setting),
        f"{says} Colours tell solvers apart, dashes formulations; of each solver the best "
        f"formulation, then the next best, up to {_MOST_LINES} lines.",
        draw,
        f"Step curves of {of}, one panel per problem class. The table overview has means.",
        figures.solver_series(solvers),
    )


def growth_figure(result: SolverStudyResult, setting: str) -> Figure:
    """Return time over size, one panel per class."""
    runs = counted(result.runs)
    times = seconds(runs)
    runs = runs.assign(log=np.log(times.where(np.isfinite(times))), missed=~np.isfinite(times))
    groups = runs.groupby(["problem_class", "setting", *CONTENDER, "size"], sort=False)
    numbers = groups.agg(log=("log", "mean"), missed=("missed", "sum")).reset_index()
    panels = _panels(result, setting, numbers.assign(seconds=np.exp(numbers.log)))
    return Figure(
        _file_name(result, "growth", setting),
        f"Time of a first solve over the size, setting “{setting}”, both on log scales: geometric "
        "means of the solved runs. What to see: a steeper line is overtaken at some size. A cross "
        "on the dashed line, the time limit, stands where some run did not solve, for whatever "
        "reason.",
        partial(figures.time_over_size, panels, _solvers(result)),
        "Lines of time over size, one panel per problem class. The table exponents has slopes.",
        figures.solver_series(_solvers(result)),
    )


def split_figure(result: SolverStudyResult) -> Figure | None:
    """Draw the split of the first setting, with the best formulation of each solver that solves."""
    setting = settings(result)[0]
    means = result.means[result.means["size"].isna() & result.means.solver_share.notna()]
    best = means.sort_values("total_s", kind="stable")
    best = best.drop_duplicates(["problem_class", "setting", "solver"])
    panels = _panels(result, setting, best)
    if not panels:
        return None
    return Figure(
        "split",
        f"What the time of a first solve is spent on, setting “{setting}”, in percent, with the "
        "best formulation of each solver. What to see: where the solver's own part is small, "
        "another solver hardly changes the total, and a formulation that compiles faster does.",
        partial(figures.split_bars, panels),
        "Stacked bars, one per contender. The numbers are in the table split.",
    )
