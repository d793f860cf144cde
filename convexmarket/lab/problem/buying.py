"""Buy from the people of a problem file's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from convexmarket.deal import Deal, buy
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.lab.problem.base import ProblemModel
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.problem.people import SOLD, People, ProblemWithTable, read_people
from convexmarket.lab.problem.purchase import the_one
from convexmarket.privacy.noise import RandomSource
from convexmarket.terms import GroupShare

__all__ = ["buy_from"]


def buy_from(
    problem: ProblemModel,
    *,
    gamma: float | None = None,
    budget: float | None = None,
    group: str | None = None,
    at_least: Mapping[str, float] | None = None,
    random_state: RandomSource = None,
    na_values: Sequence[str] = (),
    show_cells: bool = False,
    progress: Callable[[str], None] | None = None,
) -> tuple[Deal, People]:
    """Buy from the people of a problem file, and train the model that it describes.

    Parameters
    ----------
    problem : Problem
        Of kind "tradeoff", with data of the user's own that hold reports, and one value of each
        parameter.
    gamma, budget : float, optional
        Weight of the payments, in place of the file's, or what they are to come to.
    group : str, optional
        The column of the sellers' groups.
    at_least : mapping of str to float, optional
        The least share of the weight of some groups.
    random_state : None or Simulation, default None
        Source of the noise.
    na_values, show_cells, progress
        As for :func:`convexmarket.buy`.

    Returns
    -------
    deal : Deal
    people : People
        Of the file, the public rows among them.

    Raises
    ------
    NotSupportedError
        If nothing can be bought from the file.
    ParameterError
        If it leaves a choice.
    DataError, AllocationError
        As :func:`convexmarket.buy`.
    """
    wanted, data = problem.purchase(), getattr(problem, "data", None)
    if not isinstance(data, OwnTable):
        raise NotSupportedError(
            'data are not your own; give a problem file with data.source = "csv" or "parquet"'
            " (convexmarket init writes one)"
        )
    if data.report is None:
        raise ParameterError(
            "data.report names no column: sellers say what they ask; simulated"
            " reports are for convexmarket run"
        )
    if at_least and group is None:
        raise ParameterError("at_least is about groups: name their column, --group-column")
    if gamma is None and budget is None:
        gamma = the_one("objective.gamma", wanted.gamma, ", or --gamma or --budget")
    market = cast(ProblemWithTable, problem)
    people = read_people(market, group, na_values, show_cells)
    table = people.parts[SOLD].assign(**{data.report: people.reports})
    constraints = list(wanted.constraints)
    if group is not None:
        table[group] = people.groups
        if at_least:
            constraints.append(GroupShare(people.groups, at_least))
    told: dict[str, Any] = {} if random_state is None else {"random_state": random_state}
    deal = buy(
        table,
        ask=data.report,
        target=people.label,
        prior=market.prior,
        learner=wanted.learner,
        objective=wanted.objective,
        constraints=constraints,
        gamma=gamma,
        budget=budget,
        group=group,
        progress=progress,
        **told,
    )
    return deal, people
