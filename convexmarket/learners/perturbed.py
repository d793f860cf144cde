"""From rows to what may be published: the first noise, the minimiser, the second noise.

Functions of arrays: what is promised for their result is settled elsewhere, beforehand.
"""

from __future__ import annotations

import numpy as np

from convexmarket.errors import ParameterError, SolverError
from convexmarket.learners.losses import Loss
from convexmarket.learners.minimiser import (
    Matrix,
    PerturbedObjective,
    Vector,
    minimise,
)
from convexmarket.learners.parted import PartedObjective, PartedRows
from convexmarket.privacy.exact import gamma_sphere_draw, gamma_sphere_error
from convexmarket.privacy.lattice import lattice_release

__all__ = ["perturbed_minimum"]

LARGEST_NOISE = 1e150  # whose square is still a number
ROUNDINGS = 4  # of a coordinate of the first noise, beyond its draw: two products and a quotient


def perturbed_minimum(
    X: Matrix | PartedRows,
    targets: Vector,
    weights: Vector,
    eta: float,
    regularization: float,
    *,
    data_norm: float,
    tol: float,
    blur: tuple[float, int] | None,
    rng: np.random.Generator,
    loss: Loss,
) -> tuple[Vector, float]:
    """Draw the noise, minimise, refuse anything but a minimiser, and blur it where that is asked.

    Parameters
    ----------
    X : ndarray or PartedRows of shape (n_used, n_features)
        The rows that are used, and no others.
    targets, weights : ndarray of shape (n_used,)
        Labels as the loss takes them, and positive weights.
    eta : float
        Sets the first noise; infinity means none.
    regularization, data_norm : float
        Lambda and R.
    tol : float
        Largest norm of the gradient, rounding errors included. Under a second noise it includes
        what the draw of the first may be off by, which acts as an error of the gradient.
    blur : (float, int) or None
        Step and scale of the second noise, by :func:`~convexmarket.privacy.lattice_blur`; ``None``
        for none.
    rng : numpy.random.Generator
        Source of both; it advances.
    loss : Loss
        Smooth.

    Returns
    -------
    coef : ndarray of shape (n_features,)
    gradient_norm : float
        Proven bound, at most ``tol``, where the solver stopped.

    Raises
    ------
    SolverError
        If the gradient norm is not reached, or not provably, or the coefficients are too many steps
        of the second noise.
    """
    n_features = X.shape[1]
    shift = np.zeros(n_features)
    if np.isfinite(eta):
        shift = 2.0 * loss.lipschitz * data_norm / eta * gamma_sphere_draw(n_features, rng)
    if np.abs(shift).max() > LARGEST_NOISE:
        raise SolverError(
            f"eta = {eta:g} asks for noise beyond the range of floating point; buy more privacy (a "
            "larger eta)"
        )
    rest = (targets, weights, shift, regularization, loss)
    objective = (
        PartedObjective(X, *rest) if isinstance(X, PartedRows) else PerturbedObjective(X, *rest)
    )
    if blur is None:
        return _certified_minimum(objective, data_norm, tol, 0.0)
    slack = gamma_sphere_error(ROUNDINGS) * float(np.linalg.norm(shift))
    coef, bound = _certified_minimum(objective, data_norm, tol, slack)
    try:
        return lattice_release(coef, *blur, rng), bound
    except ParameterError as error:
        raise SolverError(
            f"the coefficients cannot be rounded to steps of {blur[0]:g}, so nothing is released; "
            "use a larger eta (buy more privacy), regularization or tol"
        ) from error


def _certified_minimum(
    objective: PerturbedObjective, data_norm: float, tol: float, slack: float
) -> tuple[Vector, float]:
    """Return a minimiser and a proven bound, at most ``tol``, on the gradient's norm there."""
    try:
        coef = minimise(objective, data_norm, tol / 2.0)
    except np.linalg.LinAlgError as error:
        raise SolverError(f"scipy.optimize.minimize (dogleg) failed: {error}") from error
    computed, rounding = objective.gradient_norm(coef)
    bound = computed + rounding + slack
    if not bound <= tol:
        raise SolverError(
            f"scipy.optimize (dogleg, then hybr) stopped at a gradient norm of {computed:.3g}, "
            f"which rounding may hide {rounding + slack:.3g} of, above tol = {tol:g}, so nothing "
            "is released; use a larger regularization, a larger eta if the noise dwarfs the data, "
            "or a larger tol if rounding does it"
        )
    return coef, bound
