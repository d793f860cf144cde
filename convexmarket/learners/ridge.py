r"""Ridge regression by output perturbation, under a guarantee chosen seller by seller.

The released model is the weighted ridge solution plus noise of density :math:`e^{-\eta_z\|z\|}`
(PDP-OP, Algorithm 1 of Acharya, Boenisch, Naidu and Ziani). :class:`PersonalizedRidge` weighs each
row by what its owner granted; the baselines of the paper are in
:mod:`.ridge_baselines`, and what all of them do with their weights in :mod:`.ridge_release`.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.allocation.guarantees import weights_for_guarantees
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import ParameterError
from convexmarket.learners.granted import TRACE, Granted
from convexmarket.learners.ridge_domain import Range
from convexmarket.learners.ridge_math import Vector, noise_rate, ridge_risk_constants
from convexmarket.learners.ridge_release import Plan, RidgeRelease, Rounding
from convexmarket.privacy.accounting import check_weights
from convexmarket.privacy.sensitivity import Sensitivity

__all__ = ["PersonalizedRidge"]


class PersonalizedRidge(RidgeRelease):
    r"""Ridge regression whose coefficients keep what was promised to each row (PDP-OP).

    Parameters
    ----------
    regularization : float, default 1.0
        :math:`\lambda`, positive. The loss is the weighted mean of squared errors plus
        ``regularization * ||coef||**2``, on the unit scale.
    max_norm : float or None, default None
        Public bound B on the norm of the minimiser without regularisation, on the unit scale, for
        this data set and every neighbour (Theorem 3.4). ``None`` needs no such knowledge
        (Theorem 3.2).
    weights : {"proportional", "optimal"} or array_like of shape (n_rows,), default "proportional"
        ``"proportional"`` to epsilon, as in the paper: the least noise. ``"optimal"`` minimises
        Theorem 3.6's bound under the same guarantees, which trades noise for spread and needs
        ``label_noise``. Or weights of your own, nonnegative and summing to one, chosen without
        looking at the data.
    sensitivity : {"tight", "paper"}, default "tight"
        How far a row can move the model: :func:`~convexmarket.privacy.ridge_sensitivity`. For
        the same guarantees ``"tight"`` adds less noise.
    label_noise : float or None, default None
        Public standard deviation of the labels' noise, on the unit scale; for
        ``weights="optimal"``.
    failure_probability : float, default 0.05
        Chance that Theorem 3.6's bound fails; for ``weights="optimal"``.
    feature_range : pair, or None, default (0, 1)
        Public lowest and highest values of the features, numbers or one per feature; mapped to
        [0, 1]. ``None`` takes them from the private rows, with a
        :class:`~convexmarket.errors.PrivacyLeakWarning`.
    target_range : pair of floats, or None, default (-1, 1)
        The same for the labels; mapped to [-1, 1].
    rounding : "auto", float or None, default "auto"
        A number: the model is rounded, on the unit scale, to multiples of the largest power of two
        that is at most this, and gets exact discrete noise, so that the guarantee holds on a real
        machine, low digits and all. ``"auto"`` takes a step so fine, by public quantities alone,
        that it adds less than a hundredth to the noise, and leaves out rows of less than a
        millionth of the mean weight; where the error of the solve has no bound
        (fewer rows than features, or a tiny ``regularization``) the noise is in floating point,
        which the first line of the guarantee says. ``None``: noise of density
        :math:`e^{-\eta_z\|z\|}` in floating point, as in the paper, whose last digits tell
        neighbours apart, with a
        :class:`~convexmarket.errors.PrivacyLeakWarning` unless it is a simulation. The exact
        noise has a root mean square :math:`\sqrt{2d/(d+1)}` times as large.
    features : PublicFeatures or None, default None
        What is public of the columns of a table X, so that ``fit`` and ``predict`` take the table
        as it is. Its rows lie in the unit box.
    epsilon : float, array_like of shape (n_rows,) or None, default None
        What ``fit`` takes where it gets no ``epsilon``, as in a pipeline.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The released model, in the units of the data.
    intercept_ : float
        What the ranges shift: zero on the unit scale. A fitted intercept is a constant column of
        X, which is regularised and perturbed like the others.
    epsilon_ : ndarray of shape (n_rows,)
        Guarantee of each row, in nats; at most what was granted, and zero for a row that granted
        nothing.
    guarantee_ : Guarantee
        The same with its assumptions in words.
    noise_rate_ : float
        :math:`\eta`: each coordinate's probabilities are proportional to :math:`e^{-\eta|z_j|}` on
        the unit scale; in floating point the density is :math:`e^{-\eta\|z\|}`, as in the paper.
    rounding_ : float or None
        The step of the lattice, on the unit scale; None where noise is in floating point.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    The solution without noise is not kept.

    References
    ----------
    Acharya, Boenisch, Naidu and Ziani, Personalized Differential Privacy for Ridge Regression,
    Algorithm 1, Theorems 3.2, 3.4 and 3.6.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((1000, 2))
    >>> y = X @ [0.5, -0.25]
    >>> epsilon = rng.uniform(0.5, 2.0, size=1000)
    >>> from convexmarket.privacy import Simulation
    >>> model = PersonalizedRidge(0.1).fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    >>> model.coef_.shape, bool(np.all(model.epsilon_ <= epsilon))
    ((2,), True)
    """

    def __init__(
        self,
        regularization: float = 1.0,
        *,
        max_norm: float | None = None,
        weights: Literal["proportional", "optimal"] | ArrayLike = "proportional",
        sensitivity: Sensitivity = "tight",
        label_noise: float | None = None,
        failure_probability: float = 0.05,
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        rounding: Rounding = "auto",
        features: PublicFeatures | None = None,
        epsilon: ArrayLike | None = None,
    ) -> None:
        self.regularization = regularization
        self.max_norm = max_norm
        self.weights = weights
        self.sensitivity = sensitivity
        self.label_noise = label_noise
        self.failure_probability = failure_probability
        self.feature_range = feature_range
        self.target_range = target_range
        self.rounding = rounding
        self.features = features
        self.epsilon = epsilon

    def _plan(self, granted: Granted, n_features: int, rng: np.random.Generator) -> Plan:
        kappa, epsilon = self._kappa(n_features), granted.positive
        weights = self._weights(granted, n_features)
        rate = noise_rate(weights, epsilon, kappa)
        used = weights > 0
        kept = np.zeros_like(weights)  # a row without weight loses nothing
        kept[used] = np.minimum(weights[used] * kappa * rate, epsilon[used])
        return Plan(weights, rate, kept, weights, epsilon)

    def _weights(self, granted: Granted, n_features: int) -> Vector:
        """Return the weights of the rows that are used."""
        if not isinstance(self.weights, str):
            weights = check_weights(self.weights, granted.epsilon.size)
            wrong = np.count_nonzero(weights[~granted.used])
            if wrong:
                raise ParameterError(
                    f"weights is positive in {wrong} rows that granted an epsilon of 0; give them "
                    "weight 0, and the others a sum of one"
                )
            return weights[granted.used]
        if self.weights not in ("proportional", "optimal"):
            raise ParameterError(
                f"weights must be 'proportional', 'optimal' or an array, got {self.weights!r}"
            )
        if self.weights == "proportional" or np.isinf(granted.positive).any():
            return granted.weights()
        if self.label_noise is None:
            raise ParameterError(
                "weights='optimal' needs label_noise, the standard deviation of the labels' "
                "noise; pass what is publicly known about it, or use weights='proportional'"
            )
        mu, sigma = ridge_risk_constants(
            self.regularization,
            n_features,
            self.label_noise,
            self.failure_probability,
            self.max_norm,
            self.sensitivity,
        )
        return self._without_traces(weights_for_guarantees(granted.positive, mu, sigma)[0])

    def _without_traces(self, weights: Vector) -> Vector:
        """Leave out rows of next to no weight where the noise is exact.

        Rounding can move the model by a step whatever a row's weight is, so that a row that granted
        next to nothing would decide how much noise everybody gets.
        """
        if self.rounding != "auto":
            return weights
        kept = np.where(weights * weights.size < TRACE, 0.0, weights)
        return np.asarray(kept / kept.sum())
