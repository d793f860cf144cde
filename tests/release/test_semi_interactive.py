"""Test the noise, the guarantee and the fit of predictions at public points."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics.pairwise import rbf_kernel

import convexmarket as cm
from convexmarket.release.fit import KernelBasis
from convexmarket.release.lattice_noise import LAPLACE_SLACK
from convexmarket.studies.subproblems.models import fit
from tests.release.builders import model, source

N_ROWS = 40


def public(n_points, n_features=2, seed=1):
    return np.random.default_rng(seed).uniform(-0.4, 0.4, (n_points, n_features))


def release_of(erm, X, epsilon=1.0, delta=1e-6, random_state=0, **options):
    return cm.TestSetRelease(erm, X, epsilon, delta, random_state=source(random_state), **options)


@pytest.mark.parametrize("accounting", ["tight", "paper"])
def test_process_noise_does_not_increase_with_the_number_of_points(accounting):
    erm = model()
    scales = [
        release_of(erm, public(n), noise="process", accounting=accounting).scale
        for n in (1, 20, 200)
    ]
    assert len(set(scales)) == 1
    assert scales[0] == cm.release.FunctionRelease(erm, 1.0, 1e-6).scale
    laplace = [
        release_of(erm, public(n), noise="laplace", accounting=accounting).scale
        for n in (1, 20, 200)
    ]
    assert laplace[0] < laplace[1] < laplace[2]


def shift_of(erm):
    return 2.0 / (erm.regularization * N_ROWS) * 1.02 * erm.feature_bound_**2


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("n_points", [1, 7, 60])
def test_the_papers_scale_equals_its_formula(epsilon, n_points):
    erm = model()
    kind = {"accounting": "paper", "noise": "laplace"}
    release = release_of(erm, public(n_points), epsilon, 1e-5, **kind)
    loss = shift_of(erm) / release.scale
    composed = np.sqrt(2 * n_points * np.log(1e5)) * loss + n_points * loss * (np.exp(loss) - 1)
    assert composed == pytest.approx(epsilon, rel=2 * LAPLACE_SLACK)
    assert composed <= epsilon * (1.0 + 1e-12)
    pure = release_of(erm, public(n_points), epsilon, 0.0, **kind)
    assert pure.scale == pytest.approx(n_points * shift_of(erm) / epsilon, rel=2 * LAPLACE_SLACK)


def loss_masses(shift, step):
    """Compute the distribution of the loss of a Laplace answer, rounded down to a grid."""
    reach = int(np.ceil(shift / step)) + 1
    edges = step * np.arange(-reach, reach + 2)
    # the loss |x - shift| - |x| is at least l if x is at most (shift - l) / 2
    above = np.where(edges <= -shift, 1.0, stats.laplace.cdf((shift - edges) / 2.0))
    above[edges > shift] = 0.0
    return above[:-1] - above[1:], reach


def true_delta(shifts, epsilon, step):
    """Compute a lower bound on the delta of Laplace answers with given shifts by convolution."""
    total, reach = np.ones(1), 0
    for shift in shifts:
        masses, more = loss_masses(shift, step)
        total, reach = np.convolve(total, masses), reach + more
    losses = step * (np.arange(total.size) - reach)
    return float(total[losses > epsilon] @ -np.expm1(epsilon - losses[losses > epsilon]))


def test_the_convolution_reproduces_closed_forms():
    for epsilon in (0.1, 0.5):
        exact = 1.0 - np.exp((epsilon - 1.0) / 2.0)
        assert true_delta([1.0], epsilon, 1e-5) == pytest.approx(exact, abs=1e-5)
        assert true_delta([1.0], epsilon, 1e-5) <= exact
    assert true_delta([0.3, 0.3], 0.6, 1e-4) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("n_points", [1, 2, 10])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (0.3, 1e-5), (4.0, 1e-2)])
def test_no_change_of_the_model_exceeds_the_claim(n_points, epsilon, delta):
    step, erm = 5e-4, model("linear", n_features=10)
    kind = {"noise": "laplace"}
    apart = release_of(erm, np.eye(10)[:n_points], epsilon, delta, **kind)
    together = release_of(erm, np.repeat(np.eye(10)[:1], n_points, axis=0), epsilon, delta, **kind)
    moved = shift_of(erm) / apart.scale
    # Either all predictions change equally, or only one prediction changes.
    spread = np.full(n_points, moved / np.sqrt(n_points))
    same = np.full(n_points, shift_of(erm) / together.scale)
    for shifts in (spread, np.array([moved]), same):
        assert true_delta(shifts, epsilon, step) <= delta
    # two thirds of the noise would not be sufficient
    assert true_delta(1.5 * same, epsilon, step) > delta


def objective(gram, coefficients, predictions):
    return float(((gram @ coefficients - predictions) ** 2).sum())


def fit_coefficients(gram, predictions, max_norm):
    basis = KernelBasis(gram)
    return basis.coefficients(basis.fit(predictions, max_norm))


@pytest.mark.parametrize("max_norm", [0.1, 0.5, 1e3])
@pytest.mark.parametrize("formulation", ["primal", "diagonal", "quadratic"])
def test_the_exact_fit_equals_the_optimum_of_every_declaration(formulation, max_norm):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (8, 2))
    gram, noisy = rbf_kernel(X, gamma=1.0), rng.laplace(size=8)
    problem, place, answer = fit(gram, np.array([noisy, noisy]), max_norm).declare(formulation)
    for scale in (1.0, 0.3):  # the compiled problem is reused
        place(scale * noisy)
        problem.solve(solver="CLARABEL")
        *values, norm = answer()
        exact = fit_coefficients(gram, scale * noisy, max_norm)
        assert np.sqrt(exact @ gram @ exact) <= max_norm * (1.0 + 1e-9)
        best = objective(gram, exact, scale * noisy)
        assert problem.value == pytest.approx(best, rel=1e-6, abs=1e-6)
        assert norm <= max_norm * (1.0 + 1e-5)
        # in constrained least squares, the excess bounds the squared distance of the fits
        distance = ((values - gram @ exact) ** 2).sum()
        assert distance <= abs(problem.value - best) + 1e-5


@pytest.mark.parametrize("noise", ["laplace", "process"])
def test_the_release_consists_of_noisy_values_and_their_fit(noise):
    erm, X = model(), public(20)
    release = release_of(erm, X, noise=noise)
    assert not release.noisy_predictions.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        release.noisy_predictions[0] = 0.0
    gram = erm.kernel_(X, X)
    exact = fit_coefficients(gram, release.noisy_predictions, erm.norm_bound_)
    assert release.predict(X) == pytest.approx(gram @ exact, abs=1e-8)
    assert np.array_equal(release.predictor.points, X)
    assert release.predictor.norm <= erm.norm_bound_ * (1.0 + 1e-6)
    assert release.predictor.guarantee is release.guarantee
    smaller = release_of(erm, X, noise=noise, max_norm=0.1)
    assert np.array_equal(smaller.noisy_predictions, release.noisy_predictions)
    assert smaller.predictor.norm == pytest.approx(0.1, rel=1e-6)
