"""Compare bounds on the privacy loss of several answers with integrals, sums and attacks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats
from scipy.special import gammaln, logsumexp

from convexmarket.privacy.composition import (
    ORDERS,
    advanced_composition,
    epsilon_of_moments,
    gaussian_epsilon,
    moment,
    moments,
    update_moments,
)
from tests import one_in


def laplace_moments(shift):
    return moment("laplace", ORDERS, np.asarray(shift)[..., None])


def responses_delta(epsilon_each: float, count: int, epsilon: float) -> float:
    """Compute the exact delta of several randomised responses from a binomial sum."""
    true = np.arange(count + 1)
    log_choices = gammaln(count + 1) - gammaln(true + 1) - gammaln(count - true + 1)
    log_p = log_choices + true * epsilon_each - count * np.logaddexp(0.0, epsilon_each)
    losses = (2 * true - count) * epsilon_each
    gain = losses > epsilon
    return float(np.sum(np.exp(log_p[gain]) * -np.expm1(epsilon - losses[gain])))


ROUNDING = 1e-12  # relative error of a sum of hundreds of logarithms
SMALL_ORDERS = np.searchsorted(ORDERS, [1e-3, 0.1, 1.0, 5.0, 30.0])


def moments_of(log_p, log_q) -> np.ndarray:
    """Compute the moments of the privacy loss by sums over all outcomes."""
    return logsumexp(log_p + ORDERS[:, None] * (log_p - log_q), axis=1)


def exceeds(result, bound) -> np.ndarray:
    return result > bound + ROUNDING * np.maximum(1.0, np.abs(bound))


def response(epsilon):
    """Return the log-probabilities of randomised response on two neighbouring data sets."""
    log_p = np.array([epsilon, 0.0]) - np.logaddexp(0.0, epsilon)
    return log_p, log_p[::-1]


def normalised(logs) -> np.ndarray:
    return logs - logsumexp(logs)


def pure_pair(rng, epsilon, n_outcomes):
    """Draw two distributions whose log-ratios are in [-epsilon, epsilon], many at an endpoint."""
    log_q = np.log(rng.dirichlet(np.full(n_outcomes, rng.choice([0.1, 1.0, 10.0]))) + 1e-300)
    log_q = normalised(log_q)
    raw = rng.choice([-1.0, 0.0, 1.0], n_outcomes) * epsilon * 10.0 ** rng.uniform(-1, 1)
    raw += rng.uniform(-0.5, 0.5, n_outcomes) * epsilon

    def excess(shift: float) -> float:
        return float(logsumexp(log_q + np.clip(raw + shift, -epsilon, epsilon)))

    far = np.abs(raw).max() + epsilon
    shift = optimize.brentq(excess, -far, far, xtol=1e-15 * (1 + far))
    return log_q + np.clip(raw + shift, -epsilon, epsilon), log_q


# -------------------------------------------------------------------------- one answer


def integral_of_moments(log_p, log_q, order, breaks, peak) -> float:
    """Compute the logarithm of the integral of p**(1 + order) / q**order."""

    def exponent(x):
        return (1 + order) * log_p(x) - order * log_q(x)

    top = exponent(peak)
    total = 0.0
    for low, high in pairwise(breaks):
        total += integrate.quad(lambda x: np.exp(exponent(x) - top), low, high, epsrel=1e-12)[0]
    return float(top + np.log(total))


@pytest.mark.parametrize("shift", one_in(2, [0.01, 0.3, 4.0, 1.0]))
@pytest.mark.parametrize("index", SMALL_ORDERS)
def test_the_moments_of_noise_equal_integrals(shift, index) -> None:
    order = ORDERS[index]
    laplace = integral_of_moments(
        lambda x: -abs(x - shift) - np.log(2),
        lambda x: -abs(x) - np.log(2),
        order,
        [-60.0, 0.0, *np.linspace(0, shift, 20)[1:], shift + 60.0],
        shift,
    )
    assert laplace_moments(shift)[index] == pytest.approx(laplace, rel=1e-6, abs=1e-10)
    centre = (1 + order) * shift
    gaussian = integral_of_moments(
        lambda x: -((x - shift) ** 2 + np.log(2 * np.pi)) / 2,
        lambda x: -(x**2 + np.log(2 * np.pi)) / 2,
        order,
        centre + np.linspace(-12, 12, 13),
        centre,
    )
    assert moments("gaussian", shift)[index] == pytest.approx(gaussian, rel=1e-6, abs=1e-10)
    # the test would detect a shift that is 1 % larger
    assert abs(laplace_moments(1.01 * shift)[index] - laplace) > 1e-3 * laplace
    assert abs(moments("gaussian", 1.01 * shift)[index] - gaussian) > 1e-3 * gaussian


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 1.0, 5.0, 40.0])
def test_randomised_response_attains_the_moments_of_a_pure_answer(epsilon) -> None:
    bound = moments("pure", epsilon)
    assert bound == pytest.approx(moments_of(*response(epsilon)), rel=1e-11, abs=1e-14)
    tangent = ORDERS * (ORDERS + 1) * epsilon * np.tanh(epsilon / 2)
    assert not exceeds(bound, tangent).any()
    assert not exceeds(laplace_moments(epsilon), bound).any()


@given(
    seed=st.integers(0, 10**6),
    log_epsilon=st.floats(-4, 1.5),
    n_outcomes=st.sampled_from([2, 3, 10, 60]),
)
def test_no_pure_pair_exceeds_its_bounds(seed, log_epsilon, n_outcomes) -> None:
    epsilon = 10.0**log_epsilon
    result = moments_of(*pure_pair(np.random.default_rng(seed), epsilon, n_outcomes))
    assert not exceeds(result, moments("pure", epsilon)).any()
    assert not exceeds(result, moments("gaussian", epsilon)).any()


@given(
    seed=st.integers(0, 10**6),
    log_spread=st.floats(-4, 2),
    n_choices=st.sampled_from([2, 3, 10, 60]),
    extreme=st.booleans(),
)
def test_no_choice_exceeds_the_moments_of_a_selection(seed, log_spread, n_choices, extreme) -> None:
    """Change the exponents by at most half the spread, often by exactly half the spread."""
    rng = np.random.default_rng(seed)
    spread = 10.0**log_spread
    exponents = rng.standard_normal(n_choices) * 10.0 ** rng.uniform(-2, 1.5)
    moves = rng.choice([-0.5, 0.5], n_choices) if extreme else rng.uniform(-0.5, 0.5, n_choices)
    result = moments_of(normalised(exponents + spread * moves), normalised(exponents))
    assert not exceeds(result, moments("gaussian", spread / 2)).any()


# ----------------------------------------------------------------- updates of the sparse vector


def growth(log_p, log_q, updates, kappa) -> np.ndarray:
    """Compute log E[exp(order * loss - kappa * update)] for each order."""
    losses = ORDERS[:, None] * (log_p - log_q)
    return logsumexp(log_p + losses - np.where(updates, kappa[:, None], 0.0), axis=1)


@given(
    seed=st.integers(0, 10**6),
    log_epsilon=st.floats(-4, 1.5),
    n_outcomes=st.sampled_from([2, 3, 8, 40]),
)
def test_the_charge_of_an_update_covers_its_round_for_any_definition_of_an_update(
    seed, log_epsilon, n_outcomes
) -> None:
    rng = np.random.default_rng(seed)
    epsilon = 10.0**log_epsilon
    log_p, log_q = pure_pair(rng, epsilon, n_outcomes)
    updates = rng.random(n_outcomes) < rng.random()
    # merge the outcomes without an update
    log_p = np.append(log_p[updates], logsumexp(log_p[~updates]) if not updates.all() else -800.0)
    log_q = np.append(log_q[updates], logsumexp(log_q[~updates]) if not updates.all() else -800.0)
    seen = np.append(np.ones(updates.sum(), dtype=bool), False)
    kappa = update_moments(epsilon)
    finite = np.isfinite(kappa)
    assert np.all(growth(log_p, log_q, seen, kappa)[finite] <= 1e-11)


# ------------------------------------------------------------------ from moments to an epsilon


def gaussian_delta(shift: float, epsilon: float) -> float:
    """Integrate the positive part of p - exp(epsilon)*q by a formula that avoids cancellation."""
    start = epsilon / shift + shift / 2

    def density(x: float) -> float:
        normal = np.exp(-((x - shift) ** 2) / 2) / np.sqrt(2 * np.pi)
        return normal * -np.expm1(epsilon - shift * x + shift**2 / 2)

    breaks = np.unique(np.maximum(start, shift + np.array([-40, -8, -2, 0, 2, 8, 40])))
    breaks = np.unique(np.append(breaks, start + np.array([0.0, 0.3, 1.0, 3.0, 10.0, 40.0])))
    return sum(
        integrate.quad(density, a, b, epsabs=0, epsrel=1e-11)[0] for a, b in pairwise(breaks)
    )


@pytest.mark.parametrize("shift", [1e-3, 0.02, 0.25, 1.0, 5.0, 30.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3, 0.3])
def test_the_epsilon_of_gaussian_noise_equals_an_integral(shift, delta) -> None:
    epsilon = float(gaussian_epsilon(shift, delta))
    assert gaussian_delta(shift, epsilon) <= delta * (1 + 1e-9)
    if epsilon == 0:
        assert 2 * stats.norm.cdf(shift / 2) - 1 <= delta
    else:
        assert gaussian_delta(shift, epsilon * (1 - 1e-6) - 1e-10) > delta


RESPONSES = [(e, k) for e in (0.01, 0.1, 0.5, 2.0) for k in (1, 3, 30, 1000)]


@pytest.mark.parametrize(("epsilon_each", "count"), RESPONSES)
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.05])
def test_composed_responses_stay_below_every_bound(epsilon_each, count, delta) -> None:
    bounds = {
        "pure": epsilon_of_moments(count * moments("pure", epsilon_each), delta),
        "update": epsilon_of_moments(count * update_moments(epsilon_each), delta),
        "gaussian": epsilon_of_moments(moments("gaussian", np.sqrt(count) * epsilon_each), delta),
        "advanced": advanced_composition(epsilon_each, count, delta),
    }
    for bound in bounds.values():
        if np.isfinite(bound):
            assert responses_delta(epsilon_each, count, float(bound)) <= delta * (1 + 1e-9)
    # for many responses, 60 % of the tight bound is invalid
    if count == 1000:
        assert responses_delta(epsilon_each, count, 0.6 * float(bounds["pure"])) > delta


def test_the_papers_theorem_gives_the_expected_values() -> None:
    # sqrt(2*100*log(1e5))*0.1 = 4.798526, and 100*0.1*(e^0.1 - 1) = 1.051709
    assert advanced_composition(0.1, 100, 1e-5) == pytest.approx(5.850235, abs=2e-6)
    assert advanced_composition([0.0, 1.0], 1, np.exp(-2)) == pytest.approx([0, 1 + np.e])
