"""What the joint problem's methods return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import CertifiedPurchase, SolveRecord

__all__ = ["JointAllocation", "JointStatus", "TracePoint"]

Floats = NDArray[np.float64]
JointStatus = Literal["global", "global for this eta", "best of several starts"]

#: Said of every joint allocation.
NO_GUARANTEE = (
    "neither the model nor the payments carry a privacy guarantee: weights, eta and model were "
    "chosen by looking at the data; sell what allocate() chooses and train under it for that"
)


@dataclass(frozen=True)
class TracePoint:
    """The objective after one step of one descent."""

    start: int
    step: str
    eta: float
    objective: float
    seconds: float


@dataclass(frozen=True, eq=False)
class JointAllocation(CertifiedPurchase):
    """A model, weights and total privacy, with what is known of their optimality.

    Attributes
    ----------
    model : ndarray, shape (n_features,)
    weights : ndarray, shape (m,)
    eta : float
    objective : float
    lower_bound : float
        On the objective, over all models, weights and eta; -inf where none is known.
    residual : float
        Gain that the model alone, or weights and eta alone, may still bring, relative to the
        objective; near 0 at a point that satisfies the first-order conditions.
    status : str
        "global" (the lower bound proves it, up to the gap that was asked for), "global for this
        eta" (the problem is convex for a fixed eta), or "best of several starts".
    method : str
    seconds : float
    trace : tuple of TracePoint
        Every step of every start.
    solves : tuple of SolveRecord
        The search over eta that proves the lower bound; empty where no bound is known.
    starts : tuple of float
        The final objective of each start.
    binding : tuple of str
        Bounds of an EtaRange that decided the answer.
    """

    model: Floats
    weights: Floats
    eta: float
    objective: float
    lower_bound: float
    residual: float
    status: JointStatus
    method: str
    seconds: float
    trace: tuple[TracePoint, ...] = ()
    solves: tuple[SolveRecord, ...] = ()
    starts: tuple[float, ...] = ()
    binding: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.model.flags.writeable = self.weights.flags.writeable = False

    def statement(self) -> str:
        """Say what the result does not guarantee."""
        return NO_GUARANTEE

    def certificate(self) -> dict[str, Any]:
        """Return what is known of the answer's optimality, as plain values for JSON."""
        names = ("objective", "residual", "status", "eta", "n_bought", "method", "seconds")
        return {name: getattr(self, name) for name in names} | {
            "lower_bound": self.lower_bound if np.isfinite(self.lower_bound) else None,
            "gap": self.gap if np.isfinite(self.gap) else None,
            "starts": list(self.starts),
            "solves": len(self.solves),
            "binding": list(self.binding),
        }

    def __repr__(self) -> str:
        return (
            f"JointAllocation(eta={self.eta:.6g}, objective={self.objective:.10g}, "
            f"status={self.status!r}, gap={self.gap:.1e}, residual={self.residual:.1e}, bought "
            f"{self.n_bought} of {self.weights.size}, method={self.method!r})"
        )
