"""The common job in one call: from a table of people to offers, a model and their guarantees."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype

from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.result import Allocation
from convexmarket.arguments import check_positive, shown
from convexmarket.data.columns import feature_columns
from convexmarket.data.csv_cells import write_csv
from convexmarket.data.tables import read_table
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.incentives.audit import IncentiveAudit, audit_incentives
from convexmarket.incentives.calibration import calibrate_gamma
from convexmarket.incentives.rules import payments
from convexmarket.learners.protocol import Learner, unfitted
from convexmarket.learners.saved import saved_model
from convexmarket.market import Incentives, Market
from convexmarket.notebook import Shown, axes
from convexmarket.privacy.accountant import PrivacyAccountant
from convexmarket.privacy.noise import RandomSource
from convexmarket.sellers import PriorOrPriors, Sellers
from convexmarket.terms import Constraint, Noise, Objective, Payments, Spread, Term
from convexmarket.writing import Content, write_together

__all__ = ["Deal", "buy", "price"]

Floats = NDArray[np.float64]

#: In per cent; a gap up to here is left to the certificate.
_SLIGHT = 1e-6
#: Markets that a budget is averaged over: what is paid differs from the budget by 1.02 times what
#: it would if there were infinitely many, as their average adds a 25th to its variance.
DRAWS = 25


@dataclass(frozen=True, eq=False)
class Deal(Shown):
    """What a buyer offers each seller, what proves it, and the model that was trained with it.

    Attributes
    ----------
    offers : DataFrame
        One row per seller, in the order and with the index of the table: ``ask`` (what it reported
        per unit of epsilon), ``epsilon`` (privacy bought, in nats), ``weight`` of its row,
        ``payment``, and ``surplus``, which is payment minus reported cost. Private, as reports are.
    market : Market
    allocation : Allocation
    model : Learner or None
        Trained under what was bought; None where only prices were asked for.
    account : PrivacyAccountant or None
        What each seller sold, and what of it the model has spent.
    """

    offers: pd.DataFrame
    market: Market
    allocation: Allocation
    model: Any = None
    account: PrivacyAccountant | None = None

    @property
    def certificate(self) -> dict[str, Any]:
        """What proves that nothing cheaper does: :meth:`Allocation.certificate`."""
        return self.allocation.certificate()

    @property
    def incentives(self) -> Incentives:
        """Whether truth is each seller's best reply, and why: :attr:`Market.incentives`."""
        return self.market.incentives

    def audit(self, **options: Any) -> IncentiveAudit:
        """Return what misreports would have gained: :func:`~convexmarket.audit_incentives`.

        Parameters
        ----------
        **options
            Of ``audit_incentives``.
        """
        return audit_incentives(self.market, **options)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the offers."""
        return self.offers.copy()

    def plot(self, ax: Any = None) -> Any:
        """Draw payment and epsilon against what sellers asked.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw the payments; epsilon has an axis of its own on the right.

        Returns
        -------
        matplotlib Axes
        """
        ax = axes(ax, xlabel="ask, per unit of epsilon", ylabel="payment")
        ordered = self.offers.sort_values("ask")
        right = ax.twinx()
        right.margins(y=0.4)  # both fall alike, and would hide each other
        (epsilon,) = right.plot(ordered["ask"], ordered["epsilon"], "o", ms=4, color="tab:orange")
        (paid,) = ax.plot(ordered["ask"], ordered["payment"], "o", ms=4, color="tab:blue")
        ax.set(ylim=(0, None))
        right.set(ylabel="epsilon bought", ylim=(0, None))
        ax.legend([paid, epsilon], ["payment", "epsilon"], loc="upper right")
        return ax

    def statements(self) -> list[str]:
        """Return in words what was bought, what proves it, and what the model promises."""
        bought, gap = self.offers["epsilon"] > 0, 100.0 * self.allocation.gap
        more = f" by more than {gap:.1g} %" if gap > _SLIGHT else ""
        said = [
            f"{np.count_nonzero(bought)} of {len(bought)} sellers sell, for"
            f" {self.offers['payment'].sum():.6g} in all, and lose at most"
            f" {self.offers['epsilon'].max():.4g} of epsilon each.",
            f"No purchase is better for the buyer{more}; that is proven.",
            f"Truth is each seller's best reply, {self.incentives}: {self.incentives.reason}.",
        ]
        if self.model is not None:
            said.append(self.model.guarantee_.statement())
        return said

    def report(self, folder: str | PathLike[str]) -> Path:
        """Write what was bought, what proves it and the model into a folder.

        Parameters
        ----------
        folder : path
            Made if there is none. In it ``deal.md``, with :meth:`statements`; ``offers.csv``, one
            offer for each seller; ``certificate.json``; and ``model.json``, for
            :func:`load_model`. Only their owner may read them. A model that cannot be saved is
            left out, and ``deal.md`` says so.

        Returns
        -------
        pathlib.Path
            Of ``deal.md``.

        Raises
        ------
        DataError
            If they cannot be written; then whatever was there before still is.
        """
        place = Path(folder)
        page = place / "deal.md"
        offers = self.offers.reset_index(names=str(self.offers.index.name or "id"))
        said = ["# What was bought", *self.statements()]
        said.append(
            "`offers.csv` and this page hold what sellers reported and were offered: private."
        )
        contents: dict[Path, Content] = {
            place / "offers.csv": lambda file: write_csv(offers, file),
            place / "certificate.json": (json.dumps(self.certificate, indent=2) + "\n").encode(),
        }
        if self.model is not None:
            try:
                contents[place / "model.json"] = saved_model(self.model, place / "model.json")
            except NotSupportedError as error:  # of a user's own, which knows how it is kept
                said.append(f"The model is not written here: {error}")
        contents[page] = ("\n\n".join(said) + "\n").encode()
        write_together(contents, private=True)
        return page

    def __repr__(self) -> str:
        return f"<Deal: {' '.join(self.statements()[:2])}>"

    def __str__(self) -> str:
        return "\n".join(self.statements())


def price(
    table: Any,
    *,
    ask: str,
    prior: PriorOrPriors,
    objective: Objective | Term,
    constraints: Iterable[Constraint] = (),
    gamma: float | None = None,
    budget: float | None = None,
    id: str | None = None,
    group: str | None = None,
) -> Deal:
    """Make every seller of a table an offer.

    Parameters
    ----------
    table : DataFrame, table of Polars or pyarrow, or path of a CSV or Parquet file
        One row per seller.
    ask : str
        The column of reported costs per unit of epsilon, in a currency.
    prior : Prior, or mapping from group to Prior
        The distribution that costs are drawn from: common knowledge, fixed before the reports.
    objective : Objective or Term
        What the buyer minimises, such as ``1.0 * Spread() + 100 * Noise()``: besides payments if
        ``gamma`` or ``budget`` is given, and payments included if not.
    constraints : iterable of Constraint
        Such as ``[Cap(5), MaxEpsilon(2)]``.
    gamma : float, optional
        Weight of the payments.
    budget : float, optional
        In its place, what payments are to come to, on average over the prior
        (:func:`~convexmarket.calibrate_gamma`): no report decides the weight, so that truth is a
        best reply.
    id : str, optional
        The column of the sellers' names; the table's index by default.
    group : str, optional
        The column of their groups.

    Returns
    -------
    Deal
        Without a model.

    Raises
    ------
    DataError, SellersError, PriorError
        If the table or a report does not fit.
    ParameterError, CurvatureError
        If the market cannot be declared.
    AllocationError
        If it has no optimum, or none was found.

    Examples
    --------
    >>> import convexmarket as cm
    >>> asks = pd.DataFrame({"ask": [0.1, 0.6]}, index=["Ann", "Bob"])
    >>> wanted = cm.Spread() + cm.Noise()
    >>> deal = cm.price(asks, ask="ask", prior=cm.Uniform(0, 1), objective=wanted, gamma=0.5)
    >>> deal.offers.round(3)
         ask  epsilon  weight  payment  surplus
    Ann  0.1    3.162     1.0    1.142    0.826
    Bob  0.6    0.000     0.0    0.000    0.000
    """
    return _offers(
        _people(table, id),
        ask,
        prior,
        objective,
        constraints,
        gamma=gamma,
        budget=budget,
        group=group,
    )


def buy(
    table: Any,
    *,
    ask: str,
    target: str,
    prior: PriorOrPriors,
    learner: Learner,
    objective: Objective | Term | None = None,
    constraints: Iterable[Constraint] = (),
    gamma: float | None = None,
    budget: float | None = None,
    id: str | None = None,
    group: str | None = None,
    random_state: RandomSource = None,
) -> Deal:
    """Make every seller of a table an offer, and train a model under what was bought.

    Parameters
    ----------
    table : DataFrame, table of Polars or pyarrow, or path of a CSV or Parquet file
        One row per seller.
    ask, prior, constraints, gamma, budget, id, group
        As for :func:`price`.
    target : str
        The column of labels.
    learner : Learner
        Such as ``PrivateLogisticRegression(features=PublicFeatures(...))``. One without
        ``features`` gets the columns that are neither label nor about the sale, as they are. It is
        copied, not changed.
    objective : Objective or Term, optional
        As for :func:`price`; by default ``mu * Spread() + sigma * Noise()``, as the learner's
        ``risk`` says.
    random_state : None or Simulation, default None
        Source of the learner's noise.

    Returns
    -------
    Deal

    Raises
    ------
    DataError, SellersError, PriorError, ParameterError, CurvatureError, AllocationError
        As :func:`price`, and as the learner's ``fit``. Nothing was charged then, unless the fit
        itself failed.

    Examples
    --------
    >>> import convexmarket as cm
    >>> from convexmarket.privacy import Simulation
    >>> rng = np.random.default_rng(0)
    >>> patients = pd.DataFrame({"age": rng.uniform(18, 100, 500), "ask": rng.uniform(0, 1, 500)})
    >>> patients["ill"] = np.where(patients["age"] > 60, 1, -1)
    >>> learner = cm.PrivateLogisticRegression(features=cm.PublicFeatures({"age": (18, 100)}))
    >>> deal = cm.buy(patients, ask="ask", target="ill", prior=cm.Uniform(0, 1), learner=learner,
    ...               budget=5.0, random_state=Simulation(0))
    >>> deal.incentives, bool((deal.model.epsilon_ <= deal.offers["epsilon"]).all())
    ('by construction', True)
    """
    if isinstance(learner, type) or not hasattr(learner, "risk"):
        raise ParameterError(
            f"learner is {shown(learner)}; pass one that keeps what was bought, such as"
            " PrivateLogisticRegression(...)"
        )
    people = _people(table, id)
    X, y = _rows(people, learner, target, report=ask, id=id, group=group)
    if objective is None:
        features = getattr(learner, "features", None)
        mu, sigma = learner.risk(X.shape[1] if features is None else features.n_features_out_)
        objective = mu * Spread() + sigma * Noise()
    deal = _offers(
        people, ask, prior, objective, constraints, gamma=gamma, budget=budget, group=group
    )
    sold = deal.allocation.epsilon
    source: dict[str, Any] = {} if random_state is None else {"random_state": random_state}
    model = unfitted(learner).fit(X, y, epsilon=sold, **source)
    promised = model.guarantee_
    account = PrivacyAccountant(
        sold, promised.delta, composition="basic", ids=[str(name) for name in people.index]
    )
    account.charge(promised)
    return replace(deal, model=model, account=account)


def _offers(
    people: pd.DataFrame,
    ask: str,
    prior: PriorOrPriors,
    objective: Objective | Term,
    constraints: Iterable[Constraint],
    *,
    gamma: float | None,
    budget: float | None,
    group: str | None,
) -> Deal:
    """Return a deal without a model."""
    groups = None if group is None else _column(people, group, "group")
    sellers = Sellers(_column(people, ask, "ask"), prior, groups=groups)
    constraints = tuple(constraints)
    if gamma is not None and budget is not None:
        raise ParameterError("give gamma or budget, not both: the budget decides gamma")
    if gamma is not None:
        objective = objective + check_positive("gamma", gamma) * Payments()
    elif budget is not None:
        count = len(people)
        found = calibrate_gamma(
            budget, prior, count, objective, constraints, groups=groups, draws=DRAWS
        )
        objective = found.objective
    market = Market(sellers, objective, constraints)
    if all(term.privacy_cost is None for term in market.terms):
        raise ParameterError(
            "nothing says how much payments weigh; give gamma, or budget, or an objective with "
            "payments, such as ... + 0.01 * Payments()"
        )
    allocation = allocate(market)
    paid = payments(market, allocation)
    asks, epsilon = np.asarray(sellers.sensitivities), allocation.epsilon
    columns = {
        "ask": asks,
        "epsilon": epsilon,
        "weight": allocation.weights,
        "payment": paid,
        "surplus": paid - asks * np.asarray(market.privacy_cost(epsilon)),
    }
    return Deal(pd.DataFrame(columns, index=people.index), market, allocation)


def _people(table: Any, id: str | None) -> pd.DataFrame:
    """Return one row per seller, by the name that it has."""
    people = read_table(table)
    if people.empty:
        raise DataError("the table has no rows: there is nobody to buy from")
    if id is None:
        return people
    return people.set_index(pd.Index(_column(people, id, "id")), drop=False)


def _column(people: pd.DataFrame, name: str, argument: str) -> pd.Series[Any]:
    if name not in people.columns:
        known = ", ".join(map(repr, people.columns))
        raise DataError(f"{argument} is {name!r}, and the table has no such column; it has {known}")
    column = people[name]
    empty = column.isna().to_numpy(dtype=bool)
    if empty.any():
        raise DataError(
            f"row {int(np.argmax(empty))} has no {name!r} ({argument}), nor have "
            f"{np.count_nonzero(empty) - 1} other rows; leave them out"
        )
    return column


def _rows(
    people: pd.DataFrame, learner: Learner, target: str, **roles: str | None
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return what the learner is trained on; nothing that is about the sale is among it."""
    labels = _column(people, target, "target")
    features = getattr(learner, "features", None)
    declared = None if features is None else list(features.columns)
    columns, _ = feature_columns(list(people.columns), target, declared, **roles)
    if features is not None:
        return people, labels
    rows = people[list(columns)]
    fit = [is_numeric_dtype(rows[name]) and not rows[name].isna().any() for name in columns]
    if hasattr(learner, "features") and not all(fit):
        raise DataError(
            f"column {columns[fit.index(False)]!r} holds words or empty cells: say what is public"
            " of the features, features=PublicFeatures({...}) of the learner"
        )
    return rows, labels
