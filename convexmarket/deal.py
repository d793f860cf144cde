"""The common job in one call: offers to the sellers of a table, a model, and what proves them."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.base import is_classifier

from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.result import Allocation
from convexmarket.checks import (
    check_callable,
    check_nonnegative,
    check_positive,
    is_iterable,
    shown,
    warn_user,
)
from convexmarket.data.columns import feature_columns
from convexmarket.data.csv_cells import write_csv
from convexmarket.data.features import PublicFeatures
from convexmarket.data.lists import blame, blank, checked_list, column_named, digest, read_list
from convexmarket.data.tables import read_rows, read_table
from convexmarket.display import Shown, axes
from convexmarket.errors import (
    DataError,
    NotSupportedError,
    ParameterError,
    UselessModelWarning,
)
from convexmarket.incentives.audit import IncentiveAudit, audit_incentives
from convexmarket.incentives.calibration import calibrate_gamma
from convexmarket.incentives.rules import payments
from convexmarket.io import Content, write_together
from convexmarket.learners.base import Learner, unfitted
from convexmarket.learners.linear import PrivateLogisticRegression
from convexmarket.learners.ridge import PersonalizedRidge
from convexmarket.learners.saved import saved_model
from convexmarket.ledger import Ledger
from convexmarket.market import Incentives, Market
from convexmarket.priors.base import Prior, PriorLike, as_prior
from convexmarket.privacy.accountant import PrivacyAccountant
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.noise import RandomSource
from convexmarket.sellers import PriorOrPriors, Sellers
from convexmarket.terms import (
    Cap,
    Constraint,
    EtaRange,
    GroupShare,
    Noise,
    Objective,
    Payments,
    Spread,
    Term,
)

__all__ = [
    "Clock",
    "Deal",
    "Offers",
    "audit_summary",
    "buy",
    "certificate_of",
    "package_version",
    "price",
    "price_offers",
    "statements",
    "versions",
]

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
    expected_error : float or None
        Standard deviation that the noise adds to a prediction, from public numbers:
        :meth:`noise_effect` of the learner, where it has one and its domain is public.
    test_errors : dict or None
        Error on public test rows of the ``"model"`` and of the best ``"constant"``: the root mean
        squared error of a regression, the share of wrong labels of a classifier.
    """

    offers: pd.DataFrame
    market: Market
    allocation: Allocation
    model: Any = None
    account: PrivacyAccountant | None = None
    expected_error: float | None = None
    test_errors: dict[str, float] | None = None

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
        if self.expected_error is not None:
            said.append(
                "The noise adds a standard deviation of about"
                f" {self.expected_error:.3g} to a prediction, by public numbers alone."
            )
        if self.test_errors is not None:
            said.append(
                f"On the public test rows the error is {self.test_errors['model']:.4g}; the best"
                f" constant prediction has {self.test_errors['constant']:.4g}."
            )
        if self.model is not None:
            said.append(self.model.guarantee_.statement())
            if not type(self.model).__module__.startswith("convexmarket."):
                said.append(
                    "This guarantee is declared by the user's learner, not audited:"
                    " convexmarket.audit_privacy attacks it."
                )
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
            place / "certificate.json": _json(self.certificate),
        }
        if self.model is not None:
            try:
                contents[place / "model.json"] = saved_model(self.model)
            except NotSupportedError as error:  # of a user's own, which knows how it is kept
                said.append(f"The model is not written here: {error}")
        contents[page] = ("\n\n".join(said) + "\n").encode()
        write_together(contents, private=True)
        return page

    def record(self, ledger: Ledger, source: str | None = None) -> int:
        """Record who sold what in a ledger, and charge the model to the sellers.

        Parameters
        ----------
        ledger : Ledger
        source : str, optional
            Identifies the table; a ledger refuses a source that it has recorded before.

        Returns
        -------
        int
            How many sold.

        Raises
        ------
        DataError
            If it is a market's ledger, or the source was recorded before.
        """
        if ledger.of_market:
            raise DataError(
                f"{ledger.path} is an online market's, which writes its own sales; give another"
            )
        ids = [str(seller) for seller in self.offers.index]
        paid = self.offers["payment"].to_numpy()
        sold = ledger.sell(ids, self.offers["epsilon"], paid, source=source)
        if self.model is not None:
            ledger.account(ids).charge(self.model.guarantee_)
        return sold

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
    na_values: Sequence[str] = (),
    show_cells: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Deal:
    """Make every seller of a table an offer.

    Parameters
    ----------
    table : DataFrame, table of Polars or pyarrow, or path of a CSV or Parquet file
        One row per seller.
    ask : str
        The column of reported costs per unit of epsilon, in a currency.
    prior : Prior or frozen scipy.stats distribution, or mapping from group to one
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
    na_values : sequence of str, optional
        Texts that mark an empty cell of a CSV file, such as ``"k.A."``.
    show_cells : bool, default False
        Whether an error shows the text of the first wrong report. Reports are private, so error
        messages name lines alone by default.
    progress : callable, optional
        Called with the name of each stage as it starts.

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
    stage = _stages(progress)
    _, listed = _people(table, prior, ask, id, group, na_values, show_cells, stage)
    return _offers(listed, prior, objective, constraints, gamma=gamma, budget=budget, stage=stage)


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
    na_values: Sequence[str] = (),
    show_cells: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Deal:
    """Make every seller of a table an offer, and train a model under what was bought.

    Parameters
    ----------
    table : DataFrame, table of Polars or pyarrow, or path of a CSV or Parquet file
        One row per seller.
    ask, prior, constraints, gamma, budget, id, group, na_values, show_cells, progress
        As for :func:`price`.
    target : str
        The column of labels.
    learner : Learner, optional
        Such as ``PrivateLogisticRegression(features=PublicFeatures(...))``. One without
        ``features`` gets the columns that are neither label nor about the sale, as they are. It is
        copied, not changed. By default a :class:`PersonalizedRidge` for a ``target_range``, and a
        :class:`PrivateLogisticRegression` for ``classes``.
    features, classes, target_range : optional
        Public facts for the default learner. Without classes and target_range the labels decide
        which learner is meant, and are read for it, with a
        :class:`~convexmarket.errors.PrivacyLeakWarning`.
    test : DataFrame, optional
        Public rows with features and labels: the deal reports the error on them.
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

    Warns
    -----
    UselessModelWarning
        If the noise that the budget leaves exceeds the error of a constant, before training.

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
    people, listed = _people(table, prior, ask, id, group, na_values, show_cells, stage)
    public = {"features": features, "classes": classes, "target_range": target_range}
    if learner is None:
        learner = _default_learner(_labels(people, target), **public)
    elif given := [name for name, value in public.items() if value is not None]:
        raise ParameterError(f"{given[0]} is for the default learner; pass it to your learner")
    if isinstance(learner, type) or not hasattr(learner, "risk"):
        raise ParameterError(
            f"learner is {shown(learner)}; pass one that keeps what was bought, such as"
            " PrivateLogisticRegression(...)"
        )
    roles = {"report": ask, "id": id, "group": group}
    X, y = _rows(people, learner, target, **roles)
    public_columns = getattr(learner, "features", None)
    n_features = X.shape[1] if public_columns is None else public_columns.n_features_out_
    if objective is None:
        mu, sigma = learner.risk(n_features)
        objective = mu * Spread() + sigma * Noise()
    deal = _offers(listed, prior, objective, constraints, gamma=gamma, budget=budget, stage=stage)
    sold = deal.allocation.epsilon
    expected = _expected_error(learner, sold, n_features)
    source: dict[str, Any] = {} if random_state is None else {"random_state": random_state}
    stage("training")
    model = unfitted(learner).fit(X, y, epsilon=sold, **source)
    promised = getattr(model, "guarantee_", None)
    if not isinstance(promised, Guarantee):
        raise ParameterError(
            f"{type(model).__name__} has no guarantee_ after fit, so nothing can be charged for"
            " it; follow the protocol of convexmarket.learners.Learner"
        )
    account = PrivacyAccountant(
        sold, promised.delta, composition="basic", ids=[str(name) for name in people.index]
    )
    account.charge(promised)
    errors = None
    if test is not None:
        errors = _test_errors(model, *_rows(read_table(test, na_values), learner, target, **roles))
    return replace(deal, model=model, account=account, expected_error=expected, test_errors=errors)


def _default_learner(
    labels: pd.Series[Any], features: Any, classes: Any, target_range: Any
) -> PersonalizedRidge | PrivateLogisticRegression:
    """Return a learner of numbers or of two classes; undeclared facts are read from the rows."""
    if classes is not None and target_range is not None:
        raise ParameterError("give classes or target_range, not both")
    numbers = is_numeric_dtype(labels) and not is_bool_dtype(labels)
    if target_range is not None or (classes is None and numbers and labels.nunique() > 2):
        box: Any = {} if features is not None else {"feature_range": None}
        return PersonalizedRidge(target_range=target_range, features=features, **box)
    norm = 1.0 if features is not None else None
    return PrivateLogisticRegression(data_norm=norm, classes=classes, features=features)


def _expected_error(learner: Any, sold: Floats, n_features: int) -> float | None:
    """Return the effect of the noise, and warn if a constant is as good a prediction."""
    if not hasattr(learner, "noise_effect"):
        return None
    try:
        expected, limit = float(learner.noise_effect(sold, n_features)), learner.noise_limit()
    except ParameterError:  # the domain is not public; or fit raises the same error
        return None
    if expected > limit:
        warn_user(
            f"the noise adds a standard deviation of {expected:.3g} to a prediction, and a constant"
            f" is as good from {limit:.3g} on: buy more privacy (a larger budget), or use fewer"
            " features",
            UselessModelWarning,
        )
    return expected


def _test_errors(model: Any, X: pd.DataFrame, y: pd.Series[Any]) -> dict[str, float]:
    """Return the error of the model and of the best constant."""
    predicted, labels = np.asarray(model.predict(X)), np.asarray(y)
    if is_classifier(model):
        shares = pd.Series(labels).value_counts(normalize=True)
        return {
            "model": float(np.mean(predicted != labels)),
            "constant": float(1.0 - shares.iloc[0]),
        }
    return {
        "model": float(np.sqrt(np.mean((predicted - labels) ** 2))),
        "constant": float(np.std(labels)),
    }


def _stages(progress: Callable[[str], None] | None) -> Callable[[str], None]:
    check_callable("progress", progress)
    return progress or (lambda _: None)


def _offers(
    listed: pd.DataFrame,
    prior: PriorOrPriors,
    objective: Objective | Term,
    constraints: Iterable[Constraint],
    *,
    gamma: float | None,
    budget: float | None,
    stage: Callable[[str], None],
) -> Deal:
    """Return a deal without a model; ``stage`` is called as a stage starts."""
    groups = listed.get("group")
    sellers = Sellers(listed["sensitivity"], prior, groups=groups)
    constraints = tuple(constraints)
    if gamma is not None and budget is not None:
        raise ParameterError("give gamma or budget, not both: the budget decides gamma")
    if gamma is not None:
        objective = objective + check_positive("gamma", gamma) * Payments()
    elif budget is not None:
        stage("calibrating")
        objective = calibrate_gamma(
            budget, prior, len(listed), objective, constraints, groups=groups, draws=DRAWS
        ).objective
    market = Market(sellers, objective, constraints)
    if all(term.privacy_cost is None for term in market.terms):
        raise ParameterError(
            "nothing says how much payments weigh; give gamma, or budget, or an objective with "
            "payments, such as ... + 0.01 * Payments()"
        )
    stage("allocating")
    allocation = allocate(market)
    stage("paying")
    paid = payments(market, allocation)
    asks, epsilon = np.asarray(sellers.sensitivities), allocation.epsilon
    columns = {
        "ask": asks,
        "epsilon": epsilon,
        "weight": allocation.weights,
        "payment": paid,
        "surplus": paid - asks * np.asarray(market.privacy_cost(epsilon)),
    }
    return Deal(pd.DataFrame(columns, index=listed.index), market, allocation)


def _people(
    table: Any,
    prior: PriorOrPriors,
    ask: str,
    id: str | None,
    group: str | None,
    na_values: Sequence[str],
    show_cells: bool,
    stage: Callable[[str], None],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row per seller, and its checked report and group, by the name that it has."""
    stage("reading")
    given = [name for name in (ask, id, group) if name is not None]
    people, lines, place = read_rows(table, na_values, given)
    if people.empty:
        raise DataError("the table has no rows: there is nobody to buy from")
    roles = {"sensitivity": (ask, "--sensitivity-column")}
    if id is not None:
        roles["id"] = (id, "--id-column")
    if group is not None:
        roles["group"] = (group, "--group-column")
    names = {
        role: column_named(people.columns, name, (), how) for role, (name, how) in roles.items()
    }
    columns = {role: people[name].set_axis(lines) for role, name in names.items()}
    one = as_prior(prior) if not isinstance(prior, Mapping) and not is_iterable(prior) else None
    is_csv = place.endswith("line")
    listed = checked_list(
        pd.DataFrame(columns), one, place, names.get("id"), show_cells=show_cells, is_csv=is_csv
    )
    people = people.set_axis(
        people.index if id is None else pd.Index(listed.pop("id"), name=names["id"])
    )
    return people, listed.set_axis(people.index)


def _labels(people: pd.DataFrame, target: str) -> pd.Series[Any]:
    labels = people[column_named(people.columns, target, (), "target")]
    empty = np.flatnonzero(blank(labels))
    if empty.size:
        raise DataError(blame("row", empty + 1, f"the label (column {target!r})", "is missing"))
    return labels


def _rows(
    people: pd.DataFrame, learner: Learner, target: str, **roles: str | None
) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return what the learner is trained on; nothing that is about the sale is among it."""
    labels = _labels(people, target)
    features = getattr(learner, "features", None)
    declared = None if features is None else list(features.columns)
    columns = feature_columns(list(people.columns), target, declared, **roles)
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


# ----------------------------------------------------------------------------- lists as files


@dataclass(frozen=True, eq=False)
class Offers:
    """One offer for each seller, and the certificate of all of them.

    Attributes
    ----------
    table : DataFrame
        Columns id, sensitivity, virtual_cost, epsilon, weight, payment and surplus, one row per
        seller in the order of the reports. ``surplus`` is payment minus reported cost.
    certificate : dict
        What proves the offers: optimality, totals, audit, parameters and origin; plain values.
    """

    table: pd.DataFrame
    certificate: dict[str, Any]

    def write(self, path: str | Path, *, force: bool = False) -> tuple[Path, Path]:
        """Write the table, and the certificate as JSON next to it: both or neither.

        Only their owner may read new files; those that are replaced keep their mode.

        Parameters
        ----------
        path : path
            CSV is written, or Parquet where it ends in .parquet.
        force : bool, default False
            Whether files of another kind may be replaced, and the files written in the folder of
            an online market.

        Returns
        -------
        table, certificate : pathlib.Path
            ``offers.csv`` and ``offers.certificate.json``, for example.

        Raises
        ------
        ParameterError
            If a file of another kind is there, or a market's.
        DataError
            If a file cannot be written; then whatever was there before still is.
        """
        table = Path(path)
        if table.is_dir() or not table.name:
            raise DataError(f"{path} is a folder; name a file in it, such as offers.csv")
        certificate = certificate_of(table)
        write_together(
            {
                table: self.table.to_parquet(index=False)
                if table.suffix == ".parquet"
                else lambda file: write_csv(self.table, file),
                certificate: _json(self.certificate),
            },
            private=True,
            force=force,
        )
        return table, certificate


def certificate_of(offers: Path) -> Path:
    """Return where the certificate of offers is written: offers.certificate.json, for example."""
    return offers.with_suffix(".certificate.json")


def _json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, indent=2) + "\n").encode()


def price_offers(
    reports: pd.DataFrame | str | Path,
    prior: PriorLike,
    *,
    mu: float,
    sigma: float,
    gamma: float | None = None,
    budget: float | None = None,
    cap: float | None = None,
    eta_range: tuple[float, float] | None = None,
    at_least: Mapping[str, float] | None = None,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    group_column: str | None = None,
    na_values: Sequence[str] = (),
    show_cells: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Offers:
    """Make every seller of a list an offer.

    Parameters
    ----------
    reports : DataFrame, or path of a CSV file or a Parquet file (.parquet)
        One row per seller, with an id and a reported sensitivity.
    prior : Prior or frozen scipy.stats distribution
        The distribution that the sensitivities are drawn from.
    mu, sigma, gamma, cap, eta_range
        The buyer's objective, see :meth:`convexmarket.market.Market.standard`.
    budget : float, optional
        In place of gamma, what payments come to on average over the prior
        (:func:`convexmarket.calibrate_gamma`): no report decides it.
    at_least : mapping of str to float, optional
        The least share of the weight that groups carry.
    id_column, sensitivity_column : str, optional
        Their columns, where they are not called id and sensitivity or something as common.
    group_column : str, optional
        The column of the sellers' groups.
    na_values, show_cells, progress
        As for :func:`price`.

    Returns
    -------
    Offers

    Raises
    ------
    DataError
        If the list cannot be read, or holds a bad row; the message names the lines.
    ParameterError, AllocationError
        If the market cannot be declared, or has no optimum.

    Examples
    --------
    >>> from convexmarket.priors import Uniform
    >>> reports = pd.DataFrame({"id": ["Ann", "Bob"], "sensitivity": [0.1, 0.6]})
    >>> offers = price_offers(reports, Uniform(0, 1), mu=1, sigma=1, gamma=0.5)
    >>> offers.table[["id", "epsilon", "payment", "surplus"]].round(3)
        id  epsilon  payment  surplus
    0  Ann    3.162    1.142    0.826
    1  Bob    0.000    0.000    0.000
    """
    if (gamma is None) == (budget is None):
        raise ParameterError("give gamma or budget, one of the two: the budget decides gamma")
    if at_least and group_column is None:
        raise ParameterError("at_least is about groups: name their column, --group-column")
    prior = as_prior(prior)
    clock = Clock(progress)
    clock.start("reading")
    origin: dict[str, Any] = {"file": None, "sha256": None}
    if not isinstance(reports, pd.DataFrame):
        origin = {"file": str(reports), "sha256": digest(Path(reports))}
    columns = id_column, sensitivity_column, group_column
    listed = read_list(
        reports, prior, *columns, trim=True, na_values=na_values, show_cells=show_cells
    ).reset_index(drop=True)
    wanted: dict[str, Any] = {"mu": mu, "sigma": sigma, "cap": cap, "eta_range": eta_range}
    limits: list[Constraint] = [] if cap is None else [Cap(cap)]
    if eta_range is not None:
        limits.append(EtaRange(*eta_range))
    if at_least:
        limits.append(GroupShare(listed["group"].to_numpy(), at_least))
    aim = check_nonnegative("mu", mu) * Spread() + check_nonnegative("sigma", sigma) * Noise()
    deal = _offers(
        listed.drop(columns="group", errors="ignore"), prior, aim, limits,
        gamma=gamma, budget=budget, stage=clock.start,
    )  # fmt: skip
    if gamma is None:
        parts = deal.market.objective.parts
        (weight,) = (part.weight for part in parts if part.term.privacy_cost is not None)
        gamma = float(weight)  # type: ignore[arg-type]  # calibrated, so that it is a number
    clock.start("auditing")
    audit = deal.audit()
    clock.stop()
    offers, sellers = deal.offers, deal.market.sellers
    table = pd.DataFrame(
        {
            "id": listed["id"],
            "sensitivity": listed["sensitivity"],
            "virtual_cost": sellers.virtual_costs,
            **{name: offers[name] for name in ("epsilon", "weight", "payment", "surplus")},
        },
        copy=False,
    )
    method = deal.allocation.method
    certificate = {
        "statements": statements(prior, wanted, budget, at_least or {}, method),
        "optimality": deal.certificate,
        "totals": _totals(table),
        "audit": audit_summary(audit),
        "objective": wanted | {"gamma": gamma, "budget": budget, "at_least": dict(at_least or {})},
        "prior": prior.to_dict(),
        "input": origin,
        "versions": versions(),
        "seconds": clock.seconds,
    }
    return Offers(table, certificate)


def audit_summary(audit: IncentiveAudit) -> dict[str, Any]:
    """Return what an audit found, as plain values for the certificate."""
    return {
        "sellers": audit.n_sellers,
        "sellers_audited": len(audit.to_frame()),
        "misreports_per_seller": audit.n_misreports,
        "largest_gain_from_misreporting": audit.max_gain,
        "smallest_surplus": audit.min_surplus,
        "tolerance": audit.tolerance,
        "incentive_compatible": audit.is_incentive_compatible,
        "individually_rational": audit.is_individually_rational,
    }


def _totals(table: pd.DataFrame) -> dict[str, float]:
    return {
        "payments": float(table["payment"].sum()),
        "expected_payments": float(
            (table["virtual_cost"] * table["epsilon"])[table["epsilon"] > 0].sum()
        ),
        "surplus": float(table["surplus"].sum()),
        "epsilon": float(table["epsilon"].sum()),
        "largest_epsilon": float(table["epsilon"].max()),
        "sellers_bought_from": int((table["epsilon"] > 0).sum()),
    }


def statements(
    prior: Prior,
    wanted: Mapping[str, Any],
    budget: float | None,
    at_least: Mapping[str, float],
    method: str,
) -> list[str]:
    """Say in words what the offers guarantee, and on what that rests."""
    cap, eta_range = wanted["cap"], wanted["eta_range"]
    limit = "" if cap is None else f" with no weight above {cap:g} times the average"
    if eta_range is not None:
        limit += f", eta from {eta_range[0]:g} to {eta_range[1]:g}"
    for group, share in at_least.items():
        limit += f", with at least {share:g} of the weight in the group {group!r}"
    exact = (
        "At the eta given here a dual point with the value lower_bound proves it; other eta are "
        "excluded by the solver's enumeration of all stationary points, not repeated here."
        if method == "exact"
        else "The value lower_bound holds for every eta, and gap says how far it lies below."
    )
    fixed = "mu, sigma, gamma, cap and prior"
    if budget is not None:
        fixed = f"mu, sigma, the budget of {budget:g}, cap and prior"
    if at_least:
        fixed = fixed.replace("cap", "cap, groups")
    said = [
        f"Among all ways to buy privacy{limit}, none has a smaller objective, up to rounding"
        f"{'' if method == 'exact' else ' and the gap'}. {exact}",
        "Every payment is at least the seller's reported sensitivity times its epsilon.",
        "No seller gains, alone, by reporting another sensitivity, whatever the others report, as "
        f"long as {fixed} were fixed before the reports were read. Sellers "
        "who agree on their reports may gain together.",
        f"Expected payments are payments averaged over reports drawn from {prior!r}: the sum of "
        "virtual cost times epsilon estimates the total.",
        "epsilon is the guarantee sold. It holds for a model trained with these weights and with "
        "eta = the sum of epsilon; the learner reports the total, its own share included.",
    ]
    if budget is not None:
        said.append(
            f"gamma follows from the budget, the prior and the number of sellers, and from no "
            f"report: payments come to {budget:g} on average over the prior, not in each market."
        )
    return said


class Clock:
    """Seconds per stage, announced as they start."""

    def __init__(self, announce: Callable[[str], None] | None) -> None:
        check_callable("progress", announce)
        self.seconds: dict[str, float] = {}
        self._announce = announce
        self._stage: str | None = None
        self._since = 0.0

    def start(self, stage: str) -> None:
        """Begin a stage, and end the one before."""
        self.stop()
        self._stage, self._since = stage, time.perf_counter()
        if self._announce is not None:
            self._announce(stage)

    def stop(self) -> None:
        """End the stage."""
        if self._stage is not None:
            self.seconds[self._stage] = time.perf_counter() - self._since
        self._stage = None


_LIBRARIES = ("numpy", "scipy", "pandas", "scikit-learn", "cvxpy")
_SOLVERS = ("clarabel", "ecos", "highspy", "osqp", "scs")


@cache
def package_version(name: str = "convexmarket") -> str:
    """Return the installed version of a distribution, or say that it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, Any]:
    """Return what a result depends on beside its problem, as plain values for JSON."""
    return {
        "convexmarket": package_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: package_version(name) for name in _LIBRARIES + _SOLVERS},
    }
