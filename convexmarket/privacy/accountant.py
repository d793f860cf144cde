r"""Accounts of all releases about the same rows, row by row.

The budget of a row bounds the privacy loss of all its releases. A release states its
:class:`~convexmarket.privacy.Guarantee`. An account composes guarantees by their profiles, and
refuses a release that would exceed the budget of a row, before its noise is drawn.

For each row the account adds up the epsilons, :math:`\mu^2` of Gaussian releases, :math:`e^2` and
:math:`e^4` of the others, and a moment. Here :math:`e` is the shift of equivalent Gaussian noise.
It accepts a release if one of four sums is within its limit (docs/theory.md, section 12).
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import (
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    SupportsIndex,
    TypeAlias,
    runtime_checkable,
)

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import (
    check_choice,
    check_instance,
    checked_numbers,
    forms_of,
    is_iterable,
)
from convexmarket.display import Shown
from convexmarket.errors import BudgetExceededError, NotSupportedError, ParameterError
from convexmarket.privacy.composition import (
    BISECTIONS,
    conversion,
    gaussian_epsilon,
    gaussian_shift,
    moment,
)
from convexmarket.privacy.guarantee import Guarantee, Law, check_delta

__all__ = ["Account", "AccountComposition", "PrivacyAccountant"]

AccountComposition: TypeAlias = Literal["basic", "advanced"]

Floats = NDArray[np.float64]

#: Relative rounding error of sums of sales.
ROUNDING = 1e-12
#: Smallest budget for which moments are computed; below it only epsilons are added.
LEAST_BUDGET = 1e-200
#: Shares of delta under "advanced": for Gaussian noise, for the moment, for Gaussian noise next to
#: a pure release of half the budget, and for releases that may fail.
GAUSSIAN, MOMENT, HALF, FAILURES = 0.65, 0.20, 0.05, 0.10
#: Largest epsilon, or shift of Laplace noise, with a sharper cost than pi/2 of its square.
LARGEST_SMALL = 1.0


@runtime_checkable
class Account(Protocol):
    """An account that releases are charged to: in memory, or in a ledger."""

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Refuse a release that some row cannot pay, without charging it.

        Parameters
        ----------
        guarantee : Guarantee
        rows : array_like of int, optional
            Positions of the rows; all by default.
        """

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release in full, or refuse it and charge nothing.

        Parameters
        ----------
        guarantee : Guarantee
        rows : array_like of int, optional
            Positions of the rows; all by default.
        """


class _Sums(NamedTuple):
    """Costs of one release, or of all releases together, of shape (n_rows,)."""

    epsilon: Floats  # epsilons of releases that are not Gaussian
    failure: Floats
    gaussian: Floats  # squared shifts of Gaussian releases
    square: Floats  # squared shifts, and e^2 of other releases
    quartic: Floats  # e^4 of other releases
    coarse: Floats  # as square, with pi/2 of the squared epsilon
    moment: Floats
    largest: Floats  # largest e^2 of other releases

    def plus(self, other: _Sums) -> _Sums:
        total = _Sums(*(mine + more for mine, more in zip(self, other, strict=True)))
        return total._replace(largest=np.maximum(self.largest, other.largest))


class _Limits(NamedTuple):
    """Limits of the sums, of shape (n_rows,); minus infinity where a sum is not used."""

    gaussian: Floats  # of the squared shifts
    half: Floats  # limit of the squared shifts next to half of the epsilon
    order: Floats  # order of the moment; 1 if the moment is not used
    moment: Floats
    short: Floats  # order times epsilon minus the moment's limit; infinite if not used


class PrivacyAccountant(Shown):
    r"""The privacy budget of each row, and the charges of all releases.

    Parameters
    ----------
    epsilon : array_like of shape (n_rows,)
        Budget of each row, in nats. Nonnegative; a row of budget zero may not be used, and an
        infinite budget refuses nothing.
    delta : float, default 0.0
        Probability with which a row's epsilon may be exceeded, at least 0 and below 1.
    composition : {"advanced", "basic"}, default "advanced"
        Composition of guarantees. ``"basic"`` adds up epsilons and deltas. ``"advanced"`` uses the
        profiles: it accepts a release if the sum of the epsilons is within the budget, or if one of
        three other sums is within its limit. Gaussian and Laplace releases use no ``delta``;
        releases that may fail use at most a tenth of it.
    ids : sequence of str, optional
        Distinct ids of the rows for messages, shape (n_rows,); positions by default.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    Releases, their profiles and their order may depend on earlier answers: the sums are filters.
    See docs/theory.md, section 12. Gaussian releases: Smith and Thakurta, Fully Adaptive
    Composition for Gaussian Differential Privacy; row by row: Koskela, Tobaben and Honkela,
    Individual Privacy Accounting with Gaussian Differential Privacy; the moment: Feldman and Zrnic,
    Individual Privacy Accounting via a Rényi Filter; interactive releases side by side: Haney et
    al., Concurrent Composition for Interactive Differential Privacy with Adaptive Privacy-Loss
    Parameters. Weights and budgets of later releases may depend on the rows only through answers.

    Examples
    --------
    >>> account = PrivacyAccountant([1.0, 2.0])
    >>> account.charge(Guarantee([0.6, 0.6], 0.0, "first", "tight", ()))
    >>> account.remaining
    array([0.4, 1.4])
    >>> account.charge(Guarantee([0.6, 0.6], 0.0, "second", "tight", ()))
    Traceback (most recent call last):
        ...
    convexmarket.errors.BudgetExceededError: second would exceed the budget of 1 of 2 rows...
    >>> account = PrivacyAccountant([1.0], delta=1e-6)
    >>> for _ in range(100):
    ...     account.charge(Guarantee.gaussian([0.02]))
    >>> account.spent.round(2)
    array([0.85])
    """

    def __init__(
        self,
        epsilon: ArrayLike,
        delta: float = 0.0,
        *,
        composition: AccountComposition = "advanced",
        ids: Sequence[str] | None = None,
    ) -> None:
        budget = np.array(checked_numbers("epsilon", epsilon))
        if budget.ndim != 1 or budget.size == 0:
            raise ParameterError(
                "epsilon must be a nonempty vector, one budget per row, not of shape "
                f"{budget.shape}"
            )
        if not np.all(budget >= 0):
            raise ParameterError("epsilon must be nonnegative in every row")
        check_choice("composition", composition, AccountComposition)
        self._budget, self._delta, self._composition = budget, check_delta(delta), composition
        self._ids = None if ids is None else _names(ids, budget.size)
        self._by_profile = composition == "advanced" and self._delta > 0
        self._failures = self._delta * (FAILURES if composition == "advanced" else 1.0)
        self._limits = _limits(budget, self._delta if self._by_profile else 0.0)
        self._sums = _Sums(*np.zeros((len(_Sums._fields), budget.size)))
        self._releases: list[tuple[str, float, float]] = []
        self._lock = Lock()
        budget.setflags(write=False)

    @property
    def budget(self) -> Floats:
        """Budget of each row, shape (n_rows,)."""
        return self._budget

    @property
    def delta(self) -> float:
        """Probability with which a row's epsilon may be exceeded."""
        return self._delta

    @property
    def composition(self) -> AccountComposition:
        """Composition of guarantees."""
        return self._composition

    @property
    def ids(self) -> pd.Index:
        """Ids of the rows, or their positions."""
        return pd.RangeIndex(self._budget.size) if self._ids is None else self._ids

    @property
    def releases(self) -> tuple[tuple[str, float, float], ...]:
        """Charged releases: the mechanism, its largest epsilon, its delta."""
        return tuple(self._releases)

    @property
    def spent(self) -> Floats:
        """Smallest proven epsilon of all releases together, shape (n_rows,)."""
        sums, limits = self._sums, self._limits
        total = _total(sums)
        if not self._by_profile:
            return total
        by_moment = np.maximum((sums.moment + limits.short) / limits.order, 0.0)
        by_shift = gaussian_epsilon(np.sqrt(_gaussian_square(sums)), GAUSSIAN * self._delta)
        least = np.minimum(np.minimum(total, by_moment), by_shift)
        return np.where(self._fits(sums), np.minimum(least, self._budget), least)

    @property
    def spent_delta(self) -> Floats:
        """Delta of all releases together, including that of the composition."""
        composed = self.spent < _total(self._sums)
        return self._sums.failure + np.where(composed, self._delta - self._failures, 0.0)

    @property
    def remaining(self) -> Floats:
        """Largest epsilon that one more release of delta zero may have, shape (n_rows,)."""
        total, limits = _total(self._sums), self._limits
        left = np.full_like(total, np.inf)
        np.subtract(self._budget, total, out=left, where=~np.isposinf(self._budget))
        low = np.maximum(left, 0.0)
        if not self._by_profile:
            return low
        none = np.zeros_like(low)
        by_moment = (np.maximum(limits.moment, 0.0) + np.log(2.0)) / limits.order
        by_shift = np.sqrt(np.maximum(limits.gaussian, 0.0))
        high = np.maximum.reduce([self._budget, low, by_shift, by_moment])
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            fits = self._fits(
                self._sums.plus(self._costs("pure", slice(None), middle, none, middle, none))
            )
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return low

    def to_frame(self) -> pd.DataFrame:
        """Return one line for each row, by its id: budget, spent and remaining epsilon."""
        columns = {"budget": self._budget, "spent": self.spent, "remaining": self.remaining}
        return pd.DataFrame(columns, index=self.ids.rename("row"))

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self._budget.size} rows: {len(self._releases)} releases"
            f" have spent at most {self.spent.max():.6g} of epsilon on a row>"
        )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotSupportedError(
            f"a {type(self).__name__} cannot be copied or pickled, because copies would not share "
            "their charges. Use it in one process (n_jobs=1), or pass the account of "
            "a convexmarket.Ledger to each"
        )

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Refuse a release that some row cannot pay, without charging it.

        Parameters
        ----------
        guarantee : Guarantee
            Of the release, row by row. A row of epsilon zero is not used and pays nothing.
        rows : array_like of int, shape (n_used,), optional
            Positions, in this account, of the rows of the guarantee; all rows by default.

        Raises
        ------
        BudgetExceededError
            If the release would exceed a row's budget; the message names the row.
        ParameterError
            If the guarantee has another number of rows, a row is not in the account, or delta is
            positive and epsilon zero in every row.
        """
        self._after(guarantee, rows)

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release in full, or refuse it and charge nothing.

        Parameters and errors are those of :meth:`check`.
        """
        with self._lock:
            self._sums = self._after(guarantee, rows)
            largest = float(guarantee.epsilon.max(initial=0.0))
            self._releases.append((guarantee.mechanism, largest, guarantee.delta))

    def bring_forward(
        self,
        rows: ArrayLike,
        epsilon: ArrayLike,
        delta: ArrayLike,
        law: Law = "pure",
        shift: ArrayLike | None = None,
        failure: ArrayLike | None = None,
    ) -> None:
        """Add earlier charges, for instance from a database, even beyond the budget.

        Parameters
        ----------
        rows : array_like of int, shape (n_charges,)
            Positions of rows in this account; repetitions are allowed.
        epsilon, delta : array_like of shape (n_charges,)
            Guarantee of each charge.
        law, shift, failure
            Profile of each charge; by default that of a pure release.

        Raises
        ------
        ParameterError
            If the shapes differ, a row is not in the account or a number is negative.

        Examples
        --------
        >>> account = PrivacyAccountant([1.0, 2.0])
        >>> account.bring_forward([1, 1], [0.5, 0.25], [0.0, 0.0])
        >>> account.remaining
        array([1.  , 1.25])
        """
        at = np.asarray(rows, dtype=np.intp)
        shift, failure = epsilon if shift is None else shift, delta if failure is None else failure
        given = epsilon, delta, shift, failure
        charges = [checked_numbers("the charges", each) for each in given]
        if at.ndim != 1 or any(each.shape != at.shape for each in charges):
            raise ParameterError("rows and charges have different shapes; give a row per charge")
        if not np.all((at >= 0) & (at < self._budget.size)):
            raise ParameterError(f"rows must be positions from 0 to {self._budget.size - 1}")
        if not np.all(np.array(charges) >= 0):
            raise ParameterError("epsilon and delta of earlier charges must be nonnegative")
        with self._lock:
            costs = self._costs(law, at, *charges)
            sums = _Sums(*(each.copy() for each in self._sums))
            for total, cost in zip(sums[:-1], costs[:-1], strict=True):
                np.add.at(total, at, cost)
            np.maximum.at(sums.largest, at, costs.largest)
            self._sums = sums

    def add_rows(self, ids: pd.Index) -> None:
        """Add rows with these ids, and with the budget and the charges of the first row."""

        def longer(values: Floats) -> Floats:
            return np.r_[values, np.full(len(ids), values[0])]

        with self._lock:
            self._ids, self._budget = self.ids.append(ids), longer(self._budget)
            self._budget.setflags(write=False)
            self._sums = _Sums(*map(longer, self._sums))
            self._limits = _Limits(*map(longer, self._limits))

    def _after(self, guarantee: Guarantee, rows: ArrayLike | None) -> _Sums:
        """Return the sums after the release, or refuse it."""
        check_instance("guarantee", guarantee, Guarantee)
        epsilon, profile = self._spread(guarantee.epsilon, rows), guarantee.profile
        used = epsilon > 0
        if guarantee.delta > 0 and not used.any():
            raise ParameterError(
                f"{guarantee.mechanism} has delta {guarantee.delta:g} and epsilon zero in every "
                "row; give the rows that are used a positive epsilon"
            )
        delta, failure = (np.where(used, p, 0.0) for p in (guarantee.delta, profile.failure))
        shift = self._spread(profile.shift, rows)
        costs = self._costs(profile.law, slice(None), epsilon, delta, shift, failure)
        sums = self._sums.plus(costs)
        refused = used & ~self._fits(sums)
        if refused.any():
            row = int(np.argmax(refused))
            self._refuse(
                f"{guarantee.mechanism} would exceed the budget of {np.count_nonzero(refused)} of"
                f" {refused.size} rows: {self._name(row)} has spent {self.spent[row]:.6g} of"
                f" epsilon {self._budget[row]:.6g}, and this release needs {epsilon[row]:.6g}.",
                "buy more privacy, or release with a smaller epsilon",
            )
        limited = np.isfinite(self._budget)  # rows with an infinite budget have no guarantee
        risky = used & limited & (sums.failure > self._failures * (1.0 + ROUNDING))
        if risky.any():
            row = int(np.argmax(risky))
            tenth = "; such releases may use a tenth of it unless composition is 'basic'"
            self._refuse(
                f"{guarantee.mechanism} would exceed the delta of {np.count_nonzero(risky)} of"
                f" {risky.size} rows: {self._name(row)} has spent {self._sums.failure[row]:.6g} of"
                f" {self._failures:.6g} (the account's delta is {self._delta:g}), and this release"
                f" needs {max(delta.max(), failure.max()):.6g}.",
                f"use a smaller delta, or an account with a larger one"
                f"{tenth if self._by_profile else ''}",
            )
        return sums

    def _refuse(self, reason: str, remedy: str) -> NoReturn:
        raise BudgetExceededError(f"{reason} Nothing was charged or released: {remedy}")

    def _costs(
        self,
        law: Law,
        rows: NDArray[np.intp] | slice,
        epsilon: Floats,
        delta: Floats,
        shift: Floats,
        failure: Floats,
    ) -> _Sums:
        """Compute the costs of charges to these rows; delta is used under "basic" only."""
        none = np.zeros(())
        if not self._by_profile:
            return _Sums(epsilon, delta, none, none, none, none, none, none)
        square = shift**2
        costs = moment(law, self._limits.order[rows], shift)
        if law == "gaussian":
            return _Sums(none, failure, square, square, none, square, costs, none)
        coarse = square * (np.pi / 2.0)
        sharp = square * (1.0 - shift / 6.0) if law == "laplace" else square * (1.0 + square / 8.0)
        small = shift <= LARGEST_SMALL
        whole, sharp = np.where(small, sharp, coarse), np.where(small, sharp, 0.0)
        return _Sums(shift, failure, none, whole, sharp**2, coarse, costs, sharp)

    def _fits(self, sums: _Sums) -> NDArray[np.bool_]:
        """Check for each row whether one of the sums is within its limit."""
        more, limits = 1.0 + ROUNDING, self._limits
        fits = _total(sums) <= self._budget * more
        if self._by_profile and not fits.all():
            fits |= sums.moment <= limits.moment * more
            fits |= _gaussian_square(sums) <= limits.gaussian * more
            half = sums.epsilon <= self._budget / 2.0 * more
            fits |= half & (sums.gaussian <= limits.half * more)
        return fits

    def _name(self, row: int) -> str:
        return f"row {row}" if self._ids is None else f"row {self._ids[row]!r}"

    def _spread(self, values: Floats, rows: ArrayLike | None) -> Floats:
        """Return values of the guarantee's rows in every row of the account."""
        if rows is None:
            if values.size != self._budget.size:
                raise ParameterError(
                    f"the guarantee covers {values.size} rows, but the account has "
                    f"{self._budget.size}; pass rows=, their positions in the account"
                )
            return values
        places = np.asarray(rows)
        if places.shape != values.shape or (places.size and places.dtype.kind not in "iu"):
            raise ParameterError(
                f"rows must contain {values.size} integers, one per row of the guarantee"
            )
        known = (places >= 0) & (places < self._budget.size)
        if not known.all() or np.unique(places).size < places.size:
            raise ParameterError(
                f"rows must be different positions from 0 to {self._budget.size - 1}"
            )
        spread = np.zeros_like(self._budget)
        spread[places.astype(np.intp)] = values
        return spread


def _total(sums: _Sums) -> Floats:
    """Add up the epsilons; Gaussian releases have none."""
    return np.where(sums.gaussian > 0, np.inf, sums.epsilon)


def _gaussian_square(sums: _Sums) -> Floats:
    """Bound the squared shift of Gaussian noise equivalent to all releases, reserve r included.

    While the reserve is left, a release costs :math:`e^2 + e^4/(4 r)`.
    """
    reserve = np.maximum(np.sqrt(sums.quartic) / 2.0, 2.25 * sums.largest)
    extra = np.divide(sums.quartic, 4.0 * reserve, out=np.zeros_like(reserve), where=reserve > 0)
    return np.minimum(sums.square + extra + reserve, sums.coarse)


def _limits(budget: Floats, delta: float) -> _Limits:
    """Compute the limits of the sums; the order of the moment is best for many small releases."""
    limits = _Limits(*np.full((len(_Limits._fields), budget.size), -np.inf))
    limits.order[:], limits.short[:] = 1.0, np.inf
    counted = (budget > LEAST_BUDGET) & np.isfinite(budget) & (delta > 0)
    if counted.any():
        some = budget[counted]
        limits.gaussian[counted] = gaussian_shift(some, GAUSSIAN * delta) ** 2
        limits.half[counted] = gaussian_shift(some, HALF * delta, some / 2.0) ** 2
        log = np.log(1.0 / (MOMENT * delta))
        order = (log + np.sqrt(log) * np.sqrt(log + some)) / some
        limits.order[counted] = order
        limits.short[counted] = conversion(order, MOMENT * delta)
        limits.moment[counted] = order * some - limits.short[counted]
    return limits


def _names(ids: Sequence[str], n_rows: int) -> pd.Index:
    """Return ids in their stored form, after checking that each row has one."""
    if isinstance(ids, str) or not is_iterable(ids):
        raise ParameterError(f"ids must be a name for each row, got {ids!r}")
    names = pd.Index(forms_of(list(ids)), dtype=object)
    if len(names) != n_rows:
        raise ParameterError(f"ids names {len(names)} rows, and epsilon has {n_rows}")
    if not names.is_unique:
        raise ParameterError(
            f"ids contains {names[names.duplicated()][0]!r} twice; give one row per id"
        )
    return names
