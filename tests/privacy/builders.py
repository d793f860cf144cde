"""Define guarantees, worst-case mechanisms, searches and checks for several test modules."""

import contextlib
import itertools
import math
from collections import Counter

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as distributions
from scipy import stats
from scipy.optimize import minimize

from convexmarket.errors import BudgetExceededError
from convexmarket.privacy import Guarantee, PrivacyAccountant
from convexmarket.privacy.lattice import discrete_laplace
from convexmarket.privacy.random_sources import gamma_sphere_noise
from convexmarket.privacy.sensitivity import ridge_sensitivity
from tests.learners.builders import solution


def discrete_laplace_log_density(value, scale):
    """Compute the log probabilities of integers under a discrete Laplace law."""
    rate = 1.0 / float(scale)
    return np.log(np.tanh(rate / 2.0)) - rate * np.abs(np.asarray(value))


def discrete_gaussian_log_density(value, scale):
    """Compute the log probabilities of a discrete Gaussian law by Poisson summation."""
    total = scale * np.sqrt(2.0 * np.pi) * (1.0 + 2.0 * np.exp(-2.0 * (np.pi * scale) ** 2))
    return -((np.asarray(value) / scale) ** 2) / 2.0 - np.log(total)


def guarantee(epsilon, delta=0.0, mechanism="a release") -> Guarantee:
    return Guarantee(
        np.asarray(epsilon, dtype=float), delta, mechanism, "tight", ("the noise is secret",)
    )


# ------------------------------------------------------------------------- sequences of releases

#: Constructors of guarantees, by the distribution of the noise.
MAKERS = {"pure": Guarantee.pure, "laplace": Guarantee.laplace, "gaussian": Guarantee.gaussian}


def cycle(*releases):
    return lambda: itertools.cycle(releases)


def first(release, *others):
    return lambda: itertools.chain([release], itertools.cycle(others))


#: Budget, delta, largest ratio of dp-accounting's count to the package's count, and releases.
SEQUENCES = {
    "Gaussian 0.02": (1.0, 1e-6, 1.05, cycle(("gaussian", 0.02))),
    "Gaussian 0.005": (1.0, 1e-6, 1.05, cycle(("gaussian", 0.005))),
    "Gaussian 0.1, budget 10": (10.0, 1e-5, 1.05, cycle(("gaussian", 0.1))),
    "pure 0.02": (1.0, 1e-6, 1.26, cycle(("pure", 0.02))),
    "pure 0.05": (1.0, 1e-6, 1.26, cycle(("pure", 0.05))),
    "pure 0.3, budget 10": (10.0, 1e-5, 1.26, cycle(("pure", 0.3))),
    "Laplace 0.02": (1.0, 1e-6, 1.26, cycle(("laplace", 0.02))),
    "Laplace 0.3, budget 10": (10.0, 1e-5, 1.26, cycle(("laplace", 0.3))),
    "pure 0.02 and Gaussian 0.02": (1.0, 1e-6, 1.3, cycle(("pure", 0.02), ("gaussian", 0.02))),
    "Laplace 0.02 and Gaussian 0.05": (
        1.0,
        1e-6,
        1.3,
        cycle(("laplace", 0.02), ("gaussian", 0.05)),
    ),
    "pure 5, then Gaussian 0.1, budget 10": (
        10.0,
        1e-5,
        1.3,
        first(("pure", 5.0), ("gaussian", 0.1)),
    ),
    "pure 1 and Gaussian 0.3, budget 10": (
        10.0,
        1e-5,
        1.3,
        cycle(("pure", 1.0), ("gaussian", 0.3)),
    ),
}


def admitted(sequence, epsilon: float, delta: float) -> int:
    """Count the releases of a sequence that an account admits."""
    account = PrivacyAccountant([epsilon], delta)
    with contextlib.suppress(BudgetExceededError):
        for law, shift in sequence():
            account.charge(MAKERS[law]([shift]))
    return len(account.releases)


def distribution(law: str, shift: float):
    if law == "gaussian":
        return distributions.from_gaussian_mechanism(1 / shift)
    if law == "laplace":
        return distributions.from_laplace_mechanism(1 / shift)
    return distributions.from_randomized_response(2 / (1 + math.exp(shift)), 2)


def delta_of(releases, epsilon: float) -> float:
    """Compute the delta of the composition of releases with dp-accounting."""
    composed = None
    for (law, shift), count in Counter(releases).items():
        part = (
            distribution(law, shift).self_compose(count) if count > 1 else distribution(law, shift)
        )
        composed = part if composed is None else composed.compose(part)
    return composed.get_delta_for_epsilon(epsilon)


def most_admitted(sequence, epsilon: float, delta: float, least: int) -> int:
    """Count the releases of a sequence that dp-accounting admits."""
    releases = list(itertools.islice(sequence(), 3 * least + 3))
    low, high = least, len(releases)
    while high - low > 1:
        middle = (low + high) // 2
        fits = delta_of(releases[:middle], epsilon) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return low


def largest_of_losses(losses, mass, delta) -> float:
    """Compute the epsilon of a privacy-loss distribution by bisection."""
    low, high = 0.0, float(losses.max())
    for _ in range(60):
        middle = (low + high) / 2
        enough = mass @ np.maximum(-np.expm1(np.minimum(middle - losses, 0.0)), 0) <= delta
        low, high = (low, middle) if enough else (middle, high)
    return high


# ------------------------------------------------------------------------ laws of noise


def check_gamma_sphere(n_features, n_draws, least_p, draw=gamma_sphere_noise) -> None:
    """Check that norms are gamma-distributed, and that directions are uniform and independent."""
    rng = np.random.default_rng(7)
    noise = np.array([draw(n_features, rng) for _ in range(n_draws)])
    norms = np.linalg.norm(noise, axis=1)
    assert stats.kstest(norms, stats.gamma(n_features).cdf).pvalue > least_p
    if n_features == 1:
        assert stats.kstest(noise[:, 0], stats.laplace.cdf).pvalue > least_p
        return
    half = (n_features - 1) / 2  # a coordinate of a uniform direction has a beta distribution
    for cosine in (noise / norms[:, None]).T:
        assert stats.kstest((cosine + 1) / 2, stats.beta(half, half).cdf).pvalue > least_p
        assert abs(stats.spearmanr(cosine, norms).statistic) < 4 / np.sqrt(n_draws)


REJECTED = 1e-6  # a distribution is rejected at a p-value below this level


def lattice_p_value(draws, scale, log_density=discrete_laplace_log_density) -> float:
    """Compute the p-value of a chi-square test of draws, in which each tail is one class."""
    edge = int(np.ceil(4 * float(scale))) + 1
    chances = np.exp(log_density(np.arange(-edge, edge + 1), scale))
    tail = (1.0 - chances.sum()) / 2.0
    counts = np.bincount(np.clip(draws, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3)
    expected = len(draws) * np.array([tail, *chances, tail])
    few = expected < 5
    observed = [*counts[~few], counts[few].sum()]
    expected = [*expected[~few], expected[few].sum()]
    last = None if few.any() else -1
    return stats.chisquare(observed[:last], expected[:last]).pvalue


def check_lattice_law(scale, n_draws, off) -> None:
    """Check that a test accepts draws with the given scale, and rejects slightly wrong scales."""
    draws = discrete_laplace(scale, n_draws, np.random.default_rng(11))
    assert len(draws) == n_draws
    assert lattice_p_value(draws, scale) > REJECTED
    for wrong in ((1 - off) * scale, (1 + off) * scale):
        assert lattice_p_value(draws, wrong) < REJECTED
    signs = stats.binomtest(int((draws > 0).sum()), int((draws != 0).sum()))
    assert signs.pvalue > REJECTED


# ------------------------------------------------------------------ ridge, weighted


def attack(d, alpha, n_others, weight, seed):
    """Search for the largest change of the solution, divided by the weight of the changed row."""
    rng = np.random.default_rng(seed)
    rows = n_others + 2

    def moved(p):
        X = np.clip(p[: rows * d].reshape(rows, d), 0, 1)
        y = np.clip(p[rows * d : rows * d + rows], -1, 1)
        others = np.exp(p[rows * d + rows :])
        weights = np.r_[others / others.sum() * (1 - weight), weight]
        last = np.r_[:n_others, n_others + 1]
        first = solution(X[:-1], y[:-1], weights, alpha)
        return -np.linalg.norm(first - solution(X[last], y[last], weights, alpha)) / weight

    start = np.r_[rng.random(rows * d), rng.choice([-1.0, 1.0], rows), rng.normal(size=n_others)]
    return -minimize(moved, start, method="Powell", options={"maxiter": 25}).fun


def check_attacks(d, alpha, weight, n_others, count) -> None:
    """Check that the largest change in several attacks is just below the tight constant."""
    worst = max(attack(d, alpha, n_others, weight, seed) for seed in range(count))
    claimed = ridge_sensitivity(alpha, d, sensitivity="tight")
    assert worst <= claimed * (1 + 1e-9), (worst, claimed)
    if weight < 0.01:  # at larger weights, the curvature of the row's loss reduces the change
        assert worst >= 0.7 * claimed, (worst, claimed)


def largest(function, bounds) -> float:
    """Compute the maximum of a function over a box by local searches from a grid of points."""
    lattice = itertools.product(*(np.linspace(low, high, 5)[1:4] for low, high in bounds))
    return max(
        -minimize(
            lambda p: -function(*p), start, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10}
        ).fun
        for start in lattice
    )
