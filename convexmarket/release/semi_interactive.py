r"""Release noisy predictions at public points, and fit a public model to them.

This module implements Algorithm 2 of K (the semi-interactive model). All predictions are released
together, so any function of the predictions is public.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_choice, check_scales
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.privacy import Account, RandomSource
from convexmarket.privacy.composition import Composition
from convexmarket.release.calibrated_release import FixedRelease, bounded_predictions
from convexmarket.release.fit import KernelBasis
from convexmarket.release.lattice_noise import MOST_POINTS, Process, laplace_noise, process_noise
from convexmarket.release.scales import NoiseKind, semi_interactive_epsilon

Floats = NDArray[np.float64]


class TestSetRelease(FixedRelease):
    r"""Private predictions at given points, and a public predictor fitted to them.

    Parameters
    ----------
    erm, epsilon, accountant, rows, random_state
        See :class:`~convexmarket.InteractiveRelease`.
    X : array_like of shape (n_points, n_features)
        At most 5,000 public points without labels in the public domain.
    delta : float
        At least 0 and less than 1. If delta is zero, the epsilons of all predictions are added.
    noise : {"laplace", "process"}, optional
        If ``"process"``, the default for a positive delta, a Gaussian process with the kernel as
        covariance is added. If ``"laplace"``, the default for delta zero, independent noise is
        added to every prediction, as in the paper. This noise increases with the number of points.
    accounting : {"tight", "paper"}, default "tight"
        Bound for the scale of Laplace noise. If ``"paper"``, advanced composition is used (K,
        Theorem 11). If ``"tight"``, moments of the privacy loss and the kernel matrix of the points
        are used.
    max_norm : float, optional
        Public bound C on the norm of the fit. The default is ``erm.norm_bound_``, the bound of the
        model.

    Attributes
    ----------
    guarantee : Guarantee
    scale : float
        Scale of the Laplace noise, or standard deviation of the process per unit of feature norm.
    noisy_predictions : ndarray of shape (n_points,)
        The released predictions.
    coordinates : ndarray of shape (n_points,), optional
        Noisy coordinates of the predictions in lattice steps, if ``noise`` is ``"process"``.
    predictor : PublicPredictor
        Public predictor fitted to the noisy predictions.

    Raises
    ------
    ParameterError, DataError, BudgetExceededError
        See :class:`~convexmarket.InteractiveRelease`. A DataError is raised for points outside the
        domain.
    NotSupportedError
        If there are more than 5,000 points.

    References
    ----------
    Jain and Thakurta, Differentially Private Learning with Kernels, Algorithm 2, Theorems 4, 5, 11
    and 13. Hall, Rinaldo and Wasserman, Differential Privacy for Functions and Functional Data.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (5_000, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> erm = KernelERM(regularization=0.1).fit(X, y)
    >>> public = rng.uniform(-0.7, 0.7, (50, 2))
    >>> release = TestSetRelease(erm, public, epsilon=1.0, delta=1e-6)
    >>> release.predictor.classify([[0.6, 0.1], [-0.6, 0.2]])
    array([ 1, -1])
    """

    __test__ = False  # pytest does not collect the class

    def __init__(
        self,
        erm: KernelERM,
        X: ArrayLike,
        epsilon: ArrayLike,
        delta: float,
        *,
        noise: NoiseKind | None = None,
        accounting: Composition = "tight",
        max_norm: float | None = None,
        accountant: Account | None = None,
        rows: ArrayLike | None = None,
        random_state: RandomSource = None,
    ) -> None:
        if noise is None:
            noise = "laplace" if delta == 0 else "process"
        check_choice("noise", noise, NoiseKind)
        why = " for a Gaussian process" if noise == "process" else ""
        sold = self._open(erm, epsilon, delta, accounting, why)
        erm = self._erm
        bound = erm.norm_bound_ if max_norm is None else max_norm
        check_scales(max_norm=bound)
        points = self._checked_points(X)
        if not len(points):
            raise ParameterError("X has no points; give at least one point")
        if len(points) > MOST_POINTS:
            raise NotSupportedError(
                f"X has {len(points):,} points, whose dense kernel matrix would have "
                f"{len(points) ** 2:,} entries; give at most {MOST_POINTS:,}, and use the "
                "predictor for the other points"
            )
        basis = KernelBasis(erm.kernel_(points, points))
        if noise == "process":
            drawn = process_noise(erm, sold, delta)
        else:
            effective = float(basis.roots.max(initial=0.0)) ** 2 / erm.feature_bound_**2
            effective = min(max(effective * (1.0 + 1e-9), 1.0), float(len(points)))
            spread = 1.0 if accounting == "paper" else np.sqrt(len(points) / effective)
            calibration = semi_interactive_epsilon(len(points), effective, delta, accounting)
            drawn = laplace_noise(erm, sold, calibration, delta, spread)
        generator = self._charge(
            drawn,
            f"predictions at {len(points)} public points ({noise} noise), and a fit to them",
            "the points do not depend on the private rows",
            accountant,
            rows,
            random_state,
        )
        noisy = bounded_predictions(erm, points)
        self.coordinates: Floats | None = None
        if noise == "process":
            process = Process(erm, drawn, generator)
            noisy = process.at(points, noisy)
            self.coordinates = process.coordinates
            self.coordinates.setflags(write=False)
        else:
            noisy = drawn.added_to(noisy, generator)
        noisy.setflags(write=False)
        self.noisy_predictions: Floats = noisy
        self.predictor = self._public(points, basis.coefficients(basis.fit(noisy, float(bound))))
