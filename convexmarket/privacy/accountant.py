r"""Accounts of all releases about the same rows, row by row.

A seller sold a bound on everything that is ever computed from a row. A release states its
:class:`~convexmarket.privacy.Guarantee`; an account adds up guarantees by their profiles, and
refuses the release that would exceed any row's budget before its noise is drawn.

The account adds up, over all releases that use a row: their epsilons; :math:`\mu^2` of Gaussian
releases; :math:`e^2` and :math:`e^4` of the others, where :math:`e` is the shift of the Gaussian
noise that stands for them while enough of the budget is left; and a moment. It admits a release if
one of four sums keeps to its limit. The proof is in docs/theory.md, section 12.
"""

from __future__ import annotations

from collections import Counter
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

from convexmarket.checks import check_choice, check_instance, checked_numbers, forms_of
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

#: Relative; sums of what was sold in parts may exceed the whole by rounding.
ROUNDING = 1e-12
#: Budgets below it only add up epsilons: no order of a moment is that large.
LEAST_BUDGET = 1e-200
#: Shares of delta under "advanced": for Gaussian noise, for the moment, for Gaussian noise next to
#: a pure release of half the budget, and for releases that may fail.
GAUSSIAN, MOMENT, HALF, FAILURES = 0.65, 0.20, 0.05, 0.10
#: Largest epsilon, or shift of Laplace noise, with a sharper cost than pi/2 of its square.
LARGEST_SMALL = 1.0


@runtime_checkable
class Account(Protocol):
    """The account of a release: in memory, or kept by a ledger."""

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Refuse a release that some row cannot pay, without charging it."""

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release in full, or refuse it and charge nothing."""


class _Sums(NamedTuple):
    """Costs of one release, or of all releases together, of shape (n_rows,) or zero."""

    epsilon: Floats  # of releases that are not Gaussian
    failure: Floats
    gaussian: Floats  # squared shifts of Gaussian releases
    square: Floats  # the same, and e^2 of the others
    quartic: Floats  # e^4 of the others
    coarse: Floats  # as square, with pi/2 of the squared epsilon
    moment: Floats
    largest: Floats  # e^2 of the largest of the others

    def plus(self, other: _Sums) -> _Sums:
        total = _Sums(*(one + two for one, two in zip(self, other, strict=True)))
        return total._replace(largest=np.maximum(self.largest, other.largest))


class _Limits(NamedTuple):
    """Limits of the sums, each of shape (n_rows,); minus infinity where a sum does not count."""

    gaussian: Floats  # of the squared shifts
    half: Floats  # of the squared shifts next to half of the epsilon
    order: Floats  # of the moment; one where it does not count
    moment: Floats
    short: Floats  # of the moment, compared with order times epsilon


class PrivacyAccountant(Shown):
    r"""Account of what every row may still lose, under all releases together.

    Parameters
    ----------
    epsilon : array_like of shape (n_rows,)
        Budget of each row, in nats: what its owner sold. Nonnegative; a row of budget zero may not
        be used at all.
    delta : float, default 0.0
        Probability with which a row's epsilon may be exceeded, at least 0 and below 1; the same for
        all rows.
    composition : {"advanced", "basic"}, default "advanced"
        How guarantees add up. ``"basic"``: epsilons add up to the budget, and deltas to ``delta``.
        ``"advanced"``: by their profiles. A release is admitted if the epsilons add up to the
        budget, or if one of three sums with shares of ``delta`` keeps to its limit. A Gaussian or
        Laplace release costs nothing of ``delta``. Releases that may fail use a tenth of it in all.
        The composition is fixed here, once, and cannot follow the answers.
    ids : sequence of str, optional
        Distinct ids of the rows, shape (n_rows,), which messages name; positions by default.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    Releases, their profiles and their order may depend on earlier answers: the sums are filters.
    Gaussian releases: Smith and Thakurta, Fully Adaptive Composition for Gaussian Differential
    Privacy; row by row: Koskela, Tobaben and Honkela, Individual Privacy Accounting with Gaussian
    Differential Privacy; the moment: Feldman and Zrnic, Individual Privacy Accounting via a Rényi
    Filter. docs/theory.md, section 12, proves that pure and Laplace releases may be added to the
    sum of Gaussian ones, that any of the sums may hold, and that a budget may grow. Interactive
    releases may be asked side by side (Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang,
    Concurrent Composition for Interactive Differential Privacy with Adaptive Privacy-Loss
    Parameters). Weights and budgets of later releases may not depend on the rows in any other way.

    Examples
    --------
    >>> account = PrivacyAccountant([1.0, 2.0])
    >>> account.charge(Guarantee([0.6, 0.6], 0.0, "first", "tight", ()))
    >>> account.remaining
    array([0.4, 1.4])
    >>> account.charge(Guarantee([0.6, 0.6], 0.0, "second", "tight", ()))
    Traceback (most recent call last):
        ...
    convexmarket.errors.BudgetExceededError: second would exceed what 1 of 2 rows sold...
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
        names = None if ids is None else _names(ids)
        if names is not None and len(names) != budget.size:
            raise ParameterError(f"ids names {len(names)} rows, and epsilon has {budget.size}")
        self._delta = check_delta(delta)
        self._composition = composition
        budget.setflags(write=False)
        self._budget = budget
        self._ids = names
        self._by_profile = composition == "advanced" and self._delta > 0
        self._failures = self._delta * (FAILURES if composition == "advanced" else 1.0)
        self._limits = _limits(budget, self._delta if self._by_profile else 0.0)
        self._sums = _Sums(*np.zeros((len(_Sums._fields), budget.size)))
        self._releases: list[tuple[str, float, float]] = []
        self._lock = Lock()

    @property
    def budget(self) -> Floats:
        """Epsilon that each row sold, shape (n_rows,)."""
        return self._budget

    @property
    def delta(self) -> float:
        """Probability with which a row's epsilon may be exceeded."""
        return self._delta

    @property
    def composition(self) -> AccountComposition:
        """How guarantees add up."""
        return self._composition

    @property
    def spent(self) -> Floats:
        """Epsilon of all releases together, row by row, shape (n_rows,).

        The smallest epsilon that is proven here: at most the sum, and at most the budget.
        """
        sums, limits = self._sums, self._limits
        epsilon = self._total(sums)
        counted = np.isfinite(limits.short)
        if counted.any():
            by_moment = (sums.moment[counted] + limits.short[counted]) / limits.order[counted]
            shift = np.sqrt(_gaussian_square(sums)[counted])
            by_shift = gaussian_epsilon(shift, GAUSSIAN * self._delta)
            epsilon = epsilon.copy()
            least = np.minimum(np.maximum(by_moment, 0.0), by_shift)
            epsilon[counted] = np.minimum(epsilon[counted], least)
            fits = counted & self._fits(sums) & (epsilon > self._budget)
            epsilon[fits] = self._budget[fits]
        return epsilon

    @property
    def spent_delta(self) -> Floats:
        """Delta of all releases together, with that of the composition where it uses it."""
        composed = self.spent < self._total(self._sums)
        return self._sums.failure + np.where(composed, self._delta - self._failures, 0.0)

    @property
    def remaining(self) -> Floats:
        """Largest epsilon that one more release of delta zero may have, shape (n_rows,)."""
        total = self._total(self._sums)
        left = np.full_like(total, np.inf)
        np.subtract(self._budget, total, out=left, where=~np.isposinf(self._budget))
        left = np.maximum(left, 0.0)
        if not self._by_profile:
            return left
        none = np.zeros_like(left)
        shift = np.sqrt(np.maximum(self._limits.gaussian, 0.0))
        order = (np.maximum(self._limits.moment, 0.0) + np.log(2.0)) / self._limits.order
        low, high = left, np.maximum(np.maximum(self._budget, left), np.maximum(shift, order))
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            fits = self._fits(self._sums.plus(self._costs(middle, none, middle, none)))
            low, high = np.where(fits, middle, low), np.where(fits, high, middle)
        return low

    @property
    def releases(self) -> tuple[tuple[str, float, float], ...]:
        """Charged releases: the mechanism, its largest epsilon, its delta."""
        return tuple(self._releases)

    def to_frame(self) -> pd.DataFrame:
        """Return one line for each row, by its id: budget, spent and remaining epsilon."""
        index = pd.RangeIndex(self._budget.size) if self._ids is None else pd.Index(self._ids)
        columns = {"budget": self._budget, "spent": self.spent, "remaining": self.remaining}
        return pd.DataFrame(columns, index=index.rename("row"))

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self._budget.size} rows: {len(self._releases)} releases"
            f" have spent at most {self.spent.max():.6g} of epsilon on a row>"
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
            for total, after in zip(self._sums, self._after(guarantee, rows), strict=True):
                total[:] = after
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
        """Add charges that were made before, to an account that is kept elsewhere.

        The charges are facts: they count even where they exceed a budget, and nothing is left then.

        Parameters
        ----------
        rows : array_like of int, shape (n_charges,)
            Positions in this account; a row that several releases used occurs several times.
        epsilon, delta : array_like of shape (n_charges,)
            Guarantee of each charge.
        law : {"pure", "laplace", "gaussian"}, default "pure"
            Profile of the charges, see :class:`~convexmarket.privacy.Profile`.
        shift, failure : array_like of shape (n_charges,), optional
            Of the profile; by default ``epsilon`` and ``delta``.

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
        places = checked_numbers("rows", rows)
        if not np.array_equal(places, np.floor(places)):
            raise ParameterError(f"rows must be positions in the account, got {rows!r}")
        charged, deltas = checked_numbers("epsilon", epsilon), checked_numbers("delta", delta)
        shifts = charged if shift is None else checked_numbers("shift", shift)
        failures = deltas if failure is None else checked_numbers("failure", failure)
        charges = charged, deltas, shifts, failures
        if places.ndim != 1 or any(each.shape != places.shape for each in charges):
            raise ParameterError(
                f"rows, epsilon and delta have shapes {places.shape}, {charges[0].shape} and "
                f"{charges[1].shape}; give one entry of each per charge"
            )
        if not np.all((places >= 0) & (places < self._budget.size)):
            raise ParameterError(f"rows must be positions from 0 to {self._budget.size - 1}")
        if not all(np.all(each >= 0) for each in charges):
            raise ParameterError("epsilon and delta of earlier charges must be nonnegative")
        at = places.astype(np.intp)
        with self._lock:
            costs = self._costs(charged, deltas, shifts, failures, law, at)
            sums = _Sums(*(each.copy() for each in self._sums))
            for total, cost in zip(sums[:-1], costs[:-1], strict=True):
                np.add.at(total, at, cost)
            np.maximum.at(sums.largest, at, costs.largest)
            self._sums = sums

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotSupportedError(
            f"a {type(self).__name__} cannot be copied or pickled: what one copy is charged, the "
            "other would not know of. Charge it in one process (n_jobs=1), or pass the account of "
            "a convexmarket.Ledger to each"
        )

    def _after(self, guarantee: Guarantee, rows: ArrayLike | None) -> _Sums:
        """Return the sums after the release, or refuse it."""
        prices = self._prices(guarantee, rows)
        used = prices.epsilon + prices.gaussian > 0
        if guarantee.delta > 0 and not used.any():
            raise ParameterError(
                f"{guarantee.mechanism} has delta {guarantee.delta:g} and epsilon zero in every "
                "row, but a row of epsilon zero is not used; give used rows a positive epsilon"
            )
        sums = self._sums.plus(prices)
        refused = used & ~self._fits(sums)
        if refused.any():
            raise BudgetExceededError(self._refusal(guarantee, rows, refused))
        risky = used & (sums.failure > self._failures * (1.0 + ROUNDING))
        if risky.any():
            row = int(np.argmax(risky))
            share = ", a tenth of which is for such releases unless composition is 'basic'"
            raise BudgetExceededError(
                f"{guarantee.mechanism} would exceed the delta of {np.count_nonzero(risky)} of "
                f"{risky.size} rows: {self._name(row)} has spent {self._sums.failure[row]:.6g} of "
                f"{self._failures:.6g} (the account's delta is {self._delta:g}), and "
                f"this release needs {float(np.max(prices.failure)):.6g}. Nothing was charged and "
                f"nothing released; use a smaller delta, or an account of a larger one"
                f"{share if self._by_profile else ''}"
            )
        return sums

    def _prices(self, guarantee: Guarantee, rows: ArrayLike | None) -> _Sums:
        """Compute what the release costs each row of the account."""
        check_instance("guarantee", guarantee, Guarantee)
        epsilon, profile = self._spread(guarantee.epsilon, rows), guarantee.profile
        risks = guarantee.delta, profile.failure
        delta, failure = (np.where(epsilon > 0, d, 0.0) if d else np.zeros(()) for d in risks)
        return self._costs(epsilon, delta, self._spread(profile.shift, rows), failure, profile.law)

    def _costs(
        self,
        epsilon: Floats,
        delta: Floats,
        shift: Floats,
        failure: Floats,
        law: Law = "pure",
        rows: NDArray[np.intp] | slice = slice(None),
    ) -> _Sums:
        """Compute the costs of charges to these rows; their delta counts under "basic" only."""
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
        """Check which rows keep to a limit."""
        more = 1.0 + ROUNDING
        fits = self._total(sums) <= self._budget * more
        if self._by_profile and not fits.all():
            limits = self._limits
            fits |= sums.moment <= limits.moment * more
            fits |= _gaussian_square(sums) <= limits.gaussian * more
            fits |= (sums.epsilon <= self._budget / 2.0 * more) & (
                sums.gaussian <= limits.half * more
            )
        return fits

    def _total(self, sums: _Sums) -> Floats:
        """Add up the epsilons; Gaussian releases have none."""
        return np.where(sums.gaussian > 0, np.inf, sums.epsilon)

    def _refusal(
        self, guarantee: Guarantee, rows: ArrayLike | None, refused: NDArray[np.bool_]
    ) -> str:
        row = int(np.argmax(refused))
        needed = self._spread(guarantee.epsilon, rows)
        return (
            f"{guarantee.mechanism} would exceed what {np.count_nonzero(refused)} of"
            f" {refused.size} rows sold: {self._name(row)} has spent {self.spent[row]:.6g} of"
            f" epsilon {self._budget[row]:.6g}, and this release needs {needed[row]:.6g}. Nothing"
            " was charged and nothing released: buy more, or release with a smaller epsilon."
        )

    def _name(self, row: int) -> str:
        return f"row {row}" if self._ids is None else f"row {row} ({self._ids[row]!r})"

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
        if places.shape != values.shape or not (
            np.issubdtype(places.dtype, np.integer) or not places.size
        ):
            raise ParameterError(
                f"rows must hold {values.size} integers, one per row of the guarantee"
            )
        known = (places >= 0) & (places < self._budget.size)
        if not known.all() or np.unique(places).size < places.size:
            raise ParameterError(
                f"rows must be different positions from 0 to {self._budget.size - 1}"
            )
        spread = np.zeros_like(self._budget)
        spread[places.astype(np.intp)] = values
        return spread

    def _repeat(self, row: int, count: int) -> None:
        """Add rows that stand as this one does."""
        with self._lock:
            budget = np.r_[self._budget, np.full(count, self._budget[row])]
            budget.setflags(write=False)
            self._budget = budget
            self._sums = _Sums(*(np.r_[each, np.full(count, each[row])] for each in self._sums))
            self._limits = _Limits(
                *(np.r_[each, np.full(count, each[row])] for each in self._limits)
            )


def _gaussian_square(sums: _Sums) -> Floats:
    """Bound the squared shift of the Gaussian noise that stands for all releases together.

    The reserve is part of it: while it is left, a release costs :math:`e^2 + e^4/(4 r)`.
    """
    reserve = np.maximum(np.sqrt(sums.quartic) / 2.0, 2.25 * sums.largest)
    extra = np.divide(sums.quartic, 4.0 * reserve, out=np.zeros_like(reserve), where=reserve > 0)
    return np.minimum(sums.square + extra + reserve, sums.coarse)


def _limits(budget: Floats, delta: float) -> _Limits:
    """Compute the limits of the sums for these budgets; none counts where delta is zero.

    The order of the moment is the best one where many small releases use up the budget.
    """
    limits = _Limits(*np.full((len(_Limits._fields), budget.size), -np.inf))
    limits.order[:] = 1.0
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


def _names(ids: Sequence[str]) -> tuple[str, ...]:
    try:
        names = tuple(forms_of(list(ids)))
    except TypeError:
        raise ParameterError(f"ids must be a name for each row, got {ids!r}") from None
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ParameterError(f"ids has {twice!r} twice; give one row per id")
    return names
