"""Test that the sharp bound is valid and nearly attained."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from convexmarket.learners.perturbed import objective_perturbation_log_density
from convexmarket.privacy.accounting import objective_perturbation_guarantee
from convexmarket.privacy.sharp import ANGLES, ERRORS, FAR, FINE, SLACK, _Cells, pull_profile

REGULARIZATIONS = [1e-3, 0.03, 0.3, 5.0, 1e5]  # few values, to use cached profiles


def sampled_pulls(regularization, n_samples):
    """Draw random configurations of two rows, and return their pulls and curvatures."""
    rng = np.random.default_rng(0)
    s = np.exp(rng.uniform(np.log(1e-3), np.log(100 + 30 / regularization), n_samples))

    def pull(angle):
        return expit(-s * np.cos(angle))[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])

    angles = rng.uniform(0, np.pi, (3, n_samples))
    share = (rng.random(n_samples) ** rng.choice([0.1, 1, 3], n_samples))[:, None]
    mean = share * pull(angles[0]) + (1 - share) * pull(angles[1])
    gradient = np.column_stack([regularization * s - mean[:, 0], -mean[:, 1]])
    phi = np.arctan2(np.abs(gradient[:, 1]), gradient[:, 0])
    p = expit(-s * np.cos(angles[2]))
    second = np.full(n_samples, -1.0)
    for beta in np.linspace(0, np.pi, 60):
        np.maximum(second, -expit(-s * np.cos(beta)) * np.cos(beta + phi), out=second)
    return p * np.cos(angles[2] - phi) + second, p * (1 - p)


@pytest.mark.parametrize("regularization", REGULARIZATIONS)
def test_no_configuration_exceeds_the_profile_and_some_nearly_attain_it(regularization):
    check_profile(regularization, 30_000)


def check_profile(regularization, n_samples):
    pulls, curvatures = sampled_pulls(regularization, n_samples)
    pull, curvature = pull_profile(regularization)
    for sold, bend in ((0.1, 10.0), (1.0, 1.0), (1.0, 0.1), (10.0, 0.1), (1.0, 0.0)):
        reached = (0.5 * sold * pulls + np.log1p(bend * curvatures)).max()
        bound = (0.5 * sold * pull + np.log1p(bend * curvature)).max()
        assert reached <= bound
        assert reached >= 0.96 * bound


@pytest.mark.parametrize("regularization", REGULARIZATIONS)
def test_bounds_in_cells_equal_a_direct_maximisation(regularization):
    cells, edges = _Cells(regularization), np.array([0.0, 0.05, 0.7, 3.0, 3.1, 60.0, np.inf])
    phi, alpha = (np.linspace(0.0, np.pi, n * ANGLES + 1) for n in (1, FINE))
    cosine = np.where(alpha[1:, None] > phi + 1e-9, np.cos(alpha[:-1, None] - phi).clip(0.0), 0.0)
    cosine[-1, -1] = 1.0
    s, half = np.clip(edges, 1.0 / FAR, FAR), ANGLES // 2
    best = [(expit(-each * np.cos(alpha[1:]))[:, None] * cosine).max(axis=0) for each in s]
    np.testing.assert_allclose(cells.support(s), best, rtol=1e-12)
    expected = np.full((ERRORS, s.size - 1), -np.inf)
    for k, (near, far) in enumerate(pairwise(s)):
        support, pull = (1.0 + SLACK) * np.maximum(best[k], best[k + 1]), regularization * near
        possible = np.repeat(pull <= support[0], ANGLES)
        possible[:half] = pull * np.sin(phi[:half]) <= support[half:0:-1]
        second = np.where(possible, support[:0:-1], -np.inf)
        for row, (top, bottom) in enumerate(pairwise(cells.margins)):
            largest = top / (near if top > 0 else far)
            least = bottom / (far if bottom > 0 else near)
            if least <= 1.0 and largest >= -1.0:
                low, high = np.arccos(np.clip([largest, least], -1.0, 1.0))
                cosines = np.cos(np.maximum(low - phi[1:], phi[:-1] - high).clip(0.0, np.pi))
                first = np.maximum(cells.errors[row] * cosines, cells.errors[row + 1] * cosines)
                expected[row, k] = (first + second).max()
    np.testing.assert_allclose(cells.bound(edges), expected, rtol=1e-9, atol=1e-12)


def neighbours_of(strengths):
    """Generate numbers of features and rows, regularizations, scales of eta, norms and seeds."""
    return given(
        st.integers(1, 4),
        st.integers(1, 6),
        st.sampled_from(strengths),
        st.floats(0.05, 100.0),
        st.sampled_from([0.5, 1.0, 3.0]),
        st.integers(0, 2**32 - 1),
    )


@neighbours_of(REGULARIZATIONS[1:4])
def test_no_data_set_exceeds_the_claim(n_features, n_rows, strength, scale, norm, seed):
    check_claim(n_features, n_rows, strength, scale, norm, seed)


def check_claim(n_features, n_rows, strength, scale, norm, seed):
    """Check exact privacy losses if a nearly opposite row replaces the first row."""
    rng = np.random.default_rng(seed)
    regularization = strength * norm**2
    eta = scale / strength
    weights = rng.dirichlet(np.full(n_rows, 0.5))
    X = rng.normal(size=(n_rows, n_features))
    X *= norm / np.linalg.norm(X, axis=1)[:, None]
    other = X.copy()
    other[0] = -X[0] + 0.3 * norm * rng.normal(size=n_features)
    other[0] *= norm / np.linalg.norm(other[0])
    terms = (np.ones(n_rows), weights, eta, regularization, norm)
    claim = objective_perturbation_guarantee(weights, eta, regularization, norm, "sharp")[0]
    for w in (rng.normal(size=n_features) * 10.0 ** rng.uniform(-2, 2) / norm, -X[0] - other[0]):
        loss = objective_perturbation_log_density(w, X, *terms)
        loss -= objective_perturbation_log_density(w, other, *terms)
        assert abs(loss) <= claim * (1 + 1e-9) + 1e-9
