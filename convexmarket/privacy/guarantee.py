"""What a released object promises each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.checks import check_instance, checked_numbers
from convexmarket.display import Shown
from convexmarket.errors import ParameterError
from convexmarket.privacy.checks import check_delta

__all__ = ["WEAK", "Guarantee", "odds_in_words"]

#: Epsilon above which a guarantee is warned of: a guess between two values may be right 99.995 % of
#: the time.
WEAK = 10.0


@dataclass(frozen=True, eq=False)
class Guarantee(Shown):
    """The differential privacy that a released object carries, and what it rests on.

    Parameters
    ----------
    epsilon : ndarray of shape (n_sellers,)
        Guarantee of each row, in nats: replacing that row changes the probability of no event by
        more than a factor ``exp(epsilon)`` plus ``delta``. Kept as a read-only copy.
    delta : float
        Probability with which the factor may be exceeded; 0 for pure differential privacy.
    mechanism : str
        What was released, and how.
    accounting : str
        Name of the bound that gives ``epsilon``.
    assumptions : tuple of str
        What has to hold for the guarantee to hold, one sentence each.

    Notes
    -----
    Guarantees are equal, and have the same hash, if all of this is.

    Examples
    --------
    >>> print(Guarantee([0.5, 1.0], 0.0, "a sum", "exact", ("the noise is secret",)))
    ... # doctest: +NORMALIZE_WHITESPACE
    a sum: epsilon of each of 2 rows 0.5 to 1, delta 0 (exact accounting, one row replaced).
    A reader who knows all other rows changes the odds between two values of a row at most
    2.72-fold, and guesses right which one it is at most 73.1 % of the time, where a coin does 50 %.
    This rests on:
    - the noise is secret
    """

    epsilon: NDArray[np.float64]
    delta: float
    mechanism: str
    accounting: str
    assumptions: tuple[str, ...]

    def __post_init__(self) -> None:
        epsilon = np.array(checked_numbers("epsilon", self.epsilon))
        if epsilon.ndim != 1 or not np.all(epsilon >= 0):
            raise ParameterError(
                "the guarantee has a negative or undefined epsilon; give a list with a number >= "
                "0 for each row"
            )
        check_delta(self.delta)
        check_instance("mechanism", self.mechanism, str, "what was released, in words")
        check_instance("accounting", self.accounting, str, "the name of the bound")
        epsilon = epsilon + 0.0  # -0.0 becomes 0.0
        epsilon.setflags(write=False)
        object.__setattr__(self, "epsilon", epsilon)

    def statement(self) -> str:
        """Return the guarantee and its assumptions in words, one assumption per line."""
        if not self.epsilon.size:
            return f"{self.mechanism}: no row was used, so nothing is promised to anybody."
        low, high = float(self.epsilon.min()), float(self.epsilon.max())
        span = f"{high:.6g}" if low == high else f"{low:.6g} to {high:.6g}"
        promise = (
            f"{self.mechanism}: epsilon of each of {self.epsilon.size} rows {span},"
            f" delta {self.delta:g} ({self.accounting} accounting, one row replaced)."
        )
        meaning = f"A reader who knows all other rows {odds_in_words(high, self.delta)}."
        return "\n".join(
            [promise, meaning, "This rests on:", *(f"- {a}" for a in self.assumptions)]
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the epsilon of each row."""
        return pd.DataFrame({"epsilon": self.epsilon}).rename_axis(index="row")

    def __repr__(self) -> str:
        return f"<Guarantee: {self.statement().splitlines()[0]}>"

    def __str__(self) -> str:
        return self.statement()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Guarantee):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[bytes, float, str, str, tuple[str, ...]]:
        about = self.mechanism, self.accounting, tuple(self.assumptions)
        return self.epsilon.tobytes(), float(self.delta), *about


def odds_in_words(epsilon: float, delta: float) -> str:
    r"""Return what an epsilon lets a reader learn about one row.

    Parameters
    ----------
    epsilon : float
        Nonnegative, in nats.
    delta : float

    Returns
    -------
    str
        How much the odds between two values of the row may change, and how often a guess which of
        two it is may be right if both are as likely before:
        :math:`(e^\epsilon + \delta)/(1 + e^\epsilon)` (Kairouz, Oh and Viswanath, The Composition
        Theorem for Differential Privacy, Theorem 2.1).
    """
    if np.isinf(epsilon):
        return "may learn a row for certain, because no noise hides it: there is no guarantee"
    chance = 1.0 / (1.0 + np.exp(-epsilon)) + delta / (1.0 + np.exp(min(epsilon, 700.0)))
    percent = f"{100.0 * chance:.1f}" if chance < 0.999 else f"{100.0 * chance:.3f}"
    often = f"at most {percent} % of the time" if chance < 0.99999 else "practically always"
    factor = f"e^{epsilon:.4g}"
    if epsilon <= WEAK:
        factor = f"{np.exp(epsilon):.3g}" if epsilon < 5.0 else f"{np.exp(epsilon):,.0f}"
    but = f" (but with probability {delta:g})" if delta > 0 else ""
    return (
        f"changes the odds between two values of a row at most {factor}-fold{but}, and guesses"
        f" right which one it is {often}, where a coin does 50 %"
    )
