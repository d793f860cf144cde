"""One account of what several releases reveal about the same rows, row by row.

What a seller sold is a bound on everything that is ever computed from that row. A release states
its :class:`~convexmarket.privacy.Guarantee`; the accountant adds guarantees up and refuses the
release that would exceed any row's budget, before it draws its noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.arguments import check_choice, check_instance, checked_numbers
from convexmarket.errors import BudgetExceededError, ParameterError
from convexmarket.privacy.checks import check_delta
from convexmarket.privacy.guarantee import Guarantee

__all__ = ["Account", "AccountComposition", "PrivacyAccountant"]

AccountComposition: TypeAlias = Literal["basic", "advanced"]

Floats = NDArray[np.float64]

#: Relative; sums of what was sold in parts may exceed the whole by rounding.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class _Entry:
    """A release that was charged: what it is called, and its price in every row."""

    mechanism: str
    epsilon: Floats
    delta: float


@runtime_checkable
class Account(Protocol):
    """What a release is charged to: an account in memory, or one that a ledger keeps."""

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Refuse a release that some row cannot pay, without charging it."""

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release in full, or refuse it and charge nothing."""


class PrivacyAccountant:
    r"""What every row may still lose, under all releases together.

    Parameters
    ----------
    epsilon : array_like of shape (n_rows,)
        Budget of each row, in nats: what its owner sold. Nonnegative; a row of budget zero may not
        be used at all.
    delta : float, default 0.0
        Probability with which a row's epsilon may be exceeded, at least 0 and below 1; the same for
        all rows.
    composition : {"basic", "advanced"}, default "basic"
        How guarantees add up. ``"basic"``: epsilons and deltas add. ``"advanced"``: a release of
        epsilon costs :math:`\rho = \epsilon\tanh(\epsilon/2)`, these add up to at most the
        :math:`\rho` for which :math:`\rho + 2\sqrt{\rho\log(1/\delta')}` is the budget, and the
        deltas to at most :math:`\delta - \delta'`, with :math:`\delta' = \delta/2`. It pays where
        many small releases share a budget. It is settled here, once: whoever could choose after
        seeing answers would have more than either allows.
    ids : sequence of str, optional
        What a refusal calls the rows, shape (n_rows,); their positions alone by default.

    Raises
    ------
    ParameterError
        If an argument is out of its range, or ``"advanced"`` is asked for with ``delta = 0``.

    Notes
    -----
    Releases, their budgets and their order may depend on earlier answers: both sums are filters
    against which the next release is held, not after-the-fact totals (Rogers, Roth, Ullman and
    Vadhan, Privacy Odometers and Filters; Feldman and Zrnic, Individual Privacy Accounting via a
    Rényi Filter). Interactive releases may be asked side by side (Vadhan and Zhang, Concurrent
    Composition Theorems for Differential Privacy). Weights and budgets of later releases may not
    depend on the rows in any other way.

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
        composition: AccountComposition = "basic",
        ids: Sequence[str] | None = None,
    ) -> None:
        budget = np.array(checked_numbers("epsilon", epsilon))
        if budget.ndim != 1 or budget.size == 0:
            raise ParameterError(
                f"epsilon must be a nonempty vector, one budget per row, not of shape"
                f" {budget.shape}."
            )
        if not np.all(budget >= 0):
            raise ParameterError("epsilon must be nonnegative in every row.")
        check_choice("composition", composition, AccountComposition)
        names = None if ids is None else _names(ids)
        if names is not None and len(names) != budget.size:
            raise ParameterError(f"ids names {len(names)} rows, and epsilon has {budget.size}.")
        advanced = composition == "advanced"
        why = " for advanced composition" if advanced else ""
        self._delta = check_delta(delta, positive=advanced, why=why)
        self._composition = composition
        budget.setflags(write=False)
        self._budget = budget
        self._ids = names
        self._slack = self._delta / 2.0 if advanced else 0.0
        self._used = np.zeros_like(budget)  # sum of epsilons, or of rhos
        self._used_delta = np.zeros_like(budget)
        self._entries: list[_Entry] = []
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
        """Epsilon of all releases together, row by row, shape (n_rows,)."""
        return self._in_epsilon(self._used)

    @property
    def spent_delta(self) -> Floats:
        """Delta of all releases together, row by row; under "advanced" with its own share."""
        return self._used_delta + np.where(self._used > 0, self._slack, 0.0)

    @property
    def remaining(self) -> Floats:
        """Largest epsilon that one more release of delta zero may have, shape (n_rows,)."""
        if self._composition == "basic":
            return self._left()
        return _epsilon_of_rho(self._left())

    @property
    def releases(self) -> tuple[tuple[str, float, float], ...]:
        """What was charged: the mechanism, its largest epsilon, its delta."""
        return tuple((e.mechanism, float(e.epsilon.max()), e.delta) for e in self._entries)

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
            self._used, self._used_delta, epsilon = self._after(guarantee, rows)
            self._entries.append(_Entry(guarantee.mechanism, epsilon, guarantee.delta))

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
            raise ParameterError(f"rows is {rows!r}; give positions in the account")
        charged, deltas = checked_numbers("epsilon", epsilon), checked_numbers("delta", delta)
        if not places.shape == charged.shape == deltas.shape or places.ndim != 1:
            raise ParameterError(
                f"rows, epsilon and delta have shapes {places.shape}, {charged.shape} and"
                f" {deltas.shape}: give one entry of each per charge."
            )
        if not np.all((places >= 0) & (places < self._budget.size)):
            raise ParameterError(f"rows must be positions from 0 to {self._budget.size - 1}.")
        if not (np.all(charged >= 0) and np.all(deltas >= 0)):
            raise ParameterError("epsilon and delta of earlier charges must be nonnegative.")
        with self._lock:
            used, used_delta = self._used.copy(), self._used_delta.copy()
            np.add.at(used, places.astype(np.intp), self._price(charged))
            np.add.at(used_delta, places.astype(np.intp), deltas)
            self._used, self._used_delta = used, used_delta

    def _after(self, guarantee: Guarantee, rows: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
        """Return what would have been used after the release, and its epsilon in every row."""
        check_instance("guarantee", guarantee, Guarantee)
        check_delta(guarantee.delta)
        epsilon = self._spread(guarantee.epsilon, rows)
        if guarantee.delta > 0 and not epsilon.any():
            raise ParameterError(
                f"{guarantee.mechanism} has delta {guarantee.delta:g} and epsilon zero in every"
                " row, but a row of epsilon zero is not used; give used rows a positive epsilon."
            )
        used = self._used + self._price(epsilon)
        used_delta = self._used_delta + np.where(epsilon > 0, guarantee.delta, 0.0)
        dear = (used > self._limit() * (1.0 + ROUNDING)) & (epsilon > 0)
        if dear.any():
            raise BudgetExceededError(self._refusal(guarantee, epsilon, dear))
        room = (self._delta - self._slack) * (1.0 + ROUNDING)
        risky = (used_delta > room) & (epsilon > 0)
        if risky.any():
            row = int(np.argmax(risky))
            raise BudgetExceededError(
                f"{guarantee.mechanism} would exceed the delta of {np.count_nonzero(risky)} of"
                f" {risky.size} rows: {self._name(row)} has spent"
                f" {self._used_delta[row]:.6g} of {self._delta - self._slack:.6g} (the account's"
                f" delta is {self._delta:g}), and this release needs {guarantee.delta:.6g}."
                " Nothing was charged and nothing released: use a smaller delta."
            )
        return used, used_delta, epsilon

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

    def _price(self, epsilon: Floats) -> Floats:
        """Return what epsilons cost in the units that add up."""
        return epsilon if self._composition == "basic" else _rho_of_epsilon(epsilon)

    def _spread(self, epsilon: Floats, rows: ArrayLike | None) -> Floats:
        """Return the guarantee in every row of the account."""
        if not np.all(epsilon >= 0):
            raise ParameterError("the guarantee has a negative or undefined epsilon.")
        if rows is None:
            if epsilon.size != self._budget.size:
                raise ParameterError(
                    f"the guarantee covers {epsilon.size} rows, but the account has"
                    f" {self._budget.size}: pass rows=, their positions in the account."
                )
            return epsilon
        places = np.asarray(rows)
        if places.shape != epsilon.shape or not np.issubdtype(places.dtype, np.integer):
            raise ParameterError(
                f"rows must hold {epsilon.size} integers, one per row of the guarantee."
            )
        known = (places >= 0) & (places < self._budget.size)
        if not known.all() or np.unique(places).size < places.size:
            raise ParameterError(
                f"rows must be different positions from 0 to {self._budget.size - 1}."
            )
        spread = np.zeros_like(self._budget)
        spread[places] = epsilon
        return spread

    def _limit(self) -> Floats:
        """Return what may be used in every row, in the units that add up."""
        if self._composition == "basic":
            return self._budget
        log = np.log(1.0 / self._slack)
        with np.errstate(invalid="ignore"):
            rho = (self._budget / (np.sqrt(log + self._budget) + np.sqrt(log))) ** 2
        return np.where(np.isinf(self._budget), np.inf, rho)

    def _left(self) -> Floats:
        """Return what may still be used in every row, in the units that add up."""
        limit = self._limit()
        unlimited = np.isinf(limit)
        left = np.subtract(limit, self._used, out=np.full_like(limit, np.inf), where=~unlimited)
        return np.maximum(left, 0.0)

    def _in_epsilon(self, used: Floats) -> Floats:
        if self._composition == "basic":
            return used.copy()
        return used + 2.0 * np.sqrt(used * np.log(1.0 / self._slack))


def _rho_of_epsilon(epsilon: Floats) -> Floats:
    return epsilon * np.tanh(epsilon / 2.0)


def _epsilon_of_rho(rho: Floats) -> Floats:
    """Invert ``epsilon * tanh(epsilon / 2)``, by Newton's method from above."""
    # tanh(y) is at least y / (1 + y), so the start is above the solution of this convex equation
    epsilon = rho / 2.0 + np.sqrt(rho**2 / 4.0 + 2.0 * rho)
    finite = np.isfinite(epsilon) & (epsilon > 0)
    x, target = epsilon[finite], rho[finite]
    for _ in range(30):
        tanh = np.tanh(x / 2.0)
        x = x - (x * tanh - target) / (tanh + x / 2.0 * (1.0 - tanh**2))
    epsilon[finite] = x * (1.0 - 1e-15)
    return epsilon


def _names(ids: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(ids)
    except TypeError:
        raise ParameterError(f"ids is {ids!r}; give a name for each row") from None
