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
from convexmarket.errors import ParameterError
from convexmarket.learners.ridge_domain import Range
from convexmarket.learners.ridge_math import Vector, noise_rate, ridge_risk_constants
from convexmarket.learners.ridge_release import Plan, RidgeRelease
from convexmarket.privacy.accounting import check_weights
from convexmarket.privacy.noise import RandomSource
from convexmarket.privacy.sensitivity import Sensitivity

__all__ = ["PersonalizedRidge"]


class PersonalizedRidge(RidgeRelease):
    r"""Ridge regression whose coefficients keep what was promised to each row (PDP-OP).

    Parameters
    ----------
    alpha : float, default 1.0
        :math:`\lambda`, positive. The loss is the weighted mean of squared errors plus
        ``alpha * ||coef||**2``, on the unit scale.
    bound : float or None, default None
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
    delta : float, default 0.05
        Chance that Theorem 3.6's bound fails; for ``weights="optimal"``.
    feature_range : pair, or None, default (0, 1)
        Public lowest and highest values of the features, numbers or one per feature; mapped to
        [0, 1]. ``None`` takes them from the private rows, with a
        :class:`~convexmarket.errors.PrivacyLeakWarning`.
    target_range : pair of floats, or None, default (-1, 1)
        The same for the labels; mapped to [-1, 1].
    rounding : float or None, default None
        ``None``: noise of real numbers, in double precision. A positive number: the model is
        rounded, on the unit scale, to multiples of the largest power of two that is at most this,
        and gets exact discrete noise. The guarantee then holds on a real machine, low digits and
        all, for noise whose root mean square is :math:`\sqrt{2d/(d+1)}` times as large where d
        steps are far below ``min(epsilon) / noise_rate_``.
    random_state : None, int, SeedSequence, Generator or RandomState, default None
        Source of the noise. ``None`` takes a fresh seed from the operating system. With a fixed
        seed the guarantee holds only towards those who do not know it, and for one release.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The released model, in the units of the data.
    intercept_ : float
        What the ranges shift: zero on the unit scale. A fitted intercept is a constant column of
        X, which is regularised and perturbed like the others.
    epsilon_ : ndarray of shape (n_rows,)
        Guarantee of each row, in nats; at most what was granted, and just that under
        proportional weights.
    guarantee_ : Guarantee
        The same with its assumptions in words.
    noise_rate_ : float
        :math:`\eta` of the paper: the noise has density :math:`e^{-\eta\|z\|}` on the unit scale;
        with ``rounding`` each coordinate's probabilities are proportional to
        :math:`e^{-\eta|z_j|}`.
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
    >>> model = PersonalizedRidge(alpha=0.1, random_state=0).fit(X, y, epsilon=epsilon)
    >>> model.coef_.shape, bool(np.all(model.epsilon_ <= epsilon))
    ((2,), True)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        bound: float | None = None,
        weights: Literal["proportional", "optimal"] | ArrayLike = "proportional",
        sensitivity: Sensitivity = "tight",
        label_noise: float | None = None,
        delta: float = 0.05,
        feature_range: Range | None = (0.0, 1.0),
        target_range: tuple[float, float] | None = (-1.0, 1.0),
        rounding: float | None = None,
        random_state: RandomSource = None,
    ) -> None:
        self.alpha = alpha
        self.bound = bound
        self.weights = weights
        self.sensitivity = sensitivity
        self.label_noise = label_noise
        self.delta = delta
        self.feature_range = feature_range
        self.target_range = target_range
        self.rounding = rounding
        self.random_state = random_state

    def _plan(self, epsilon: Vector, n_features: int, rng: np.random.Generator) -> Plan:
        kappa = self._kappa(n_features)
        weights = self._weights(epsilon, n_features)
        rate = noise_rate(weights, epsilon, kappa)
        used = weights > 0
        kept = np.zeros_like(weights)  # a row without weight loses nothing
        kept[used] = np.minimum(weights[used] * kappa * rate, epsilon[used])
        return Plan(weights, rate, kept, weights, epsilon)

    def _weights(self, epsilon: Vector, n_features: int) -> Vector:
        if not isinstance(self.weights, str):
            return check_weights(self.weights, epsilon.size)
        if self.weights not in ("proportional", "optimal"):
            raise ParameterError(
                f"weights must be 'proportional', 'optimal' or an array, not {self.weights!r}."
            )
        if not np.all(np.isfinite(epsilon)):
            return np.isinf(epsilon) / np.count_nonzero(np.isinf(epsilon))
        if self.weights == "proportional":
            shares = np.ldexp(epsilon, -np.frexp(epsilon.max())[1])  # so that no sum overflows
            return np.asarray(shares / shares.sum())
        if self.label_noise is None:
            raise ParameterError(
                "weights='optimal' needs label_noise, the standard deviation of the labels' noise:"
                " pass what is publicly known about it, or use weights='proportional'."
            )
        mu, sigma = ridge_risk_constants(
            self.alpha, n_features, self.label_noise, self.delta, self.bound, self.sensitivity
        )
        return weights_for_guarantees(epsilon, mu, sigma)[0]
