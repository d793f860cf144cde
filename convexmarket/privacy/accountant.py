r"""Account for the privacy loss of each row over several releases.

The account of each row has five sums, which bound the privacy loss of its releases in different
ways. A release is accepted if one of these sums is within its limit (docs/theory.md, section 12).
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypeAlias, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_choice, check_instance, checked_numbers, distinct_ids
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
Places = NDArray[np.intp]

#: Factor by which limits are enlarged to allow for the rounding errors of sums.
ROUNDED = 1.0 + 1e-12
#: Up to this budget, only the sum of epsilons is limited, and profiles are not composed.
LEAST_BUDGET = 1e-200
#: Shares of delta for the sums. Keys of SPLITS: shares of the budget for non-Gaussian releases.
GAUSSIAN, MOMENT, FAILURES, SPLITS = 0.65, 0.20, 0.10, {0.5: 0.04, 0.75: 0.01}
#: Up to this shift, a non-Gaussian release costs less than pi/2 times its squared shift.
LARGEST_SMALL = 1.0


@runtime_checkable
class Account(Protocol):
    """An account to which releases are charged, in memory or in a ledger."""

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Check a release against the budget of each row, without charging the release."""

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release to all its rows, or raise an error and charge no row."""


class _Sums(NamedTuple):
    """Sums of the privacy costs of all releases for each row, shape (n_rows,)."""

    epsilon: Floats  # epsilons of non-Gaussian releases
    failure: Floats
    gaussian: Floats  # squared shifts of Gaussian releases
    square: Floats  # squared shifts, plus e^2 of non-Gaussian releases
    quartic: Floats  # e^4 of non-Gaussian releases
    coarse: Floats  # squared shifts, plus pi/2 e^2 of non-Gaussian releases
    moment: Floats
    largest: Floats  # maximum of e^2 over non-Gaussian releases

    @property
    def total(self) -> Floats:
        """Sum of the epsilons. It is infinite after a Gaussian release, which has no epsilon."""
        return np.where(self.gaussian > 0, np.inf, self.epsilon)

    @property
    def gaussian_square(self) -> Floats:
        """Squared shift of one Gaussian release that bounds the privacy loss of all releases."""
        reserve = np.maximum(np.sqrt(self.quartic) / 2.0, 2.25 * self.largest)
        extra = self.quartic / np.maximum(4.0 * reserve, np.finfo(np.float64).tiny)
        return np.minimum(self.square + extra + reserve, self.coarse)


class _Limits(NamedTuple):
    """Limits of the sums, shape (n_rows,). The limit of an unused sum is minus infinity."""

    gaussian: Floats  # limits of the squared shifts
    split: Floats  # limits of squared shifts for each key of SPLITS, shape (n_rows, n_keys)
    order: Floats  # order of the moment, or 1 if the moment is not used
    moment: Floats


class PrivacyAccountant(Shown):
    """Privacy budgets of the rows of one data set, and the releases charged to them.

    Parameters
    ----------
    epsilon : array_like of shape (n_rows,)
        Nonnegative budget of each row, in nats. Infinity means no limit.
    delta : float, default 0.0
        Probability with which the budget of a row can be exceeded, at least 0 and below 1.
    composition : {"advanced", "basic"}, default "advanced"
        If ``"basic"``, epsilons and deltas are added up. If ``"advanced"``, four sums of the
        profiles are also computed, and a release is accepted if one of the five sums is within its
        limit. The failure probabilities of releases can use at most a tenth of ``delta``.
    ids : sequence of str, optional
        Distinct ids of the rows. The default is their positions.

    Attributes
    ----------
    budget : ndarray of shape (n_rows,)
    delta, composition, ids

    Raises
    ------
    ParameterError
        If an argument is out of range.
    SellersError
        If ids are not distinct, or their number is wrong.

    Notes
    -----
    Releases, their profiles and their order may depend on the rows only through earlier answers.
    The proof is in docs/theory.md, section 12.

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
    """

    def __init__(
        self,
        epsilon: ArrayLike,
        delta: float = 0.0,
        *,
        composition: AccountComposition = "advanced",
        ids: Sequence[str] | None = None,
    ) -> None:
        self.budget: Floats = np.array(checked_numbers("epsilon", epsilon))
        if self.budget.ndim != 1 or not self.budget.size or not np.all(self.budget >= 0):
            raise ParameterError(
                f"epsilon must be a nonempty vector, one budget >= 0 per row, got {epsilon!r:.80}"
            )
        self.budget.setflags(write=False)
        check_choice("composition", composition, AccountComposition)
        self.delta, self.composition = check_delta(delta), composition
        self.ids = pd.Index(distinct_ids(ids, self.budget.size))
        self._by_profile = composition == "advanced" and self.delta > 0
        self._failures = self.delta * (FAILURES if composition == "advanced" else 1.0)
        self._limits = _limits(self.budget, self.delta if self._by_profile else 0.0)
        self._sums = _Sums(*np.zeros((len(_Sums._fields), self.budget.size)))
        self._releases: list[tuple[str, float, float]] = []
        self._lock = Lock()

    @property
    def releases(self) -> tuple[tuple[str, float, float], ...]:
        """Description, largest epsilon and delta of each charged release."""
        return tuple(self._releases)

    @property
    def spent(self) -> Any:
        """Smallest proven epsilon of the composition of all releases, shape (n_rows,)."""
        return self._spent()

    def _spent(self) -> Floats:
        sums, limits = self._sums, self._limits
        if not self._by_profile:
            return sums.total
        by_moment = (sums.moment + conversion(limits.order, MOMENT * self.delta)) / limits.order
        by_moment = np.where(np.isneginf(limits.moment), np.inf, np.maximum(by_moment, 0.0))
        by_shift = gaussian_epsilon(np.sqrt(sums.gaussian_square), GAUSSIAN * self.delta)
        least = np.minimum.reduce([sums.total, by_moment, by_shift])
        return np.where(self._fits(sums), np.minimum(least, self.budget), least)

    @property
    def spent_delta(self) -> Floats:
        """Total delta of all releases, including the delta of the composition."""
        composed = self._spent() < self._sums.total
        return self._sums.failure + np.where(composed, self.delta - self._failures, 0.0)

    @property
    def remaining(self) -> Floats:
        """Largest epsilon allowed for another release of delta zero, shape (n_rows,)."""
        total = np.where(np.isposinf(self.budget), 0.0, self._sums.total)
        low, limits = np.maximum(self.budget - total, 0.0), self._limits
        if not self._by_profile:
            return low
        everyone, none = np.arange(low.size), np.zeros_like(low)
        by_moment = (np.maximum(limits.moment, 0.0) + np.log(2.0)) / limits.order
        high = np.maximum.reduce([self.budget, np.sqrt(limits.gaussian.clip(0.0)), by_moment])
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            fits = self._fits(self._with(everyone, "pure", middle, none, middle, none))
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return low

    def to_frame(self) -> pd.DataFrame:
        """Return the budget, spent epsilon and remaining epsilon of each row, with ids as index."""
        columns = {"budget": self.budget, "spent": self._spent(), "remaining": self.remaining}
        return pd.DataFrame(columns, index=self.ids.rename("row"))

    def __repr__(self) -> str:
        about = f"{self.budget.size} rows: {len(self._releases)} releases have spent at most"
        return f"<{type(self).__name__} of {about} {self._spent().max():.6g} of epsilon on a row>"

    def __getstate__(self) -> NoReturn:
        raise NotSupportedError(
            f"a {type(self).__name__} cannot be copied or pickled, because copies would not share"
            " charges. Use one process (n_jobs=1), or the account of a convexmarket.Ledger"
        )

    def check(self, guarantee: Guarantee, rows: Any = None) -> None:
        """Check a release against the budget of each row, without charging the release.

        Parameters
        ----------
        guarantee : Guarantee
            Guarantee of the release. A row with epsilon zero is not charged.
        rows : array_like of int, shape (n_used,), optional
            Positions of the guarantee's rows in this account. The default is all rows.

        Raises
        ------
        BudgetExceededError
            If the release would exceed the budget of a row.
        ParameterError
            If the rows do not match the account, or delta is positive but all epsilons are zero.
        """
        self._after(guarantee, rows)

    def charge(self, guarantee: Guarantee, rows: Any = None) -> None:
        """Charge a release, or raise the errors of :meth:`check` and charge no row."""
        with self._lock:
            self._sums = self._after(guarantee, rows)
            largest = float(guarantee.epsilon.max(initial=0.0))
            self._releases.append((guarantee.mechanism, largest, guarantee.delta))

    def bring_forward(self, rows: ArrayLike, law: Law, *charges: ArrayLike) -> None:
        """Add earlier charges whose profiles have this law, even if they exceed the budget.

        The arrays have one entry for each charge. ``rows`` can repeat positions.
        """
        with self._lock:
            self._sums = self._with(np.asarray(rows, dtype=np.intp), law, *charges)

    def _after(self, guarantee: Guarantee, rows: Any) -> _Sums:
        check_instance("guarantee", guarantee, Guarantee)
        epsilon, profile = guarantee.epsilon, guarantee.profile
        places, used = self._places(epsilon.size, rows), epsilon > 0
        if guarantee.delta > 0 and not used.any():
            text = f"{guarantee.mechanism} has delta {guarantee.delta:g} and epsilon 0 in every row"
            raise ParameterError(f"{text}; give the rows that are used a positive epsilon")
        delta, failure = (np.where(used, p, 0.0) for p in (guarantee.delta, profile.failure))
        sums = self._with(places, profile.law, epsilon, delta, profile.shift, failure)
        refused = used & ~self._fits(sums)[places]
        if refused.any():
            row = places[refused].min()
            need, lost = (each[places == row][0] for each in (epsilon, np.maximum(delta, failure)))
            text = f"{guarantee.mechanism} would exceed the budget of {refused.sum()} of"
            text += f" {self.budget.size} rows: row {self.ids[row]!r} has spent"
            text += f" {self._spent()[row]:.6g} of epsilon {self.budget[row]:.6g}, and this release"
            text += f" needs {need:.6g}"
            if lost > 0:
                text += f"; it has spent {self._sums.failure[row]:.6g} of delta"
                text += f" {self._failures:.6g}, and this release needs {lost:.6g}"
            if lost > 0 and self._by_profile:
                text += " (such releases can use a tenth of delta unless composition is 'basic')"
            raise BudgetExceededError(
                f"{text}. Nothing was charged or released: buy more privacy, or release with a"
                " smaller epsilon or delta"
            )
        return sums

    def _with(self, rows: Places, law: Law, *charges: ArrayLike) -> _Sums:
        """Add charges to the sums of their rows, as described in :meth:`bring_forward`."""
        epsilon, delta, shift, failure = (np.asarray(each, dtype=np.float64) for each in charges)
        costs: dict[str, Floats] = {"epsilon": epsilon, "failure": delta}
        if self._by_profile:
            square = shift**2
            costs = {"failure": failure, "moment": moment(law, self._limits.order[rows], shift)}
            if law == "gaussian":
                costs |= {"gaussian": square, "square": square, "coarse": square}
            else:
                coarse, small = square * (np.pi / 2.0), shift <= LARGEST_SMALL
                bend = 1.0 - shift / 6.0 if law == "laplace" else 1.0 + square / 8.0
                sharp = np.where(small, square * bend, 0.0)
                costs |= {"epsilon": shift, "coarse": coarse, "quartic": sharp**2}
                costs |= {"square": np.where(small, sharp, coarse), "largest": sharp}
        sums = _Sums(*(total.copy() for total in self._sums))
        for name, cost in costs.items():
            add = np.maximum if name == "largest" else np.add
            add.at(getattr(sums, name), rows, cost)
        return sums

    def _fits(self, sums: _Sums) -> NDArray[np.bool_]:
        limits = self._limits
        fits = sums.total <= self.budget * ROUNDED
        if self._by_profile and not fits.all():
            fits |= sums.moment <= limits.moment * ROUNDED
            fits |= sums.gaussian_square <= limits.gaussian * ROUNDED
        if self._by_profile and not fits.all():
            parts = sums.epsilon[:, None] <= self.budget[:, None] * [*SPLITS] * ROUNDED
            fits |= (parts & (sums.gaussian[:, None] <= limits.split * ROUNDED)).any(axis=1)
        # rows with an infinite budget have no limit
        return fits & ((sums.failure <= self._failures * ROUNDED) | np.isposinf(self.budget))

    def _places(self, count: int, rows: Any) -> Places:
        n_rows = self.budget.size
        places = np.arange(n_rows) if rows is None else np.asarray(rows)
        valid = places.shape == (count,) and (not count or places.dtype.kind in "iu")
        if not valid or pd.unique(places[(places >= 0) & (places < n_rows)]).size < count:
            text = f"the guarantee covers {count} rows, and the account has {n_rows}; pass rows=, a"
            raise ParameterError(f"{text} list of {count} distinct integers from 0 to {n_rows - 1}")
        return places.astype(np.intp)


def _limits(budget: Floats, delta: float) -> _Limits:
    """Compute the limits of the sums, with the best order of the moment for many small releases."""
    never, split = np.full((2, budget.size), -np.inf), np.full((budget.size, len(SPLITS)), -np.inf)
    limits = _Limits(never[0], split, np.ones(budget.size), never[1])
    counted = (budget > LEAST_BUDGET) & np.isfinite(budget) & (delta > 0)
    if counted.any():
        some = budget[counted]
        parts, shares = np.array([(0.0, GAUSSIAN), *SPLITS.items()]).T
        shifts = gaussian_shift(some[:, None], shares * delta, some[:, None] * parts)
        limits.gaussian[counted], limits.split[counted] = shifts[:, 0] ** 2, shifts[:, 1:] ** 2
        log = np.log(1.0 / (MOMENT * delta))
        order = (log + np.sqrt(log) * np.sqrt(log + some)) / some
        limits.order[counted] = order
        limits.moment[counted] = order * some - conversion(order, MOMENT * delta)
    return limits
