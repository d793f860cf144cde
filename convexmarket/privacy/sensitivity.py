r"""Compute the sensitivity of weighted ridge regression on the unit domain.

For rows in :math:`[0,1]^d`, labels in :math:`[-1,1]` and weights that sum to at most one, replacing
row i moves the minimiser of :math:`\sum_i w_i (y_i - x_i^\top\theta)^2 + \lambda\|\theta\|^2` by at
most :math:`\kappa\,w_i`. ``"paper"`` is the constant of Acharya et al. (Theorems 3.2 to A.4).
For large :math:`\lambda`, ``"tight"`` is :math:`2\sqrt d/\lambda`, which is optimal. For small
:math:`\lambda`, ``"tight"`` is :math:`0.375\,d/\lambda^{3/2}`, and ``"paper"`` is
:math:`2\,d/\lambda^{3/2}`. The proof is in docs/theory.md, section 7.1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convexmarket.checks import as_float, check_choice, check_scales
from convexmarket.errors import ParameterError

__all__ = ["Sensitivity", "ridge_norm_bound", "ridge_sensitivity"]

Sensitivity: TypeAlias = Literal["paper", "tight"]
Floats: TypeAlias = float | NDArray[np.float64]

# On a grid of alpha, the relative error of the maximum is below 0.8 * step**2 = 1.2e-7.
GRID_POINTS = 4097
GRID_SLACK = 2e-7


def ridge_norm_bound(regularization: float, n_features: int) -> float:
    r"""Compute the largest norm of a weighted ridge solution on the unit domain.

    The norm is :math:`\max_{0 \le s \le \sqrt d} s/(s^2+\lambda)`. It does not exceed the bounds of
    Lemmas A.1 and A.2 of Acharya et al.
    """
    regularization, n_features = _checked(regularization, n_features)
    s = np.sqrt(min(regularization, n_features))
    return float(s / (s**2 + regularization))


def ridge_sensitivity(
    regularization: float,
    n_features: int,
    max_norm: float | None = None,
    sensitivity: Sensitivity = "tight",
) -> float:
    r"""Compute kappa such that :math:`\|\bar\theta(D) - \bar\theta(D')\| \le \kappa\,w_i`.

    ``max_norm`` is B, a nonnegative public bound on the norm of the minimiser without
    regularisation, on this data set and all its neighbours (Assumption 3.3 of Acharya et al.).
    """
    regularization, n_features = _checked(regularization, n_features)
    if max_norm is not None and max_norm != 0:
        check_scales(max_norm=max_norm)
    check_choice("sensitivity", sensitivity, Sensitivity)
    root = np.sqrt(n_features)
    if sensitivity == "paper":
        if max_norm is None:
            max_norm = min(1.0 / np.sqrt(regularization), root / regularization)
        return float(2.0 * root * (1.0 + root * max_norm) / regularization)
    kappa = _unconditional(float(np.sqrt(n_features / regularization)))
    if max_norm is not None:
        kappa = min(kappa, float(_best_difference(1.0, root * max_norm)))
    return float(root / regularization * kappa)


def _checked(regularization: float, n_features: int) -> tuple[float, int]:
    check_scales(regularization=regularization)
    if not 1 <= as_float(n_features) < np.inf:
        raise ParameterError(f"n_features must be at least 1, got {n_features!r}")
    return float(regularization), int(n_features)


@lru_cache(maxsize=256)  # often many fits have the same parameters
def _unconditional(g: float) -> float:
    least = np.arctan2(1.0, g)
    angle = np.linspace(least, np.pi / 2.0, GRID_POINTS)
    other = np.maximum((np.pi - angle) / 2.0, least)
    linear = 0.5 * g * np.sin(angle) * np.sin(other) * np.sin(angle + other)
    return float(np.max(_best_difference(np.sin(angle) ** 2, linear)) * (1.0 + GRID_SLACK))


def _best_difference(constant: Floats, linear: Floats) -> Floats:
    """Maximise ``sqrt(4 - 3 t^2) * (constant + linear * t)`` over t in [0, 1] in closed form."""
    # The only positive root of the derivative, in a form that avoids cancellation.
    t = 8.0 * linear / (3.0 * constant + np.sqrt(9.0 * constant**2 + 96.0 * linear**2))
    return np.sqrt(4.0 - 3.0 * t**2) * (constant + linear * t)
