"""Offers to the sellers of a table, a certificate, and a model trained on the rows."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_numeric_dtype, is_string_dtype
from sklearn.base import RegressorMixin

from convexmarket import checks
from convexmarket.allocation.choose_method import allocate
from convexmarket.data.columns import REPORT_NAMES, feature_columns
from convexmarket.data.csv_cells import write_csv
from convexmarket.data.csv_rows import numbers_in
from convexmarket.data.features import PublicFeatures
from convexmarket.data.lists import blame, blank, checked_list, column_named, digest, read_list
from convexmarket.data.tables import read_rows, read_table
from convexmarket.display import Shown
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.incentives.audit import IncentiveAudit, audit_incentives
from convexmarket.incentives.calibration import calibrate_gamma
from convexmarket.incentives.rules import payments
from convexmarket.io import Content, write_together
from convexmarket.learners.private_learner import Learner, unfitted
from convexmarket.learners.saved import saved_model
from convexmarket.learners.worth import default_learner, expected_error, model_errors
from convexmarket.ledger import Ledger
from convexmarket.ledger.seals import source_of
from convexmarket.market import Incentives, Market, as_objective, checked_constraints
from convexmarket.priors.prior import Prior, as_prior
from convexmarket.privacy.accountant import PrivacyAccountant
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.random_sources import RandomSource
from convexmarket.sellers import PriorOrPriors, Sellers
from convexmarket.terms import Constraint, GroupShare, Noise, Objective, Payments, Spread, Term

Floats = NDArray[np.float64]
Progress = Callable[[str], None]

#: Number of draws for a budget, solves for each payment, and shortest announced time (seconds).
_DRAWS, _SOLVES_PER_PAYMENT, _LONG = 25, 1.5, 10.0
_DEPENDENCIES = "numpy scipy pandas scikit-learn cvxpy clarabel ecos highspy osqp scs"
_TERMS_OF_SALE = (
    "Every payment is at least the seller's reported cost of its epsilon.",
    "The objective, the constraints and the prior must be fixed before the reports are read."
    " Sellers who coordinate their reports can gain together.",
    "epsilon is the guarantee sold for a model trained with these weights and with eta, the sum of"
    " all epsilons. The learner reports the total guarantee, including the part for its noise.",
)
_PRIVATE = "`offers.csv` and this page are private, because they contain reports and offers."


@dataclass(frozen=True, eq=False)
class Deal(Shown):
    """Offers to sellers, a certificate of the offers, and a model trained on the sold rows.

    Attributes
    ----------
    offers : DataFrame
        One row per seller, with the index of the table. The columns are ``ask`` (reported cost per
        unit of epsilon), ``epsilon`` (privacy bought, in nats), ``weight``, ``payment`` and
        ``surplus`` (payment minus reported cost). The table is private.
    market, allocation : Market, Allocation or PartedAllocation
    model, account : Learner, PrivacyAccountant
        The model of :func:`buy`, and the account of the privacy that each seller sold and spent.
    expected_error : float or None
        Standard deviation of the effect of the noise on a prediction (see ``noise_effect``).
    test_errors : dict or None
        Errors of the ``"model"`` and of the best ``"constant"`` on public test rows, as root mean
        squared error or share of wrong labels.
    budget, source : float or None, dict
        Budget that determined the weight of payments, and name and SHA-256 of the table's file.

    Examples
    --------
    >>> import pandas as pd
    >>> import convexmarket as cm
    >>> table = pd.DataFrame({'ask': [0.1, 0.2, 0.4]}, index=['ann', 'bob', 'eve'])
    >>> objective = cm.Spread() + cm.Noise()
    >>> deal = cm.price(table, prior=cm.Uniform(0, 1), objective=objective, budget=2.0)
    >>> deal.to_frame()[['epsilon', 'payment']].round(2)
         epsilon  payment
    ann     1.79     0.91
    bob     1.49     0.80
    eve     0.89     0.50
    """

    offers: Any
    market: Market
    allocation: Any
    model: Any = None
    account: PrivacyAccountant | None = None
    expected_error: float | None = None
    test_errors: dict[str, float] | None = None
    budget: float | None = None
    source: dict[str, str | None] = field(default_factory=lambda: {"file": None, "sha256": None})

    @property
    def certificate(self) -> dict[str, Any]:
        """The certificate of optimality; see :meth:`Allocation.certificate`."""
        return self.allocation.certificate()

    @property
    def incentives(self) -> Incentives:
        """Whether truthful reports are optimal for each seller; see :attr:`Market.incentives`."""
        return self.market.incentives

    @cached_property
    def totals(self) -> dict[str, float]:
        """Totals of the offers. ``expected_payments`` estimates average payments over the prior."""
        sold = np.asarray(self.market.privacy_cost(self.offers["epsilon"].to_numpy()))
        return totals_of(self.offers, self.market.sellers.virtual_costs, sold)

    def audit(self, **options: Any) -> IncentiveAudit:
        """Audit misreports with the options of :func:`~convexmarket.audit_incentives`."""
        return audit_incentives(self.market, **{"allocation": self.allocation} | options)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the offers."""
        return self.offers.copy()

    def plot(self, axes: Any = None) -> Any:
        """Plot epsilon and payment against the asks, in two Matplotlib Axes."""
        if axes is None:
            from matplotlib import pyplot as plt

            _, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), sharex=True, layout="constrained")
        titles = {"epsilon": "Privacy bought (epsilon)", "payment": "Payment"}
        for panel, (name, title) in zip(axes, titles.items(), strict=True):
            panel.plot(self.offers["ask"], self.offers[name], "o", ms=4)
            panel.set(xlabel="ask, per unit of epsilon", ylim=(0, None), title=title)
        return axes

    def statements(self) -> list[str]:
        """Return sentences about the purchase, its optimality, and the guarantee of the model."""
        totals, gap = self.totals, 100.0 * self.allocation.gap
        more = f" by more than {gap:.1g} %" if gap > 1e-6 else ""
        texts = [
            f"{totals['sellers_bought_from']} of {totals['sellers']} sellers sell privacy"
            f" for {totals['payments']:.6g} in total. The largest epsilon sold is"
            f" {totals['largest_epsilon']:.4g}.",
            f"The certificate proves that no purchase is better for the buyer{more}.",
            f"Truth is each seller's best reply, {self.incentives}: {self.incentives.reason}.",
        ]
        if self.expected_error is not None:
            size = f"The noise adds a standard deviation of about {self.expected_error:.3g}"
            texts.append(f"{size} to a prediction, computed from public numbers.")
        if self.test_errors is not None:
            errors = "On the public test rows, the error is {model:.4g}; that of the best constant"
            texts.append(f"{errors} prediction is {{constant:.4g}}.".format(**self.test_errors))
        if self.model is not None:
            texts.append(self.model.guarantee_.statement())
            if not type(self.model).__module__.startswith("convexmarket."):
                texts.append(
                    "This guarantee is declared by the user's learner and was not audited. Use"
                    " convexmarket.audit_privacy to test this guarantee."
                )
        return texts

    def to_dict(self, audit: IncentiveAudit | None = None) -> dict[str, Any]:
        """Convert the certificate of the offers and an audit to plain values for JSON."""
        texts = [*self.statements(), *_TERMS_OF_SALE]
        if self.budget is not None:
            texts.append(
                "The weight of the payments depends only on the budget, the prior and the number "
                f"of sellers: payments amount to {self.budget:g} on average over the prior, not "
                "in each market."
            )
        return {
            "statements": texts,
            "optimality": self.certificate,
            "totals": self.totals,
            "audit": None if audit is None else audit.summary(),
            "objective": repr(self.market.objective),
            "constraints": [str(constraint) for constraint in self.market.constraints],
            "budget": self.budget,
            "priors": [prior.to_dict() for prior in self.market.sellers.priors],
            "input": self.source,
            "versions": versions(),
        }

    def write(
        self, path: str | PathLike[str], *, audit: IncentiveAudit | None = None, force: bool = False
    ) -> tuple[Path, ...]:
        """Write the offers and a JSON certificate atomically. Only the owner can read the files.

        Parameters
        ----------
        path : path
            File of the offers that ends in .csv or .parquet. The certificate of ``offers.csv`` is
            ``offers.certificate.json``. Other paths are folders for ``offers.csv``,
            ``certificate.json``, ``deal.md`` with :meth:`statements`, and ``model.json`` if
            :func:`save_model` accepts the model.
        audit, force : IncentiveAudit, bool, default False
            An audit to add to the certificate, and whether to replace existing files.

        Raises
        ------
        ParameterError
            If a file exists or has another ending. If a DataError is raised, no file was written.
        """
        place, certificate = Path(path), json_of(self.to_dict(audit))
        offers: Content = partial(write_csv, table := self.offers.reset_index(names="id"))
        if place.suffix and not place.is_dir():
            if place.suffix == ".parquet":
                offers = table.to_parquet(index=False)
            contents = {place: offers, certificate_of(place): certificate}
        else:
            page = "\n\n".join(["# What was bought", *self.statements(), _PRIVATE])
            contents = {place / "offers.csv": offers, place / "certificate.json": certificate}
            try:
                if self.model is not None:
                    contents[place / "model.json"] = saved_model(self.model)
            except NotSupportedError as error:  # the learner is user-defined
                page += f"\n\nThe model is not written here: {error}"
            contents[place / "deal.md"] = f"{page}\n".encode()
        write_together(contents, private=True, force=force)
        return tuple(contents)

    def record(self, ledger: Ledger, source: str | None = None, *, again: bool = False) -> int:
        """Record the sales in a ledger, charge the model, and return the number of sales.

        Raises
        ------
        DataError
            If the ledger belongs to a market or, unless ``again`` is True, contains sales of the
            same ``source`` or of the same offers.
        """
        if ledger.of_market:
            raise DataError(f"{ledger.path} belongs to an online market; give another ledger")
        ids = [str(seller) for seller in self.offers.index]
        sales = ids, self.offers["epsilon"].tolist(), self.offers["payment"].tolist()
        sold = ledger.sell(*sales, source=(source_of(*sales), source), again=again)
        if self.model is not None:
            ledger.account(ids).charge(self.model.guarantee_)
        return sold

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {' '.join(self.statements()[:2])}>"

    def __str__(self) -> str:
        return "\n".join(self.statements())


def totals_of(offers: pd.DataFrame, virtual_costs: Floats, sold: Floats) -> dict[str, float]:
    """Compute totals of offers, given the virtual cost and the privacy cost of each offer."""
    epsilon, surplus = offers["epsilon"].to_numpy(), offers["surplus"].to_numpy()
    bought = epsilon > 0
    return {
        "sellers": len(offers),
        "sellers_bought_from": int(np.count_nonzero(bought)),
        "weight": float(offers["weight"].sum()),
        "payments": float(offers["payment"].sum()),
        "expected_payments": float(virtual_costs[bought] @ sold[bought]),
        "surplus": float(surplus.sum()),
        "smallest_surplus": float(np.min(surplus, initial=np.inf)),
        "epsilon": float(epsilon.sum()),
        "largest_epsilon": float(np.max(epsilon, initial=0.0)),
    }


def price(
    table: Any,
    *,
    prior: PriorOrPriors,
    objective: Objective | Term,
    ask: str | None = None,
    constraints: Iterable[Constraint] = (),
    gamma: float | None = None,
    budget: float | None = None,
    id: str | None = None,
    group: str | None = None,
    at_least: Mapping[str, float] | None = None,
    na_values: str | Sequence[str] = (),
    show_cells: bool = False,
    progress: Progress | None = None,
) -> Deal:
    """Make an offer to every seller of a table.

    Parameters
    ----------
    table : DataFrame, table of Polars or pyarrow, path of a CSV or Parquet file, or parted table
        One row per seller. For a :func:`convexmarket.partitions.table`, give ``gamma`` and not
        ``budget``, ``group`` or ``na_values``.
    prior : Prior or frozen scipy.stats distribution, or mapping from groups to priors
        The commonly known distribution of the costs, fixed before the reports are read.
    objective : Objective or Term
        Objective to be minimised, such as ``1.0 * Spread() + 100 * Noise()``. The objective
        contains payments unless ``gamma``, ``budget`` or a constraint :class:`Budget` is given.
    ask, id, group : str, optional
        Columns of the reported costs per unit of epsilon, of the sellers' names and of their
        groups. The default of ask is ask, sensitivity, cost or report. The default of id is the
        index, or id, seller or name in a file.
    constraints : iterable of Constraint
        Constraints such as ``[Cap(5), MaxEpsilon(2)]``.
    gamma, budget : float, optional
        Weight of the payments, or average total payments over the prior. The budget determines the
        weight without reports (:func:`~convexmarket.calibrate_gamma`).
    at_least : mapping of str to float, optional
        Smallest share of each group in the total weight (:class:`GroupShare`).
    na_values, show_cells : str or sequence of str, bool
        Texts that mark an empty cell of a CSV file, such as ``"k.A."``, and whether an error shows
        the private text of the first invalid report.
    progress : callable, optional
        Function that is called with the name of each stage at its start.

    Returns
    -------
    Deal

    Raises
    ------
    DataError, SellersError, PriorError, ParameterError, CurvatureError, AllocationError
        If the table, a report or an option is invalid, or the market has no optimum.

    Examples
    --------
    >>> import convexmarket as cm
    >>> asks = pd.DataFrame({"ask": [0.1, 0.6]}, index=["Ann", "Bob"])
    >>> wanted = cm.Spread() + cm.Noise()
    >>> deal = cm.price(asks, prior=cm.Uniform(0, 1), objective=wanted, gamma=0.5)
    >>> deal.offers.round(3)
         ask  epsilon  weight  payment  surplus
    Ann  0.1    3.162     1.0    1.142    0.826
    Bob  0.6    0.000     0.0    0.000    0.000
    """
    stage = _stages(progress)
    if at_least and group is None:
        raise ParameterError("at_least requires groups; give the column of groups as group")
    if hasattr(table, "deal"):
        if gamma is None or budget is not None or group is not None or na_values:
            raise ParameterError("a table in partitions requires gamma and no other options")
        objective = as_objective(objective) + checks.check_positive("gamma", gamma) * Payments()
        prior = as_prior(prior, error=ParameterError)
        return table.deal(prior, objective, constraints, ask, id, stage)
    cells: Any = {"na_values": na_values, "show_cells": show_cells}
    source: dict[str, Any] = {}
    stage("reading")
    if isinstance(table, str | PathLike):
        listed = read_list(table, _one_prior(prior), id, ask, group, **cells)
        listed = listed.set_axis(pd.Index(listed.pop("id"), name=id or "id"))
        source = {"source": {"file": str(table), "sha256": digest(Path(table))}}
    else:
        listed = _people(table, prior, {"ask": ask, "id": id, "group": group}, **cells)[1]
    if at_least:
        constraints = [*constraints, GroupShare(listed["group"].to_numpy(), at_least)]
    return replace(_offers(listed, prior, objective, constraints, gamma, budget, stage), **source)


def buy(
    table: Any,
    *,
    ask: str,
    target: str,
    prior: PriorOrPriors,
    learner: Learner | None = None,
    features: PublicFeatures | None = None,
    classes: tuple[Any, Any] | None = None,
    target_range: tuple[float, float] | None = None,
    test: Any = None,
    objective: Objective | Term | None = None,
    constraints: Iterable[Constraint] = (),
    gamma: float | None = None,
    budget: float | None = None,
    id: str | None = None,
    group: str | None = None,
    random_state: RandomSource = None,
    na_values: str | Sequence[str] = (),
    show_cells: bool = False,
    progress: Progress | None = None,
) -> Deal:
    """Make an offer to every seller of a table, and train a model with the privacy bought.

    A :class:`~convexmarket.errors.UselessModelWarning` before the training means that the model is
    expected to predict no better than a constant. After the training, the warning means that the
    model predicts the ``test`` rows no better than a constant.

    Parameters
    ----------
    table, ask, prior, objective, constraints, gamma, budget, id, group
        See :func:`price`. The ``risk`` of the learner determines the default objective.
    na_values, show_cells, progress
        See :func:`price`.
    target : str
        The column of labels.
    learner : Learner, optional
        Learner that is copied and trained, such as ``PrivateLogisticRegression(features=...)``. A
        learner without ``features`` receives all columns except label and sale columns. The default
        is :class:`PersonalizedRidge` or, with ``classes``, :class:`PrivateLogisticRegression`.
    features, classes, target_range : optional
        Public parameters of the default learner. If neither classes nor target_range is given, they
        are computed from the labels, with a :class:`~convexmarket.errors.PrivacyLeakWarning`.
    test : DataFrame, optional
        Public rows with features and labels, on which the error is computed.
    random_state : None or Simulation, default None
        Source of the learner's noise.

    Returns
    -------
    Deal

    Raises
    ------
    DataError, SellersError, PriorError, ParameterError, CurvatureError, AllocationError
        See :func:`price` and ``fit`` of the learner. A charge remains only if ``fit`` fails.

    Examples
    --------
    >>> import convexmarket as cm
    >>> from convexmarket.privacy import Simulation
    >>> rng = np.random.default_rng(0)
    >>> patients = pd.DataFrame({"age": rng.uniform(18, 100, 500), "ask": rng.uniform(0, 1, 500)})
    >>> patients["ill"] = np.where(patients["age"] > 60, 1, -1)
    >>> public = {"features": cm.PublicFeatures({"age": (18, 100)}), "classes": (-1, 1)}
    >>> deal = cm.buy(patients, ask="ask", target="ill", prior=cm.Uniform(0, 1), budget=50.0,
    ...               random_state=Simulation(0), **public)
    >>> deal.incentives, bool((deal.model.epsilon_ <= deal.offers["epsilon"]).all())
    ('by construction', True)
    """
    stage = _stages(progress)
    stage("reading")
    named = {"ask": ask, "id": id, "group": group}
    people, listed, columns = _people(table, prior, named, na_values, show_cells)
    target = column_named(people.columns, target, (), "target")
    public = {"features": features, "classes": classes, "target_range": target_range}
    if learner is None:
        learner = default_learner(_labels(people, target), **public)
    elif given := [name for name, value in public.items() if value is not None]:
        raise ParameterError(f"{given[0]} is for the default learner; pass it to your learner")
    if isinstance(learner, type) or not hasattr(learner, "risk"):
        wrong = checks.shown(learner)
        raise ParameterError(f"learner is {wrong}; pass a learner that guarantees the epsilon")
    X, y = _rows(people, learner, target, columns)
    declared = getattr(learner, "features", None)
    n_features = X.shape[1] if declared is None else declared.n_features_out_
    if objective is None:
        mu, sigma = learner.risk(n_features)
        objective = mu * Spread() + sigma * Noise()
    deal = _offers(listed, prior, objective, constraints, gamma, budget, stage)
    sold = deal.allocation.epsilon
    expected = expected_error(learner, sold, n_features)
    source: dict[str, Any] = {} if random_state is None else {"random_state": random_state}
    stage("training")
    model = unfitted(learner).fit(X, y, epsilon=sold, **source)
    guarantee = getattr(model, "guarantee_", None)
    if not isinstance(guarantee, Guarantee):
        remedy = "follow the protocol of convexmarket.learners.Learner"
        raise ParameterError(f"{type(model).__name__} has no guarantee_ after fit; {remedy}")
    names = list(map(str, people.index))
    account = PrivacyAccountant(sold, guarantee.delta, composition="basic", ids=names)
    account.charge(guarantee)
    errors = None
    if test is not None:
        errors = model_errors(model, *_rows(read_table(test, na_values), learner, target, columns))
    return replace(deal, model=model, account=account, expected_error=expected, test_errors=errors)


def _stages(progress: Progress | None) -> Progress:
    checks.check_instance("progress", progress, Callable | None, "a function, or None")
    return progress or (lambda _: None)


def _offers(
    listed: pd.DataFrame,
    prior: PriorOrPriors,
    objective: Objective | Term,
    constraints: Iterable[Constraint],
    gamma: float | None,
    budget: float | None,
    stage: Progress,
) -> Deal:
    """Compute the offers of a deal without a model."""
    groups = None if "group" not in listed else listed["group"].to_numpy()
    # For speed, errors contain the name of the row only if there are several priors.
    reports: Any = listed["sensitivity"]
    reports = reports if _one_prior(prior) is None else reports.to_numpy()
    sellers = Sellers(reports, prior, groups=groups).with_ids(listed.index)
    objective, constraints = as_objective(objective), checked_constraints(constraints, sellers)
    if gamma is not None and budget is not None:
        raise ParameterError("give gamma or budget, not both: the budget determines gamma")
    if gamma is not None:
        if any(part.term.privacy_cost is not None for part in objective.parts):
            raise ParameterError("give gamma or an objective with payments, not both")
        objective = objective + checks.check_positive("gamma", gamma) * Payments()
    elif budget is not None:
        stage("calibrating")
        objective = calibrate_gamma(
            budget, prior, len(listed), objective, constraints, groups=groups, draws=_DRAWS
        ).objective
    market = Market(sellers, objective, constraints)
    if not any(piece.reports for piece in (*market.terms, *market.constraints)):
        raise ParameterError("payments have no weight; give gamma, budget, Payments() or Budget()")
    stage("allocating")
    allocation = allocate(market)
    solves = len(allocation.solves)
    left = _SOLVES_PER_PAYMENT * len(sellers) * allocation.seconds / solves if solves > 1 else 0.0
    stage(f"paying, about {left:.0f} s" if left > _LONG else "paying")
    paid = payments(market, allocation)
    asks, epsilon = np.asarray(sellers.sensitivities), allocation.epsilon
    surplus = paid - asks * np.asarray(market.privacy_cost(epsilon))
    columns = {"ask": asks, "epsilon": epsilon, "weight": allocation.weights, "payment": paid}
    offers = pd.DataFrame({**columns, "surplus": surplus}, index=listed.index)
    return Deal(offers, market, allocation, budget=budget)


def _people(
    table: Any,
    prior: PriorOrPriors,
    named: Mapping[str, str | None],
    na_values: str | Sequence[str],
    show_cells: bool,
) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    """Read the rows, the checked reports and groups of the sellers, and the columns by role."""
    given = [name for name in named.values() if name is not None]
    people, lines, place = read_rows(table, na_values, given)
    if people.empty:
        file = f"{table}: " if isinstance(table, str | PathLike) else ""
        raise DataError(f"{file}the table has no rows; give one row per seller")
    columns = {
        role: column_named(people.columns, name, REPORT_NAMES if role == "ask" else (), role)
        for role, name in named.items()
        if name is not None or role == "ask"
    }
    cells = people[list(columns.values())].set_axis(["sensitivity", *list(columns)[1:]], axis=1)
    names, index = dict(zip(map(str, cells), columns.values(), strict=True)), people.index
    if named_rows := "id" not in cells and not checks.is_default(index):
        cells, names["id"] = cells.assign(id=index), index.name or "index"
    how: Any = {"show_cells": show_cells, "is_csv": place.endswith("line")}
    listed = checked_list(cells.set_axis(lines), _one_prior(prior), place, names, **how)
    if "id" in listed:
        index = pd.Index(listed.pop("id")).rename(index.name if named_rows else names["id"])
    return people.set_axis(index), listed.set_axis(index), columns


def _one_prior(prior: PriorOrPriors) -> Prior | None:
    """Return the prior of all sellers, or None if there are several priors."""
    return None if isinstance(prior, Mapping) or checks.is_iterable(prior) else as_prior(prior)


def _labels(people: pd.DataFrame, target: str, learner: object = None) -> pd.Series[Any]:
    labels = people[column_named(people.columns, target, (), "target")]
    empty = np.flatnonzero(blank(labels))
    if empty.size:
        raise DataError(blame("row", empty + 1, f"the label (column {target!r})", "is missing"))
    if isinstance(learner, RegressorMixin) and is_string_dtype(labels):
        labels = numbers_in(labels)
        if (wrong := np.flatnonzero(labels.isna())).size:
            what = f"the label (column {target!r})"
            raise DataError(blame("row", wrong + 1, what, "is not a number; write 1234.5"))
    return labels


def _rows(
    people: pd.DataFrame, learner: Learner, target: str, named: Mapping[str, str | None]
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return the features and labels, without the columns of the sale."""
    labels = _labels(people, target, learner)
    features = getattr(learner, "features", None)
    if features is not None:
        checks.check_instance(
            "features", features, PublicFeatures, "a PublicFeatures({column: range})"
        )
    declared = None if features is None else list(features.columns)
    roles = {"report": named["ask"], "id": named.get("id"), "group": named.get("group")}
    columns = feature_columns(list(people.columns), target, declared, **roles)
    if features is not None:
        return people, labels
    rows = people[list(columns)]
    for name in columns if hasattr(learner, "features") else ():
        if not is_numeric_dtype(rows[name]) or rows[name].isna().any():
            remedy = "give the learner features=PublicFeatures({...})"
            raise DataError(f"column {name!r} contains words or empty cells; {remedy}")
    return rows, labels


def certificate_of(offers: Path) -> Path:
    """Return the path of a certificate, such as offers.certificate.json for offers.csv."""
    if offers.suffix not in ("", ".csv", ".parquet"):
        raise ParameterError(f"{offers} ends in neither .csv nor .parquet; name such a file")
    return offers.with_suffix(".certificate.json")


def json_of(content: Mapping[str, Any]) -> bytes:
    """Write plain values as JSON text."""
    return (json.dumps(content, indent=2) + "\n").encode()


@cache
def versions() -> dict[str, str]:
    """Return the platform and the versions of the dependencies."""
    facts = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ["convexmarket", *_DEPENDENCIES.split()]:
        facts[name] = "not installed"
        with suppress(PackageNotFoundError):
            facts[name] = version(name)
    return facts
