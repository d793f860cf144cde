r"""Compute the guarantee of objective perturbation for each row.

The released model minimises :math:`\sum_i a_i \log(1+e^{-y_i w^\top x_i}) + b'^\top w +
\tfrac{\Lambda}{2}\|w\|^2` with :math:`\|x_i\| \le R` and :math:`b' = \frac{2R}{\eta} b`. The
density of b is proportional to :math:`e^{-\|b\|}`. Three bounds on the privacy loss of the exact
minimiser are available, with :math:`\kappa_i = a_i R^2/\Lambda` (docs/theory.md, sections 6, 14):

- ``"sharp"``: :math:`\max_p \tfrac12 a_i\eta\,\tau(p) + \log(1 + \kappa_i p(1-p))`. Here p is the
  error of a row, whose two versions have the joint effect :math:`\tau(p) \le 1 + p`.
- ``"paper"``: :math:`a_i\eta + 2\log(1 + R^2 a_{\max}/\Lambda)`, :math:`a_{\max} = k/m`
  (Proposition II.2 of Anjarlekar, Etesami and Srikant, for any R). It is larger than ``"sharp"``.
- ``"general"``: :math:`a_i\eta + \log(1 + c\,a_i R^2/\Lambda)` for convex, L-Lipschitz losses with
  second derivative at most c, and noise of scale :math:`2LR/\eta`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from convexmarket.checks import check_choice, check_nonnegative, check_scales, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.privacy.sharp import sharp_guarantee

__all__ = ["Accounting", "calibrate_eta", "check_weights", "default_solver_epsilon"]
__all__ += ["joint_guarantee", "objective_perturbation_guarantee"]

Accounting: TypeAlias = Literal["sharp", "general", "paper"]

Floats = NDArray[np.float64]

WEIGHT_SUM_TOLERANCE = 1e-6
LARGEST_SHARE = 0.5  # largest default share of the smallest epsilon for the second noise
#: Largest R^2 / Lambda at which the sharp bound is at least 0.5 % below :func:`joint_guarantee`.
SHARP_CURVATURE = 1e4


def check_weights(weights: ArrayLike, n_rows: int | None = None) -> Floats:
    """Check that the weights are nonnegative and sum to one, and return them as an array."""
    array = checked_numbers("weights", weights)
    if array.ndim != 1 or array.size != (n_rows or array.size or 1):
        raise ParameterError(
            f"weights must be a nonempty vector with one number per row, got shape {array.shape}"
        )
    if not (np.all(array >= 0) and abs(array.sum() - 1.0) <= WEIGHT_SUM_TOLERANCE):
        raise ParameterError(
            "weights must be finite and nonnegative, and sum to one, but they sum to"
            f" {array.sum():.9g} and the smallest is {array.min():.9g}: divide them by their sum"
        )
    return array


def objective_perturbation_guarantee(
    weights: ArrayLike,
    eta: float,
    regularization: float,
    data_norm: float = 1.0,
    accounting: Accounting = "sharp",
    cap: float | None = None,
    solver_epsilon: float = 0.0,
    loss_curvature: float = 0.25,
) -> Floats:
    """Compute the guarantee of each row in nats, including the Jacobian, shape (n_rows,).

    If ``eta`` is infinite, no noise is added. Rows of weight zero have no privacy loss, except that
    "paper" adds its Delta to every row. With "paper", ``cap / n_rows`` must bound all weights. By
    default, the largest weight is used as the bound. ``solver_epsilon`` is the cost, for each used
    row, of a second noise that covers the solver's error. ``loss_curvature`` bounds the second
    derivative of the loss for "general".
    """
    array = check_weights(weights)
    curvature = _curvature(eta, regularization, data_norm, accounting, loss_curvature)
    check_nonnegative("solver_epsilon", solver_epsilon)
    largest = _largest(array, cap if accounting == "paper" else None)
    loss = _loss(array, eta, curvature, accounting, largest)
    return loss + np.where(array > 0, solver_epsilon, 0.0)


def calibrate_eta(
    weights: ArrayLike,
    eta: float,
    regularization: float,
    data_norm: float = 1.0,
    accounting: Accounting = "sharp",
    cap: float | None = None,
    solver_epsilon: float = 0.0,
    loss_curvature: float = 0.25,
) -> float:
    """Compute the largest ``eta`` for which no row exceeds its granted epsilon.

    The epsilon granted for row i is ``weights[i] * eta``. The Jacobian's part of the loss and
    ``solver_epsilon`` grow more slowly than the weight, so the smallest weight > 0 limits eta.
    """
    array = check_weights(weights)
    curvature = _curvature(eta, regularization, data_norm, accounting, loss_curvature)
    check_nonnegative("solver_epsilon", solver_epsilon)
    largest = _largest(array, cap if accounting == "paper" else None)
    if np.isinf(eta):
        return eta
    smallest = float(array[array > 0].min())
    room = smallest * eta - solver_epsilon
    if room <= 0:
        raise ParameterError(
            f"solver_epsilon = {solver_epsilon:g} is at least the smallest positive epsilon, "
            f"{smallest * eta:g}; use a smaller value, or zero weights for such small epsilons"
        )
    calibrated = _calibrated(smallest, float(eta), room, curvature, accounting, largest)
    if calibrated <= 0:
        # Twice the regularization at which the Jacobian's share equals the remaining epsilon.
        share = smallest * loss_curvature
        if accounting == "paper":
            share, room = largest, room / 2.0
        enough = 2.0 * data_norm * data_norm * share / np.expm1(room)
        raise ParameterError(
            f"eta = {eta:g} is too small for the Jacobian's share of the privacy loss at"
            f" regularization = {regularization:g} and solver_epsilon = {solver_epsilon:g}; use a"
            f" larger regularization, for instance {enough:.3g}, or buy more privacy (a larger eta)"
        )
    return calibrated


def default_solver_epsilon(epsilon: ArrayLike, gradient_norm: float) -> float:
    r"""Compute the default cost of the second noise for every used row.

    The cost is the share :math:`\sqrt{g/a_{\min}} \le 1/2` of the smallest epsilon, where g bounds
    the gradient norm and :math:`a_{\min}` is the smallest weight (docs/theory.md, section 13).
    """
    sold = np.asarray(epsilon, dtype=np.float64)
    smallest = float(sold[sold > 0].min())
    return smallest * min(LARGEST_SHARE, float(np.sqrt(gradient_norm * sold.sum() / smallest)))


def _curvature(
    eta: float, regularization: float, data_norm: float, accounting: str, loss_curvature: float
) -> float:
    """Check the scalars, and return R^2 / Lambda, times the loss's curvature for "general"."""
    check_scales(regularization=regularization, data_norm=data_norm, loss_curvature=loss_curvature)
    if eta != np.inf:  # finite, so noise is added
        check_scales(eta=eta)
    check_choice("accounting", accounting, Accounting)
    ratio = data_norm * data_norm / regularization
    return ratio * loss_curvature if accounting == "general" else ratio


def joint_guarantee(weights: Floats, eta: float, curvature: float) -> Floats:
    """Maximise the sharp bound over p in closed form, where tau is replaced by 1 + p."""
    half = weights * (eta / 2.0)
    stretch = half + 2.0 * eta / curvature
    p = np.minimum(1.0, 0.5 + stretch / (2.0 * (np.sqrt(4.0 + half * stretch) + 2.0)))
    return half * (1.0 + p) + np.log1p(curvature * weights * p * (1.0 - p))


def _loss(weights: Floats, eta: float, curvature: float, accounting: str, largest: float) -> Floats:
    # an unused row has no privacy loss
    loss = np.where(weights > 0, np.inf, 0.0) if np.isinf(eta) else weights * eta
    if accounting == "paper":
        return loss + 2.0 * np.log1p(curvature * largest)
    if accounting == "general":
        return loss + np.log1p(curvature * weights)
    if np.isinf(eta):
        return loss
    joint = joint_guarantee(weights, eta, curvature)
    if curvature > SHARP_CURVATURE:
        return joint
    return np.minimum(joint, sharp_guarantee(weights, eta, curvature))


def _largest(weights: Floats, cap: float | None) -> float:
    largest = float(weights.max())
    if cap is None:
        return largest
    if not cap / weights.size >= largest * (1.0 - 1e-9):
        raise ParameterError(
            f"a weight is {largest:.6g}, above cap / n_sellers = {cap / weights.size:.6g}"
        )
    return cap / weights.size


@lru_cache(maxsize=256)  # a purchase computes each value up to three times
def _calibrated(
    smallest: float, eta: float, room: float, curvature: float, accounting: str, largest: float
) -> float:
    """Compute the eta at which the loss at the smallest weight is ``room``, or return 0."""
    weights = np.array([smallest])

    def excess(candidate: float) -> float:
        return float(_loss(weights, candidate, curvature, accounting, largest)[0]) - room

    if excess(0.0) >= 0:
        return 0.0
    # The root is at most 2 * eta, because the loss is at least weight * eta / 2. Round it down.
    eta = float(brentq(excess, 0.0, 2.0 * eta, xtol=2 * np.spacing(eta)))
    return eta - 8 * float(np.spacing(eta))
