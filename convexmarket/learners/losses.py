r"""Convex Lipschitz losses of linear and kernel models.

All losses of this module except the logistic loss have the form

.. math:: \ell(f; y) = \max_{s \in [low, high]} s\,(f - y) - \tfrac w2 s^2,

where low and high are the extreme slopes. A parabola of width w replaces the kink at f = y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainccinv

from convexmarket.checks import (
    check_count,
    check_positives,
    check_scales,
    check_share,
)
from convexmarket.errors import NotSupportedError, ParameterError

Floats = NDArray[np.float64]

TINY = float(np.finfo(np.float64).tiny)
LARGEST_EXPONENT = 709.0


class Loss(ABC):
    """A convex loss of the prediction f for the label y. Users can define subclasses.

    ``classifies`` is True if the labels are -1 and 1. ``lipschitz`` is L, the largest absolute
    slope in f. ``curvature`` bounds the second derivative, and is infinite for a loss with kinks.
    ``at_zero`` is the largest loss of the prediction 0 over all labels, which can be infinite.

    Examples
    --------
    >>> from convexmarket.learners import HuberLoss
    >>> HuberLoss(1.0).derivatives(np.array([0.5, 3.0]), np.zeros(2))
    (array([0.125, 2.5  ]), array([0.5, 1. ]), array([1., 0.]))
    """

    classifies: ClassVar[bool] = True
    lipschitz: Any
    curvature: Any = np.inf
    at_zero: Any = np.inf

    @abstractmethod
    def derivatives(self, f: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Compute the loss and its first two derivatives in f, each of shape (n_rows,).

        Parameters
        ----------
        f, y : array_like of shape (n_rows,)
            Predictions and labels.
        """

    def values(self, f: Floats, y: Floats) -> Floats:
        """Compute the loss of each row, shape (n_rows,)."""
        return self.derivatives(f, y)[0]

    def curvatures_within(self, curvatures: Floats, distance: Floats) -> Floats:
        """Bound the second derivative within ``distance`` of f, given its values at f."""
        return np.full_like(curvatures, self.curvature)

    def smoothed(self, width: float) -> Loss:
        """Return a smooth lower bound on this loss, or the loss itself if it is smooth.

        Raises
        ------
        NotSupportedError
            If the loss has kinks and does not override this method.
        """
        if np.isfinite(self.curvature):
            return self
        raise NotSupportedError(f"{self!r:.80} has kinks but no smoothed(); define this method")

    def fenchel_gaps(self, f: Floats, y: Floats, slopes: Floats) -> Floats:
        r"""Compute :math:`\ell(f) + \ell^*(s) - sf \ge 0` for slopes s of the smoothed loss."""
        return np.zeros_like(f)

    def contraction(self, reach: float) -> float:
        """Bound the excess risk per unit of spread, for predictions of size at most ``reach``."""
        return 2.0 * self.lipschitz * reach


@dataclass(frozen=True)
class LogisticLoss(Loss):
    """``log(1 + exp(-y*f))``.

    Examples
    --------
    >>> from convexmarket.learners import LogisticLoss
    >>> LogisticLoss().values(np.array([0.0, 3.0]), np.array([1.0, 1.0])).round(3)
    array([0.693, 0.049])
    """

    lipschitz = 1.0
    curvature = 0.25
    at_zero = float(np.log(2.0))

    def derivatives(self, f: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Compute the loss and its derivatives from one exponential, without overflow."""
        margins = y * f
        decay = np.exp(-np.abs(margins))
        likely = 1.0 / (1.0 + decay)
        unlikely = decay * likely
        slopes = -y * np.where(margins >= 0, unlikely, likely)
        return np.log1p(decay) - np.minimum(margins, 0.0), slopes, likely * unlikely

    def curvatures_within(self, curvatures: Floats, distance: Floats) -> Floats:
        """Bound p(1 - p), which increases by a factor of at most exp(distance)."""
        grown = (curvatures + TINY) * np.exp(np.minimum(distance, LARGEST_EXPONENT))
        return np.minimum(grown, 0.25)

    def contraction(self, reach: float) -> float:
        """Compute the bound by the contraction inequality for the loss's odd and even parts."""
        return reach * (0.5 + float(np.tanh(reach / 2.0)))


@dataclass(frozen=True)
class _Clipped(Loss):
    """A loss with the slope (f - y) / width, clipped to [low, high] (see the module docstring)."""

    width: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        if self.width != 0:
            check_scales(width=self.width)

    def _ends(self, y: Any) -> tuple[Any, Any]:
        raise NotImplementedError

    @property
    def lipschitz(self) -> float:
        """Largest absolute slope."""
        return float(np.abs(self._ends(np.ones(1))).max())

    @property
    def curvature(self) -> float:
        """Reciprocal of the width, or infinity for width 0."""
        return 1.0 / self.width if self.width else float("inf")

    def derivatives(self, f: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Compute the loss and its first two derivatives in f."""
        low, high = self._ends(y)
        over = f - y
        if not self.width:
            slopes = np.where(over > 0, high, np.where(over < 0, low, 0.0))
            return slopes * over, slopes, np.zeros_like(over)
        slopes = np.clip(over / self.width, low, high)
        inside = (over >= low * self.width) & (over <= high * self.width)
        return slopes * (over - self.width * slopes / 2.0), slopes, inside / self.width

    def smoothed(self, width: float) -> Loss:
        """Replace the kink by a parabola of this width."""
        return self if self.width else replace(self, width=width)

    def fenchel_gaps(self, f: Floats, y: Floats, slopes: Floats) -> Floats:
        """Compute the gap without cancellation. The loss's conjugate at slope s is s*y."""
        if self.width:
            return np.zeros_like(f)
        low, high = self._ends(y)
        over = f - y
        return np.where(over > 0, high - slopes, slopes - low) * np.abs(over)


@dataclass(frozen=True)
class HingeLoss(_Clipped):
    """The loss ``max(0, 1 - y*f)``. A parabola on ``1 - width <= y*f <= 1`` replaces the kink.

    Examples
    --------
    >>> from convexmarket.learners import HingeLoss
    >>> HingeLoss().values(np.array([0.0, 3.0]), np.array([1.0, 1.0]))
    array([1., 0.])
    """

    width: float = 0.0

    @property
    def at_zero(self) -> float:
        """Smallest loss of a wrong label, which is 1 - width/2 for widths of at most one."""
        return 1.0 - self.width / 2.0 if self.width <= 1.0 else 0.5 / self.width

    def _ends(self, y: Any) -> tuple[Any, Any]:
        return np.where(y > 0, -1.0, 0.0), np.where(y > 0, 0.0, 1.0)


@dataclass(frozen=True)
class HuberLoss(_Clipped):
    """The Huber loss for real labels, which is linear in residuals larger than ``threshold``.

    Examples
    --------
    >>> from convexmarket.learners import HuberLoss
    >>> HuberLoss(1.0).values(np.array([0.0, 3.0]), np.array([1.0, 1.0]))
    array([0.5, 1.5])
    """

    threshold: float = 1.0
    width: float = field(default=1.0, init=False, repr=False)
    classifies: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_scales(threshold=self.threshold)

    def _ends(self, y: Any) -> tuple[Any, Any]:
        return -self.threshold, self.threshold


@dataclass(frozen=True)
class AbsoluteLoss(_Clipped):
    """The absolute error ``|f - y|`` for real labels.

    Examples
    --------
    >>> from convexmarket.learners import AbsoluteLoss
    >>> AbsoluteLoss().values(np.array([0.0, 3.0]), np.array([1.0, 1.0]))
    array([1., 2.])
    """

    classifies: ClassVar[bool] = False

    def _ends(self, y: Any) -> tuple[Any, Any]:
        return -1.0, 1.0


NAMED = {
    "logistic": LogisticLoss(),
    "hinge": HingeLoss(),
    "absolute": AbsoluteLoss(),
    "huber": HuberLoss(),
}


def loss_of(given: object) -> Loss:
    """Return the named loss, or check the slopes of a user-defined loss."""
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]
    if not isinstance(given, Loss):
        raise ParameterError(
            f"loss must be one of {', '.join(map(repr, NAMED))} or a Loss, got {given!r:.80}"
        )
    check_scales(lipschitz=given.lipschitz)
    f, y = (each.ravel() for each in np.meshgrid(np.linspace(-9.0, 9.0, 181), [-1.0, 1.0]))
    steepest = float(np.abs(given.derivatives(f, y)[1]).max())
    if not steepest <= given.lipschitz * (1.0 + 1e-9):
        raise ParameterError(
            f"{given!r:.80} has lipschitz = {given.lipschitz:g} but a slope of {steepest:g}; set "
            "lipschitz to a bound on the slopes for all predictions and labels"
        )
    return given


def lipschitz_risk_constants(
    loss: Loss,
    failure_probability: float,
    noise_failure_probability: float,
    reach: float,
    n_features: int,
    targets: tuple[float, float] = (-1.0, 1.0),
) -> tuple[float, float]:
    r"""Compute mu and sigma of the excess risk ``mu * ||a|| + sigma / eta`` of a Lipschitz loss.

    If the weights do not depend on the rows, the loss of every model with predictions up to
    ``reach`` exceeds the noisy training loss by at most this risk with probability at least
    :math:`1 - \delta - \delta'` (docs/theory/objective-perturbation.md). Let D be the range of the
    loss for predictions up to B, and q the quantile of the norm of the noise. The constants are
    :math:`2LB + D\sqrt{\frac12\ln\frac1\delta}` (smaller for the logistic loss) and :math:`2LBq`.
    mu and sigma of classifiers are divided by :math:`\ell(0)`, the smallest loss of a wrong label.

    Parameters
    ----------
    loss : Loss
    failure_probability, noise_failure_probability : float
        Probability :math:`\delta` that the concentration inequality fails, and probability
        :math:`\delta'` that the norm of the noise exceeds its quantile q.
    reach : float
        Bound B on every prediction, the product of bounds on the norms of the model and the rows.
    n_features : int
    targets : pair of floats, default (-1, 1)
        Lowest and highest label.

    Returns
    -------
    mu, sigma : float
        In shares of wrong labels for classification losses, and otherwise in units of the loss.

    Examples
    --------
    >>> from convexmarket.learners import LogisticLoss
    >>> mu, sigma = lipschitz_risk_constants(LogisticLoss(), 0.05, 0.05, 1.0, 10)
    >>> round(mu, 3), round(sigma, 3)
    (3.154, 45.316)
    """
    check_share("failure_probability", failure_probability)
    check_positives(reach=reach)
    corners = np.array([-reach, -reach, reach, reach]), np.tile(targets, 2).astype(np.float64)
    values = loss.values(*corners)
    smallest = float(values.min()) if loss.classifies else 0.0
    unit = loss.at_zero if loss.classifies else 1.0
    spread = (values.max() - smallest) * np.sqrt(np.log(1.0 / failure_probability) / 2.0)
    length = _noise_quantile(noise_failure_probability, n_features)
    mu, sigma = loss.contraction(reach) + spread, 2.0 * loss.lipschitz * reach * length
    return float(mu / unit), float(sigma / unit)


def _noise_quantile(noise_failure_probability: float, n_features: int) -> float:
    check_share("noise_failure_probability", noise_failure_probability)
    check_count("n_features", n_features)
    return float(gammainccinv(n_features, noise_failure_probability))
