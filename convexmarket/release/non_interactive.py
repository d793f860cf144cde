r"""Release a public predictor before any query (K, Algorithm 3, the non-interactive model).

In every round, the exponential mechanism selects a point of a net at which the predictions of the
public model and the true model differ. The net covers the public ball. The true prediction at the
selected point is measured with noise, and the public model is updated.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from convexmarket.checks import check_count, check_scales, check_share
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.learners.predictor import PublicPredictor
from convexmarket.privacy import Account, RandomSource
from convexmarket.privacy.composition import Composition
from convexmarket.privacy.lattice import accept_exponential, whole_steps
from convexmarket.release.bounds import ErrorBounds
from convexmarket.release.calibrated_release import FixedRelease, bounded_predictions
from convexmarket.release.lattice_noise import laplace_noise
from convexmarket.release.scales import non_interactive_epsilon, selection_factor

Floats = NDArray[np.float64]

CHUNK = 2_000_000  # number of kernel entries that are computed at a time
MOST_BYTES = 8e9  # largest number of bytes for kernel entries between a net and selected points
BLOCK = 65_536  # number of points that are proposed at a time
FINEST = 100_000  # largest number of points of the default net
MOST_NET = 1_000_000


class PublicRelease(FixedRelease):
    r"""A public predictor for rows with few features.

    Parameters
    ----------
    erm, epsilon, accountant, rows, random_state
        See :class:`~convexmarket.InteractiveRelease`. The model must have ``data_norm``, the radius
        of the public ball, and a kernel with Lipschitz features ("rbf", "linear" or "poly").
    delta : float
        At least 0 and less than 1. If delta is zero, the epsilons of all rounds are added.
    rounds : int
        Number B of rounds. See :func:`~convexmarket.release.ErrorBounds.suggest_rounds`.
    net_radius : float, optional
        Largest distance nu of a point of the ball from the net. By default, nu is the radius at
        which the error of the net equals the error of the noise, or a larger radius at which the
        net has about 100,000 points. A net has at most a million points.
    failure_probability : float, default 0.05
        Probability beta that the error exceeds ``error_bound``.
    accounting : {"tight", "paper"}, default "tight"
        Bound for the scale of the noise. If ``"paper"``, the bound of
        :class:`~convexmarket.InteractiveRelease` is used, and the exponent of selections is divided
        by four (K, Theorem 7). If ``"tight"``, the moments of the privacy loss are used.

    Attributes
    ----------
    guarantee : Guarantee
    scale : float
        Scale of the Laplace noise in a measurement.
    error_bound : float
        Bound on the error of the predictor in the whole ball with probability
        ``1 - failure_probability``; see :func:`~convexmarket.release.ErrorBounds.non_interactive`.
    net_radius, net_size : float, int
        Radius and number of points of the net.
    predictor : PublicPredictor
        Mean of the initial public model and the public models after each round.

    Raises
    ------
    ParameterError, DataError, BudgetExceededError
        See :class:`~convexmarket.InteractiveRelease`.
    NotSupportedError
        If the net is too large, or the features of the kernel are not Lipschitz.

    References
    ----------
    Jain and Thakurta, Differentially Private Learning with Kernels, Algorithm 3, Theorems 7 and 8.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.7, 0.7, (50_000, 2))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> erm = KernelERM(regularization=0.1, data_norm=1.0).fit(X, y)
    >>> release = PublicRelease(erm, 1.0, 1e-6, rounds=20, net_radius=0.05)
    >>> release.predictor.classify([[0.6, 0.1], [-0.6, 0.2]])
    array([ 1, -1])
    """

    def __init__(
        self,
        erm: KernelERM,
        epsilon: ArrayLike,
        delta: float,
        *,
        rounds: int,
        net_radius: float | None = None,
        failure_probability: float = 0.05,
        accounting: Composition = "tight",
        accountant: Account | None = None,
        rows: ArrayLike | None = None,
        random_state: RandomSource = None,
    ) -> None:
        why = " for the paper's accounting" if accounting == "paper" else ""
        sold = self._open(erm, epsilon, delta, accounting, why)
        rounds = check_count("rounds", rounds)
        check_share("failure_probability", failure_probability)
        erm, lipschitz = self._erm, self._erm.kernel_.feature_lipschitz
        noise = laplace_noise(erm, sold, non_interactive_epsilon(rounds, delta, accounting), delta)
        wanted = noise.scale / (2.0 * erm.norm_bound_ * lipschitz)
        ball = erm.kernel_.data_norm
        if ball is None:
            raise ParameterError(
                "a public release needs a public ball, but the model has no data_norm; fit it with "
                "data_norm, the radius of a ball that contains all rows"
            )
        self.net_radius, net = _net(erm.n_features_in_, ball, net_radius, wanted, rounds)
        erm.kernel_.check_domain(net, "the net")
        self.net_size = len(net)
        generator = self._charge(
            noise,
            f"{rounds} rounds of selection and measurement on a net of {len(net):,} points",
            "",
            accountant,
            rows,
            random_state,
        )
        bounds = ErrorBounds(
            erm.sensitivity_,
            float(sold.max()),
            delta,
            erm.norm_bound_,
            erm.feature_bound_,
            failure_probability,
            accounting,
        )
        between = 2.0 * erm.norm_bound_ * lipschitz * self.net_radius
        self.error_bound = bounds.on_net(self.scale, rounds, len(net), between)
        self.error_bound += 2.0 * noise.step  # covers rounding errors
        self.predictor = self._run(net, rounds, generator)

    def _run(self, net: Floats, rounds: int, generator: np.random.Generator) -> PublicPredictor:
        """Perform all rounds, and return the mean of the models. The first model is zero."""
        erm, noise, model = self._erm, self._noise, self._public()
        sharpness = round(noise.steps / selection_factor(self._accounting))
        pieces = int(np.ceil(len(net) * max(len(erm.pivots_), 1) / CHUNK))
        parts = np.array_split(net, max(1, pieces))  # limit the size of kernel matrices
        truth = np.concatenate([bounded_predictions(erm, part) for part in parts])
        kernels = np.empty((len(net), rounds), order="F")  # between the net and selected points
        total = np.zeros(rounds)
        for _ in range(rounds):
            count = len(model.coefficients)
            behind = np.abs(truth - kernels[:, :count] @ model.coefficients)
            chosen = _selected(behind, noise.step, sharpness, generator)
            answer = float(noise.added_to(truth[chosen : chosen + 1], generator)[0])
            model = model.corrected(
                net[chosen], answer, erm.norm_bound_, divisor=erm.feature_bound_**2
            )
            if len(model.coefficients) > count:
                kernels[:, count] = erm.kernel_(net, net[chosen][None, :])[:, 0]
            total[: len(model.coefficients)] += model.coefficients
        mean = total[: len(model.coefficients)] / (rounds + 1)
        return replace(model, coefficients=mean)


def _selected(values: Floats, step: float, scale: int, generator: np.random.Generator) -> int:
    """Draw a position exactly, with probability proportional to ``exp(value / (scale * step))``.

    Values are rounded to whole steps. Uniform proposals are accepted with a probability that
    depends on the difference from the largest value.
    """
    whole = whole_steps(values, step, np.inf)
    behind = whole.max() - whole
    while True:
        tried = generator.integers(0, len(behind), size=min(len(behind), BLOCK))
        accepted = np.flatnonzero(accept_exponential(behind[tried], scale, generator))
        if accepted.size:
            return int(tried[accepted[0]])


def _net(
    n_features: int, data_norm: float, radius: float | None, wanted: float, rounds: int
) -> tuple[float, Floats]:
    """Return the radius and the points of a net, or raise an error for a net that is too large."""
    if radius is not None:
        check_scales(net_radius=radius)
    else:
        radius = min(wanted, data_norm)
        if n_features <= 3:
            while net_size(n_features, data_norm, radius) > FINEST and radius < data_norm:
                radius *= 1.1
    size = net_size(n_features, data_norm, radius)
    if size <= MOST_NET and 8.0 * size * rounds <= MOST_BYTES:
        return float(radius), ball_net(n_features, data_norm, radius)
    raise NotSupportedError(
        f"a net of radius {radius:.3g} of the ball in {n_features} dimensions has about {size:.3g} "
        f"points ({MOST_NET:,} at most): each point takes 8 bytes for every round, "
        f"{8e-9 * size * rounds:.3g} GB for {rounds:,} rounds ({1e-9 * MOST_BYTES:g} GB at most). "
        "Use fewer features (three at most in practice), a larger net_radius, fewer rounds, or a "
        "TestSetRelease on public points"
    )


def net_size(n_features: int, data_norm: float, radius: float) -> float:
    """Estimate the number of points of :func:`ball_net`.

    The estimate is the ratio of two volumes: a ball of radius ``data_norm + radius``, and the
    largest cube in a ball of radius ``radius``.

    >>> round(net_size(2, 1.0, 0.5))
    14
    """
    half = n_features / 2.0
    log_volume = half * np.log(np.pi) - gammaln(half + 1.0)
    ratio = (data_norm + radius) * np.sqrt(n_features) / (2.0 * radius)
    return float(np.exp(min(log_volume + n_features * np.log(ratio), 700.0)))


def ball_net(n_features: int, data_norm: float, radius: float) -> Floats:
    """Compute points such that every point of a ball is within ``radius`` of one of the points.

    The points are the centres of a grid of cubes. Centres outside the ball are projected onto it.

    Parameters
    ----------
    n_features, data_norm, radius : float
        Positive dimension and radius of the ball, and positive half-diagonal of a cube.

    Returns
    -------
    ndarray of shape (n_points, n_features)

    Examples
    --------
    >>> from convexmarket.release import ball_net
    >>> ball_net(1, 1.0, 0.5).shape
    (3, 1)
    """
    side = 2.0 * radius / np.sqrt(n_features)
    steps = int(np.ceil(data_norm / side - 0.5)) if data_norm > side / 2.0 else 0
    axis = side * np.arange(-steps, steps + 1)

    points: Floats = np.zeros((1, 0))
    for _ in range(n_features):  # add a coordinate, and drop points outside the enlarged ball
        column = np.tile(axis, len(points))[:, None]
        points = np.hstack([np.repeat(points, len(axis), axis=0), column])
        points = points[np.linalg.norm(points, axis=1) <= data_norm + radius]
    norms = np.linalg.norm(points, axis=1, keepdims=True)
    return points * np.minimum(1.0, data_norm / np.maximum(norms, data_norm))
