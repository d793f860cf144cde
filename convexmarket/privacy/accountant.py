"""One account of what several releases reveal about the same rows, row by row.

What a seller sold is a bound on everything that is ever computed from that row. A release states
its :class:`~convexmarket.privacy.Guarantee`; the accountant adds guarantees up and refuses the
release that would exceed any row's budget, before it draws its noise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from threading import Lock
from typing import Literal, NoReturn, Protocol, SupportsIndex, TypeAlias, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_choice, check_instance, checked_numbers, forms_of
from convexmarket.display import Shown
from convexmarket.errors import BudgetExceededError, NotSupportedError, ParameterError
from convexmarket.privacy.checks import check_delta
from convexmarket.privacy.composition import BISECTIONS, conversion, pure_moment
from convexmarket.privacy.guarantee import Guarantee

__all__ = ["Account", "AccountComposition", "PrivacyAccountant"]

AccountComposition: TypeAlias = Literal["basic", "advanced"]

Floats = NDArray[np.float64]

#: Relative; sums of what was sold in parts may exceed the whole by rounding.
ROUNDING = 1e-12
#: Below it only epsilons are added up: no order is that large.
LEAST_BUDGET = 1e-200


@runtime_checkable
class Account(Protocol):
    """What a release is charged to: an account in memory, or one that a ledger keeps."""

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Refuse a release that some row cannot pay, without charging it."""

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release in full, or refuse it and charge nothing."""


class PrivacyAccountant(Shown):
    r"""What every row may still lose, under all releases together.

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
        ``"advanced"``: half of ``delta`` is kept for the composition, the deltas of releases add up
        to the other half, and a release is paid for if either the epsilons add up to the budget, or
        the moments of the privacy loss do, of one order that follows from budget and delta. So no
        epsilon is ever larger than under ``"basic"``, which is the same where ``delta`` is 0. It is
        settled here, once: who could choose after seeing answers would have more than either
        allows.
    ids : sequence of str, optional
        Distinct ids of the rows, shape (n_rows,), which messages name; positions by default.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    Releases, their epsilons and their order may depend on earlier answers: sums are filters against
    which the next release is held, not after-the-fact totals. Of the epsilons: Rogers, Roth, Ullman
    and Vadhan, Privacy Odometers and Filters; of a moment, row by row: Feldman and Zrnic,
    Individual Privacy Accounting via a Rényi Filter; that either of the two may hold, and that a
    budget may grow, is proven in docs/theory.md, section 12. Interactive releases may be asked side
    by side (Haney, Shoemate, Tian, Vadhan, Vyrros, Xu and Zhang, Concurrent Composition for
    Interactive Differential Privacy with Adaptive Privacy-Loss Parameters). Weights and budgets of
    later releases may not depend on the rows in any other way.

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
        self._slack = self._delta / 2.0 if composition == "advanced" else 0.0
        self._used = np.zeros_like(budget)  # sum of epsilons
        self._used_delta = np.zeros_like(budget)
        self._orders = _orders(budget, self._slack)
        self._moments = np.zeros_like(budget)  # sum of moments of these orders
        self._short = np.zeros_like(budget)  # by how much they fall short of order * epsilon
        self._room = np.full_like(budget, -np.inf)  # what they may add up to
        counted = self._orders > 0
        if counted.any():
            self._short[counted] = conversion(self._orders[counted], self._slack)
            most = self._orders[counted] * budget[counted]
            self._room[counted] = most - self._short[counted]
        self._releases: list[tuple[str, float, float]] = []
        self._lock = Lock()

    @property
    def budget(self) -> Floats:
        """What each row sold, shape (n_rows,)."""
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

        The smallest of what is proven here: at most the sum, and at most the budget.
        """
        return np.minimum(self._used, self._by_moments())

    @property
    def spent_delta(self) -> Floats:
        """Delta of all releases together, row by row; with the composition's where it has one."""
        return self._used_delta + np.where(self._by_moments() < self._used, self._slack, 0.0)

    @property
    def remaining(self) -> Floats:
        """Largest epsilon that one more release of delta zero may have, shape (n_rows,)."""
        left = np.maximum(_minus(self._budget, self._used), 0.0)
        room = np.maximum(_minus(self._room, self._moments), 0.0)
        return np.maximum(left, _pure_epsilon(self._orders, room))

    @property
    def releases(self) -> tuple[tuple[str, float, float], ...]:
        """What was charged: the mechanism, its largest epsilon, its delta."""
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
            self._used, self._moments, self._used_delta = self._after(guarantee, rows)
            largest = float(guarantee.epsilon.max(initial=0.0))
            self._releases.append((guarantee.mechanism, largest, guarantee.delta))

    def bring_forward(self, rows: ArrayLike, epsilon: ArrayLike, delta: ArrayLike) -> None:
        """Take over what was charged before, as an account that is kept elsewhere has it.

        The charges are facts: they count even where they exceed a budget, and nothing is left then.

        Parameters
        ----------
        rows : array_like of int, shape (n_charges,)
            Positions in this account; a row that several releases used stands several times.
        epsilon, delta : array_like of shape (n_charges,)
            What each release cost the row.

        Raises
        ------
        ParameterError
            If the shapes differ, a row is not in the account or an epsilon or delta is negative.

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
        if not places.shape == charged.shape == deltas.shape or places.ndim != 1:
            raise ParameterError(
                f"rows, epsilon and delta have shapes {places.shape}, {charged.shape} and "
                f"{deltas.shape}; give one entry of each per charge"
            )
        if not np.all((places >= 0) & (places < self._budget.size)):
            raise ParameterError(f"rows must be positions from 0 to {self._budget.size - 1}")
        if not (np.all(charged >= 0) and np.all(deltas >= 0)):
            raise ParameterError("epsilon and delta of earlier charges must be nonnegative")
        with self._lock:
            at = places.astype(np.intp)
            costs = charged, pure_moment(self._orders[at], charged), deltas
            sums = self._used.copy(), self._moments.copy(), self._used_delta.copy()
            for total, cost in zip(sums, costs, strict=True):
                np.add.at(total, at, cost)
            self._used, self._moments, self._used_delta = sums

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotSupportedError(
            f"a {type(self).__name__} cannot be copied or pickled: what one copy is charged, the "
            "other would not know of. Charge it in one process (n_jobs=1), or pass the account of "
            "a convexmarket.Ledger to each"
        )

    def _after(self, guarantee: Guarantee, rows: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
        """Return the sums of epsilons, moments and deltas after the release."""
        check_instance("guarantee", guarantee, Guarantee)
        check_delta(guarantee.delta)
        epsilon = self._spread(guarantee.epsilon, rows)
        if guarantee.delta > 0 and not epsilon.any():
            raise ParameterError(
                f"{guarantee.mechanism} has delta {guarantee.delta:g} and epsilon zero in every "
                "row, but a row of epsilon zero is not used; give used rows a positive epsilon"
            )
        used = self._used + epsilon
        moments = self._moments + pure_moment(self._orders, epsilon)
        used_delta = self._used_delta + np.where(epsilon > 0, guarantee.delta, 0.0)
        dear = (used > self._budget * (1.0 + ROUNDING)) & (epsilon > 0)
        dear &= moments > self._room * (1.0 + ROUNDING)
        if dear.any():
            raise BudgetExceededError(self._refusal(guarantee, epsilon, dear))
        room = (self._delta - self._slack) * (1.0 + ROUNDING)
        risky = (used_delta > room) & (epsilon > 0)
        if risky.any():
            row = int(np.argmax(risky))
            half = ", half of which goes to the composition unless that is 'basic'"
            half = half if self._slack else ""
            raise BudgetExceededError(
                f"{guarantee.mechanism} would exceed the delta of {np.count_nonzero(risky)} of "
                f"{risky.size} rows: {self._name(row)} has spent {self._used_delta[row]:.6g} of "
                f"{self._delta - self._slack:.6g} (the account's delta is {self._delta:g}), and "
                f"this release needs {guarantee.delta:.6g}. Nothing was charged and nothing "
                f"released; use a smaller delta, or an account of a larger one{half}"
            )
        return used, moments, used_delta

    def _refusal(self, guarantee: Guarantee, epsilon: Floats, dear: NDArray[np.bool_]) -> str:
        row = int(np.argmax(dear))
        spent = self.spent
        return (
            f"{guarantee.mechanism} would exceed what {np.count_nonzero(dear)} of {dear.size} rows"
            f" sold: {self._name(row)} has spent {spent[row]:.6g} of epsilon"
            f" {self._budget[row]:.6g}, and this release needs {epsilon[row]:.6g}. Nothing was"
            " charged and nothing released: buy more, or release with a smaller epsilon."
        )

    def _name(self, row: int) -> str:
        return f"row {row}" if self._ids is None else f"row {row} ({self._ids[row]!r})"

    def _spread(self, epsilon: Floats, rows: ArrayLike | None) -> Floats:
        """Return the guarantee in every row of the account."""
        if not np.all(epsilon >= 0):
            raise ParameterError("the guarantee has a negative or undefined epsilon")
        if rows is None:
            if epsilon.size != self._budget.size:
                raise ParameterError(
                    f"the guarantee covers {epsilon.size} rows, but the account has "
                    f"{self._budget.size}; pass rows=, their positions in the account"
                )
            return epsilon
        places = np.asarray(rows)
        if places.shape != epsilon.shape or not np.issubdtype(places.dtype, np.integer):
            raise ParameterError(
                f"rows must hold {epsilon.size} integers, one per row of the guarantee"
            )
        known = (places >= 0) & (places < self._budget.size)
        if not known.all() or np.unique(places).size < places.size:
            raise ParameterError(
                f"rows must be different positions from 0 to {self._budget.size - 1}"
            )
        spread = np.zeros_like(self._budget)
        spread[places] = epsilon
        return spread

    def _by_moments(self) -> Floats:
        """Return the epsilon that follows from the moments; infinity where only epsilons count."""
        short, none = self._moments + self._short, np.full_like(self._budget, np.inf)
        return np.maximum(np.divide(short, self._orders, out=none, where=self._orders > 0), 0.0)

    def _repeat(self, row: int, count: int) -> None:
        """Add rows that stand as this one does."""
        with self._lock:
            budget = np.r_[self._budget, np.full(count, self._budget[row])]
            budget.setflags(write=False)
            self._budget = budget
            for name in ("_used", "_used_delta", "_orders", "_moments", "_short", "_room"):
                values = getattr(self, name)
                setattr(self, name, np.r_[values, np.full(count, values[row])])


def _orders(budget: Floats, delta: float) -> Floats:
    """Return the order of the moment that is counted of each row; zero where none is.

    It is the best one where many small releases use up the budget (docs/theory.md, section 12).
    """
    orders = np.zeros_like(budget)
    if delta > 0:
        counted = (budget > LEAST_BUDGET) & np.isfinite(budget)
        log = np.log(1.0 / delta)
        root = np.sqrt(log) * np.sqrt(log + budget[counted])
        orders[counted] = (log + root) / budget[counted]
    return orders


def _pure_epsilon(orders: Floats, moments: Floats) -> Floats:
    """Return the largest epsilon of one release with such moments, rounded down; zero of none."""
    epsilon = np.zeros_like(orders)
    some = (orders > 0) & (moments > 0)
    order, room = orders[some], moments[some]
    low, high = np.zeros_like(order), (room + np.log(2.0)) / order  # moments grow by the order
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        fits = pure_moment(order, middle) <= room
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    epsilon[some] = low
    return epsilon


def _minus(limit: Floats, used: Floats) -> Floats:
    """Return what is left of a limit, of which infinity is never used up."""
    return np.subtract(limit, used, out=np.full_like(limit, np.inf), where=~np.isposinf(limit))


def _names(ids: Sequence[str]) -> tuple[str, ...]:
    try:
        names = tuple(forms_of(list(ids)))
    except TypeError:
        raise ParameterError(f"ids must be a name for each row, got {ids!r}") from None
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ParameterError(f"ids has {twice!r} twice; give one row per id")
    return names
