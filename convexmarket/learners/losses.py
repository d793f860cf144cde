r"""Losses of a kernel model: convex in the prediction, and Lipschitz.

The Lipschitz constant L bounds what one row can do to the model, so every loss states it. A loss
that has kinks comes with smooth neighbours :math:`\ell_\mu \le \ell`, which Newton's method can
minimise; how far the result is from the minimiser for :math:`\ell` itself is told by the Fenchel
gap, :math:`\ell(f) + \ell^*(-u) + uf \ge 0`, of the multipliers u that the neighbour suggests.
Objective perturbation needs a bound on the curvature too, which only smooth losses have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from convexmarket.checks import check_scales, check_share
from convexmarket.errors import ParameterError

__all__ = [
    "AbsoluteLoss",
    "HingeLoss",
    "HuberLoss",
    "LogisticLoss",
    "Loss",
    "QuantileLoss",
    "loss_of",
]

Floats = NDArray[np.float64]

TINY = float(np.finfo(np.float64).tiny)
LARGEST_EXPONENT = 709.0


class Loss(ABC):
    """A convex loss of the prediction f for the label y: a subclass is a loss of your own.

    Attributes
    ----------
    classifies : bool
        Whether labels are -1 and 1; otherwise they are any numbers.
    smooth : bool
        Whether ``smoothing`` changes nothing.
    """

    classifies: bool = True
    smooth: bool = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """L, the largest slope in f, whatever the label."""

    @property
    def curvature(self) -> float:
        """The largest second derivative in f; infinite where there are kinks."""
        return float("inf")

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

    def derivatives(self, f: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return values, slopes and curvatures of a smooth loss, each of shape (n_rows,)."""
        return self.values(f, y), self.slopes(f, y, 0.0), self.curvatures(f, y, 0.0)

    def curvatures_within(self, curvatures: Floats, distance: Floats) -> Floats:
        """Bound the second derivative around predictions whose own is given."""
        return np.full_like(curvatures, self.curvature)

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
    """``log(1 + exp(-y*f))``.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.learners import LogisticLoss
    >>> LogisticLoss().values(np.array([0.0, 3.0]), np.array([1.0, 1.0])).round(3)
    array([0.693, 0.049])
    """

    @property
    def lipschitz(self) -> float:
        """One."""
        return 1.0

    @property
    def curvature(self) -> float:
        """A quarter."""
        return 0.25

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

    def derivatives(self, f: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return all three from one exponential, without overflow or cancellation."""
        margins = y * f
        decay = np.exp(-np.abs(margins))
        right = margins >= 0
        wrong = np.where(right, decay, 1.0) / (1.0 + decay)  # 1 / (1 + exp(margin))
        correct = np.where(right, 1.0, decay) / (1.0 + decay)
        return np.log1p(decay) - np.minimum(margins, 0.0), -y * wrong, wrong * correct

    def curvatures_within(self, curvatures: Floats, distance: Floats) -> Floats:
        """Bound it: p(1 - p) grows by a factor of the exponential of the distance at most."""
        grown = (curvatures + TINY) * np.exp(np.minimum(distance, LARGEST_EXPONENT))
        return np.minimum(grown, 0.25)

    def declare(self, f: cp.Expression, y: Floats) -> cp.Expression:
        """Return the losses as a CVXPY expression."""
        return cp.logistic(-cp.multiply(y, f))


@dataclass(frozen=True)
class HingeLoss(Loss):
    """``max(0, 1 - y*f)``; a parabola replaces its kink, in the loss or in its neighbours.

    Parameters
    ----------
    width : float, default 0.0
        Of the parabola, which ends at ``y*f = 1``: the Huberised hinge. Zero is the hinge itself.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.learners import HingeLoss
    >>> HingeLoss().values(np.array([0.0, 3.0]), np.array([1.0, 1.0]))
    array([ 1., -0.])
    """

    width: float = 0.0

    def __post_init__(self) -> None:
        if self.width != 0:
            check_scales(width=self.width)

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether there is a parabola."""
        return self.width > 0.0

    @property
    def lipschitz(self) -> float:
        """One."""
        return 1.0

    @property
    def curvature(self) -> float:
        """One over the width."""
        return 1.0 / self.width if self.width > 0.0 else float("inf")

    @property
    def at_zero(self) -> float:
        """One, less half of the width, where that is at most one."""
        return 1.0 - self.width / 2.0 if self.width <= 1.0 else 0.5 / self.width

    def values(self, f: Floats, y: Floats) -> Floats:
        """Return the loss of each row."""
        return self.smoothed(f, y, 0.0)

    def smoothed(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the parabola's values."""
        share = self._share(f, y, smoothing)
        return share * (1.0 - y * f - self._wide(smoothing) * share / 2.0)

    def slopes(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the derivative in f."""
        return -y * self._share(f, y, smoothing)

    def curvatures(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the second derivative in f."""
        short, wide = 1.0 - y * f, self._wide(smoothing)
        return np.where((short > 0) & (short < wide), 1.0 / wide, 0.0)

    def fenchel_gaps(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the gap of the multipliers, zero beyond the piece."""
        if self.smooth:
            return np.zeros_like(f)
        share = self._share(f, y, smoothing)
        short = 1.0 - y * f
        return np.where(short > 0, (1.0 - share) * short, -share * short)

    def declare(self, f: cp.Expression, y: Floats) -> cp.Expression:
        """Return the losses as a CVXPY expression."""
        short = cp.pos(1.0 - cp.multiply(y, f))
        return cp.huber(short / self.width, 1) * (self.width / 2.0) if self.smooth else short

    def _wide(self, smoothing: float) -> float:
        return self.width if self.smooth else smoothing

    def _share(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        short, wide = 1.0 - y * f, self._wide(smoothing)
        return np.clip(short / wide, 0.0, 1.0) if wide else np.where(short > 0, 1.0, 0.0)


@dataclass(frozen=True)
class HuberLoss(Loss):
    """Half the squared residual up to ``threshold``, linear beyond; for any real labels.

    Parameters
    ----------
    threshold : float, default 1.0
        Residual at which the loss becomes linear: its Lipschitz constant. Positive.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.learners import HuberLoss
    >>> HuberLoss(1.0).values(np.array([0.0, 3.0]), np.array([1.0, 1.0]))
    array([0.5, 1.5])
    """

    threshold: float = 1.0
    classifies = False

    def __post_init__(self) -> None:
        check_scales(huber_threshold=self.threshold)

    @property
    def lipschitz(self) -> float:
        """The threshold."""
        return self.threshold

    @property
    def curvature(self) -> float:
        """One."""
        return 1.0

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


@dataclass(frozen=True)
class QuantileLoss(Loss):
    """``level*(y - f)`` above the prediction, ``(1 - level)*(f - y)`` below; any real labels.

    Its minimiser is the quantile of that level.

    Parameters
    ----------
    level : float, default 0.5
        In (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.learners import QuantileLoss
    >>> QuantileLoss(0.9).values(np.array([0.0, 3.0]), np.array([1.0, 1.0])).round(3)
    array([0.9, 0.2])
    """

    level: float = 0.5
    classifies = False
    smooth = False

    def __post_init__(self) -> None:
        check_share("level", self.level)

    @property
    def ends(self) -> tuple[float, float]:
        """The slopes in f below and above the label."""
        return -self.level, 1.0 - self.level

    @property
    def lipschitz(self) -> float:
        """The larger of the level and one less the level."""
        return max(-self.ends[0], self.ends[1])

    def values(self, f: Floats, y: Floats) -> Floats:
        """Return the loss of each row."""
        low, high = self.ends
        return np.maximum(low * (f - y), high * (f - y))

    def smoothed(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the values with a parabola in place of the kink."""
        slope = self.slopes(f, y, smoothing)
        return slope * (f - y - smoothing * slope / 2.0)

    def slopes(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the derivative in f."""
        return np.clip((f - y) / smoothing, *self.ends)

    def curvatures(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the second derivative in f."""
        low, high = self.ends
        inside = (f - y > low * smoothing) & (f - y < high * smoothing)
        return np.where(inside, 1.0 / smoothing, 0.0)

    def fenchel_gaps(self, f: Floats, y: Floats, smoothing: float) -> Floats:
        """Return the gap of the multipliers: the conjugate of a slope s is s*y."""
        low, high = self.ends
        slope, over = self.slopes(f, y, smoothing), f - y
        return np.where(over > 0, high - slope, slope - low) * np.abs(over)

    def declare(self, f: cp.Expression, y: Floats) -> cp.Expression:
        """Return the losses as a CVXPY expression."""
        low, high = self.ends
        return cp.maximum(low * (f - y), high * (f - y))


@dataclass(frozen=True)
class AbsoluteLoss(QuantileLoss):
    """``|f - y|``: twice the quantile loss of level one half.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.learners import AbsoluteLoss
    >>> AbsoluteLoss().values(np.array([0.0, 3.0]), np.array([1.0, 1.0]))
    array([1., 2.])
    """

    level: float = field(default=0.5, init=False, repr=False)

    @property
    def ends(self) -> tuple[float, float]:
        """Minus one and one."""
        return -1.0, 1.0


def loss_of(given: object, huber_threshold: float = 1.0) -> Loss:
    """Return a loss, or the one of a name: "logistic", "hinge", "huber" or "absolute".

    Raises
    ------
    ParameterError
        If there is no such loss, or it is steeper than its own ``lipschitz`` somewhere.
    """
    named = {
        "logistic": LogisticLoss(),
        "hinge": HingeLoss(),
        "absolute": AbsoluteLoss(),
    }
    if isinstance(given, str) and given == "huber":
        return HuberLoss(huber_threshold)
    if isinstance(given, str) and given in named:
        return named[given]
    if not isinstance(given, Loss):
        raise ParameterError(
            f"loss must be {', '.join(map(repr, named))}, 'huber' or a Loss, got {given!r:.80}"
        )
    check_scales(lipschitz=given.lipschitz)
    f, y = (each.ravel() for each in np.meshgrid(np.linspace(-9.0, 9.0, 181), [-1.0, 1.0]))
    steepest = float(np.abs(given.slopes(f, y, 0.0 if given.smooth else 1e-3)).max())
    if not steepest <= given.lipschitz * (1.0 + 1e-9):
        raise ParameterError(
            f"{given!r:.80} states lipschitz = {given.lipschitz:g} and has a slope of "
            f"{steepest:g}; state a bound on its slopes, for all predictions and labels"
        )
    return given
