r"""Losses of a kernel model: convex in the prediction, and Lipschitz.

The Lipschitz constant L bounds what one row can do to the model, so every loss states it. A loss
that has kinks comes with smooth neighbours :math:`\ell_\mu \le \ell`, which Newton's method can
minimise; how far the result is from the minimiser for :math:`\ell` itself is told by the Fenchel
gap, :math:`\ell(f) + \ell^*(-u) + uf \ge 0`, of the multipliers u that the neighbour suggests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from convexmarket.arguments import check_positives
from convexmarket.errors import ParameterError

__all__ = ["HingeLoss", "HuberLoss", "LogisticLoss", "Loss", "loss_named"]

Floats = NDArray[np.float64]


class Loss(ABC):
    """A convex loss of the prediction f for the label y.

    Attributes
    ----------
    classifies : bool
        Whether labels are -1 and 1; otherwise they are any numbers.
    smooth : bool
        Whether ``smoothing`` changes nothing.
    """

    classifies: bool = True
    smooth: bool = True

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """L, the largest slope in f, whatever the label."""

    @property
    def at_zero(self) -> float:
        """Largest loss of the prediction 0 over all labels; infinite if labels are unbounded."""
        return float("inf")

    @abstractmethod
    def values(self, f: Floats, y: Floats) -> Floats:
        """Return the loss of each row, shape (n_rows,)."""

    @abstractmethod
    def slopes(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the derivative in f of the smooth neighbour, shape (n_rows,)."""

    @abstractmethod
    def curvatures(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return its second derivative, shape (n_rows,)."""

    def smoothed(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the smooth neighbour's values, shape (n_rows,)."""
        return self.values(f, y)

    def fenchel_gaps(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the gap of the multipliers ``-slopes``, nonnegative, shape (n_rows,)."""
        return np.zeros_like(f)

    @abstractmethod
    def declare(self, f: cp.Expression, y: Floats) -> cp.Expression:
        """Return the losses as a CVXPY expression, shape (n_rows,)."""


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """``log(1 + exp(-y*f))``."""

    @property
    def lipschitz(self) -> float:
        """One."""
        return 1.0

    @property
    def at_zero(self) -> float:
        """``log(2)``."""
        return float(np.log(2.0))

    def values(self, f: Floats, y: Floats) -> Floats:
        """Return the loss of each row."""
        return np.asarray(np.logaddexp(0.0, -y * f))

    def slopes(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the derivative in f."""
        return -y * expit(-y * f)

    def curvatures(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the second derivative in f."""
        return np.asarray(expit(f) * expit(-f))

    def declare(self, f: cp.Expression, y: Floats) -> cp.Expression:
        """Return the losses as a CVXPY expression."""
        return cp.logistic(-cp.multiply(y, f))


@dataclass(frozen=True)
class HingeLoss(Loss):
    """``max(0, 1 - y*f)``; smooth neighbours replace its kink by a parabola."""

    smooth = False

    @property
    def lipschitz(self) -> float:
        """One."""
        return 1.0

    @property
    def at_zero(self) -> float:
        """One."""
        return 1.0

    def values(self, f: Floats, y: Floats) -> Floats:
        """Return the loss of each row."""
        return np.maximum(0.0, 1.0 - y * f)

    def smoothed(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the parabola's values."""
        share = self._share(f, y, smoothing)
        return share * (1.0 - y * f - smoothing * share / 2.0)

    def slopes(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the derivative in f."""
        return -y * self._share(f, y, smoothing)

    def curvatures(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the second derivative in f."""
        short = 1.0 - y * f
        return np.where((short > 0) & (short < smoothing), 1.0 / smoothing, 0.0)

    def fenchel_gaps(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the gap of the multipliers, zero beyond the piece."""
        share = self._share(f, y, smoothing)
        short = 1.0 - y * f
        return np.where(short > 0, (1.0 - share) * short, -share * short)

    def declare(self, f: cp.Expression, y: Floats) -> cp.Expression:
        """Return the losses as a CVXPY expression."""
        return cp.pos(1.0 - cp.multiply(y, f))

    @staticmethod
    def _share(f: Floats, y: Floats, smoothing: float) -> Floats:
        return np.clip((1.0 - y * f) / smoothing, 0.0, 1.0)


@dataclass(frozen=True)
class HuberLoss(Loss):
    """Half the squared residual up to ``threshold``, linear beyond; for any real labels.

    Parameters
    ----------
    threshold : float, default 1.0
        Residual at which the loss becomes linear: its Lipschitz constant. Positive.
    """

    threshold: float = 1.0
    classifies = False

    def __post_init__(self) -> None:
        check_positives(huber_threshold=self.threshold)

    @property
    def lipschitz(self) -> float:
        """The threshold."""
        return self.threshold

    def values(self, f: Floats, y: Floats) -> Floats:
        """Return the loss of each row."""
        residual = np.abs(f - y)
        inside = np.minimum(residual, self.threshold)
        return inside * (residual - inside / 2.0)

    def slopes(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the derivative in f."""
        return np.clip(f - y, -self.threshold, self.threshold)

    def curvatures(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the second derivative in f."""
        return (np.abs(f - y) <= self.threshold).astype(np.float64)

    def declare(self, f: cp.Expression, y: Floats) -> cp.Expression:
        """Return the losses as a CVXPY expression."""
        scaled = cp.huber((f - y) / self.threshold, 1)
        return scaled * (self.threshold**2 / 2.0)


def loss_named(name: str, huber_threshold: float = 1.0) -> Loss:
    """Return the loss of a name, "logistic", "hinge" or "huber".

    Raises
    ------
    ParameterError
        If there is no such loss.
    """
    if name == "logistic":
        return LogisticLoss()
    if name == "hinge":
        return HingeLoss()
    if name == "huber":
        return HuberLoss(huber_threshold)
    raise ParameterError(f"loss must be 'logistic', 'hinge' or 'huber', not {name!r}.")
