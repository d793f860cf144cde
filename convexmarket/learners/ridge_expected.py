"""The test loss to expect of a private ridge regression, before anything is released."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils.validation import check_X_y

from convexmarket.checks import (
    aligned,
    check_count,
    check_instance,
    check_nonnegative,
)
from convexmarket.errors import DataError
from convexmarket.learners.granted import Granted, validated
from convexmarket.learners.ridge_baselines import SampledRidge
from convexmarket.learners.ridge_math import (
    NoisyLoss,
    lattice_loss,
    noisy_loss,
    solve_ridge,
)
from convexmarket.learners.ridge_release import RidgeRelease
from convexmarket.privacy.noise import RandomSource, open_generator

__all__ = ["expected_loss"]


def expected_loss(
    estimator: RidgeRelease,
    X: ArrayLike,
    y: ArrayLike,
    X_test: ArrayLike,
    y_test: ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    penalty: float = 0.0,
    samples: int = 200,
    random_state: RandomSource = 0,
) -> NoisyLoss:
    r"""Test loss that an estimator is to be expected to have, over its own noise.

    Nothing is released: the result depends on the private rows, without a guarantee.

    Parameters
    ----------
    estimator : PersonalizedRidge, NonPersonalizedRidge, SampledRidge or NonPrivateRidge
        Fitted or not; it is left as it is.
    X, y, epsilon
        What it would be fitted on.
    X_test, y_test : array_like
        Rows to measure the loss on.
    penalty : float, default 0
        :math:`\lambda` of the regularised test loss; 0 is the mean squared error.
    samples : int, default 200
        How often a :class:`SampledRidge` draws its sample. The noise is integrated in closed form,
        so the other estimators need no simulation.
    random_state : default 0
        Source of these draws.

    Returns
    -------
    NoisyLoss
        In squared units of the label.

    Raises
    ------
    ParameterError
        If an argument is out of its range.
    DataError
        If rows are malformed or outside their ranges.
    NotSupportedError
        If ``rounding`` is a number and the error of the solve has no bound.

    Examples
    --------
    >>> from convexmarket.learners import PersonalizedRidge
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((500, 2))
    >>> y = X @ [0.5, -0.25]
    >>> loss = expected_loss(PersonalizedRidge(0.1), X, y, X, y, epsilon=1.0)
    >>> 0.0 < loss.std < 3 * loss.mean
    True
    """
    check_instance("estimator", estimator, RidgeRelease, "a ridge regression of this package")
    check_count("samples", samples)
    check_nonnegative("penalty", penalty)
    default = estimator.epsilon if epsilon is None else epsilon
    X, y, epsilon = aligned(X=X, y=y, epsilon=default)
    X_test, y_test = aligned(X_test=X_test, y_test=y_test)
    estimator = clone(estimator)
    granted = Granted.of(X, epsilon, estimator.epsilon)
    X, labels, domain = estimator._prepare(*granted.rows(X, y))
    rows = domain.unit_rows(X)
    if estimator.features is not None:
        X_test = estimator.features.transform_to_box(X_test)
    try:
        test_rows, test_labels = validated(
            check_X_y, X_test, y_test, dtype=np.float64, y_numeric=True
        )
    except DataError as error:
        raise DataError(f"the test rows: {error}") from None
    if test_rows.shape[1] != X.shape[1]:
        raise DataError(
            f"the test rows have {test_rows.shape[1]} features, but the model has {X.shape[1]}"
        )
    test, truth = domain.unit_rows(test_rows)[:], domain.unit_labels(test_labels)
    rng = open_generator(random_state)
    losses = []
    for _ in range(samples if isinstance(estimator, SampledRidge) else 1):
        plan = estimator._plan(granted, X.shape[1], rng)
        model = solve_ridge(rows, labels, plan.weights, estimator.regularization)
        lattice = estimator._lattice(plan, X.shape[1])
        if lattice is None:
            losses.append(noisy_loss(model, plan.rate, test, truth, penalty))
        else:
            where = (lattice.scale, lattice.step)
            losses.append(lattice_loss(model, *where, test, truth, penalty))
    means = np.array([loss.mean for loss in losses]) * domain.half**2
    stds = np.array([loss.std for loss in losses]) * domain.half**2
    # The law of total variance: over the noise given the sample, and over the sample.
    return NoisyLoss(
        mean=float(means.mean()),
        std=float(np.sqrt(np.mean(stds**2) + means.var())),
        simulation_error=float(means.std() / np.sqrt(means.size)),
    )
