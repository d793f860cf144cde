"""Guarantees to charge, worst mechanisms and searches, and checks of any size."""

import contextlib
import itertools
import math

import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import gammaln

from convexmarket.errors import BudgetExceededError
from convexmarket.privacy import (
    Guarantee,
    PrivacyAccountant,
    discrete_laplace,
    discrete_laplace_log_density,
    gamma_sphere_noise,
    ridge_sensitivity,
)


def guarantee(epsilon, delta=0.0, mechanism="a release") -> Guarantee:
    return Guarantee(np.asarray(epsilon, dtype=float), delta, mechanism, "tight", ())


# --------------------------------------------------------------------- many small releases


def log_cosh(x: float) -> float:
    """Return log(cosh(x)), without loss where x is small."""
    if x < 1:
        return math.log1p(2 * math.sinh(x / 2) ** 2)
    return x + math.log1p(math.exp(-2 * x)) - math.log(2)


class Moment:
    """The moment of one order that a row's account counts, written in hyperbolic functions."""

    def __init__(self, budget: float, delta: float) -> None:
        log = math.log(2 / delta)
        # the best order for releases of which only the sum of squares counts
        rho = (budget / (math.sqrt(log + budget) + math.sqrt(log))) ** 2
        self.order = math.sqrt(log / rho)
        self.short = log - math.log1p(self.order) - self.order * math.log1p(1 / self.order)

    def of(self, charges) -> float:
        half = 0.5 + self.order
        return math.fsum(log_cosh(half * e) - log_cosh(e / 2) for e in charges)

    def epsilon(self, charges) -> float:
        return (self.of(charges) + self.short) / self.order


def responses_delta(epsilon_each: float, count: int, epsilon: float) -> float:
    """Return the exact delta of so many randomised responses: a binomial sum."""
    true = np.arange(count + 1)
    log_choices = gammaln(count + 1) - gammaln(true + 1) - gammaln(count - true + 1)
    log_p = log_choices + true * epsilon_each - count * np.logaddexp(0.0, epsilon_each)
    losses = (2 * true - count) * epsilon_each
    gain = losses > epsilon
    return float(np.sum(np.exp(log_p[gain]) * -np.expm1(epsilon - losses[gain])))


def check_advanced_composition(budget, each, delta) -> None:
    """Charge while it goes, and hold what that means for the worst mechanism."""
    account = PrivacyAccountant([budget], delta, composition="advanced")
    count, release = 0, guarantee([each])
    with contextlib.suppress(BudgetExceededError):
        while True:
            account.charge(release)
            count += 1
    assert responses_delta(each, count, budget) <= delta / 2, count
    assert count >= 8, count
    # two and a half times as many would break it
    assert responses_delta(each, 5 * count // 2 + 1, budget) > delta, count


# ------------------------------------------------------------------------ laws of noise


def check_gamma_sphere(n_features, n_draws, least_p, draw=gamma_sphere_noise) -> None:
    """Norms are Gamma; directions uniform, and independent of the norms."""
    rng = np.random.default_rng(7)
    noise = np.array([draw(n_features, rng) for _ in range(n_draws)])
    norms = np.linalg.norm(noise, axis=1)
    assert stats.kstest(norms, stats.gamma(n_features).cdf).pvalue > least_p
    if n_features == 1:
        assert stats.kstest(noise[:, 0], stats.laplace.cdf).pvalue > least_p
        return
    half = (n_features - 1) / 2  # of the law of a coordinate of a uniform point on the sphere
    for cosine in (noise / norms[:, None]).T:
        assert stats.kstest((cosine + 1) / 2, stats.beta(half, half).cdf).pvalue > least_p
        assert abs(stats.spearmanr(cosine, norms).statistic) < 4 / np.sqrt(n_draws)


REJECTED = 1e-6  # p-value from which a law is refuted


def lattice_p_value(draws, scale) -> float:
    """Chi-square of draws against the law, tails in one class each."""
    edge = int(np.ceil(4 * float(scale))) + 1
    inside = np.arange(-edge, edge + 1)
    chances = np.exp(discrete_laplace_log_density(inside, scale))
    tail = (1.0 - chances.sum()) / 2.0
    counts = [sum(z < -edge for z in draws), *(draws.count(z) for z in inside.tolist())]
    counts.append(len(draws) - sum(counts))
    return stats.chisquare(counts, len(draws) * np.array([tail, *chances, tail])).pvalue


def check_lattice_law(scale, n_draws, off) -> None:
    """Draws follow the law, and not one that is off by so much."""
    draws = discrete_laplace(scale, n_draws, np.random.default_rng(11))
    assert len(draws) == n_draws
    assert lattice_p_value(draws, scale) > REJECTED
    for wrong in ((1 - off) * scale, (1 + off) * scale):
        assert lattice_p_value(draws, wrong) < REJECTED
    signs = stats.binomtest(sum(z > 0 for z in draws), sum(z != 0 for z in draws))
    assert signs.pvalue > REJECTED


# ------------------------------------------------------------------ ridge, weighted


def solution(X, y, weights, alpha):
    return np.linalg.solve((X.T * weights) @ X + alpha * np.eye(X.shape[1]), X.T @ (weights * y))


def attack(d, alpha, n_others, weight, seed):
    """Search for the worst neighbours, all rows, labels and weights free."""
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
    """No attack exceeds the tight constant, and the best comes close."""
    worst = max(attack(d, alpha, n_others, weight, seed) for seed in range(count))
    claimed = ridge_sensitivity(alpha, d, sensitivity="tight")
    assert worst <= claimed * (1 + 1e-9), (worst, claimed)
    if weight < 0.01:  # with a larger weight its own curvature protects the row
        assert worst >= 0.7 * claimed, (worst, claimed)


def check_angles(g, points) -> None:
    """Hold the tight constant against all values on a grid of t and both angles."""
    least = np.arctan(1 / g)
    angle = np.linspace(least, np.pi / 2, points)
    t, a, b = np.meshgrid(np.linspace(0, 1, points), angle, angle, indexing="ij", sparse=True)
    inner = np.sin(a) ** 2 + g * t / 2 * np.sin(a) * np.sin(b) * np.sin(a + b)
    largest = (np.sqrt(4 - 3 * t**2) * inner).max()
    kappa = ridge_sensitivity(1.0 / g**2, 1) / g**2
    assert kappa * (1 - 2e-3) <= largest <= kappa, (largest, kappa)


def largest(function, bounds) -> float:
    """Maximise over a box, from a lattice of starts."""
    lattice = itertools.product(*(np.linspace(low, high, 5)[1:4] for low, high in bounds))
    return max(
        -minimize(
            lambda p: -function(*p), start, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10}
        ).fun
        for start in lattice
    )
