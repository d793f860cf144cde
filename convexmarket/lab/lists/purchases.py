"""From a problem file about people of a table to what is sold, and to the books."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from convexmarket.deal import Deal, buy
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.lab.lists.people import SOLD, People, ProblemWithTable, read_people
from convexmarket.lab.lists.reading import digest
from convexmarket.lab.problem.base import ProblemModel
from convexmarket.lab.problem.own import OwnTable
from convexmarket.lab.problem.purchase import the_one
from convexmarket.ledger import Ledger
from convexmarket.privacy.noise import RandomSource
from convexmarket.terms import GroupShare

__all__ = ["Sale", "buy_from"]


@dataclass(frozen=True, eq=False)
class Sale:
    """What was bought from the people of a problem file.

    Attributes
    ----------
    deal : Deal
    people : People
    table : path
        The file that they stand in.
    """

    deal: Deal
    people: People
    table: Path

    @property
    def public_score(self) -> float:
        """Accuracy, or R², of the model on the public rows of the test."""
        test = self.people.parts["test"]
        return float(self.deal.model.score(test, test[self.people.label]))

    @property
    def common_score(self) -> float:
        """What an answer that is always the same has at best there."""
        labels = self.people.parts["test"][self.people.label]
        return 0.0 if self.people.classes is None else labels.value_counts(normalize=True).max()

    def record(self, ledger: Ledger, *, again: bool = False) -> int:
        """Write down who sold what, and charge the model to it.

        Parameters
        ----------
        ledger : Ledger
        again : bool, default False
            Whether the very same table may have been bought from before.

        Returns
        -------
        int
            How many sold.

        Raises
        ------
        DataError
            If it is a market's ledger, or the table was recorded before.
        """
        if ledger.of_market:
            raise DataError(
                f"{ledger.path} is an online market's, which writes its own sales; give another"
            )
        offers = self.deal.offers
        ids = [str(seller) for seller in offers.index]
        source = None if again else f"sha256:{digest(self.table)}"
        sold = ledger.sell(ids, offers["epsilon"], offers["payment"].to_numpy(), source=source)
        ledger.account(ids).charge(self.deal.model.guarantee_)
        return sold


def buy_from(
    problem: ProblemModel,
    *,
    gamma: float | None = None,
    budget: float | None = None,
    group: str | None = None,
    at_least: Mapping[str, float] | None = None,
    random_state: RandomSource = None,
) -> Sale:
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

    Returns
    -------
    Sale

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
    people = read_people(market, group)
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
        **told,
    )
    return Sale(deal, people, problem.file(data.file))
