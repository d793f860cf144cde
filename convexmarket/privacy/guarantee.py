"""What a released object promises each row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convexmarket.arguments import check_instance, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.privacy.checks import check_delta

__all__ = ["Guarantee"]


@dataclass(frozen=True, eq=False)
class Guarantee:
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
                "the guarantee has a negative or undefined epsilon: give a list with a number >= 0 "
                "for each row"
            )
        check_delta(self.delta)
        check_instance("mechanism", self.mechanism, str, "what was released, in words")
        check_instance("accounting", self.accounting, str, "the name of the bound")
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
        return "\n".join([promise, "This rests on:", *(f"- {a}" for a in self.assumptions)])

    def __str__(self) -> str:
        return self.statement()
