"""A purchase that a problem file asks for: one learner, one objective, fixed before any report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from convexmarket.errors import ParameterError
from convexmarket.terms import Cap, Constraint, EtaRange, Noise, Objective, Spread

__all__ = ["Purchase", "limits_of", "the_one"]


@dataclass(frozen=True, eq=False)
class Purchase:
    """What is bought for, as :func:`convexmarket.buy` takes it.

    Attributes
    ----------
    learner : Learner
        With the public features of the file.
    mu, sigma : float
        Weights of spread and noise.
    constraints : tuple of Constraint
    gamma : tuple of float
        The weights of payments that the file lists.
    """

    learner: Any
    mu: float
    sigma: float
    constraints: tuple[Constraint, ...]
    gamma: tuple[float, ...]

    @property
    def objective(self) -> Objective:
        """What the buyer minimises besides payments."""
        return self.mu * Spread() + self.sigma * Noise()


def limits_of(buyer: Any) -> tuple[Constraint, ...]:
    """Return the constraints of a file's objective: ``cap`` and ``eta_range``."""
    constraints: list[Constraint] = []
    if buyer.cap is not None:
        constraints.append(Cap(buyer.cap))
    if buyer.eta_range is not None:
        constraints.append(EtaRange(*buyer.eta_range))
    return tuple(constraints)


def the_one(key: str, values: Sequence[float], instead: str = "") -> float:
    """Return the only value that a file lists.

    Raises
    ------
    ParameterError
        If there are several: choosing among them would look at reports or rows.
    """
    if len(values) == 1:
        return values[0]
    listed = ", ".join(f"{value:g}" for value in values)
    raise ParameterError(
        f"{key} lists {listed}, and a purchase needs one, fixed before reports and rows are read; "
        f"give --set {key}=[{values[0]!r}]{instead}"
    )
