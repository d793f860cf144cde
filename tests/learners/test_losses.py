"""The losses are what their slopes, constants and declarations say."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from convexmarket.errors import ParameterError
from convexmarket.learners.losses import (
    AbsoluteLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    Loss,
    QuantileLoss,
    loss_of,
)

LOSSES = [
    LogisticLoss(),
    HingeLoss(),
    HingeLoss(0.5),
    HuberLoss(),
    HuberLoss(0.05),
    HuberLoss(7.5),
    AbsoluteLoss(),
    QuantileLoss(0.8),
]
SMOOTHINGS = [1.0, 0.1, 1e-4]


def kinks(loss: Loss, y: np.ndarray, smoothing: float) -> np.ndarray:
    """Return the predictions at which a derivative jumps, for each label."""
    if isinstance(loss, HingeLoss):
        return np.stack([y, y * (1 - (loss.width or smoothing))])
    if isinstance(loss, HuberLoss):
        return np.stack([y - loss.threshold, y + loss.threshold])
    if isinstance(loss, QuantileLoss):
        return np.stack([y + end * smoothing for end in loss.ends])
    return np.full((1, y.size), np.inf)


def points(loss: Loss, seed: int, smoothing: float, n: int = 400):
    """Return predictions, also near and far from the kinks, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], n) if loss.classifies else 3 * rng.standard_normal(n)
    f = rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 2, n)
    f[::3] = kinks(loss, y, smoothing)[0][::3]
    f[::3] += rng.standard_normal(f[::3].size) * min(1.0, smoothing)
    return np.where(np.isfinite(f), f, 0.0), y


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_slopes_and_curvatures_are_derivatives(loss, smoothing) -> None:
    f, y = points(loss, 0, smoothing)
    step = 1e-5 * smoothing
    clear = np.min(np.abs(kinks(loss, y, smoothing) - f), axis=0) > 2 * step
    f, y = f[clear & (np.abs(f) < 30)], y[clear & (np.abs(f) < 30)]
    assert f.size > 200
    value = (loss.smoothed(f + step, y, smoothing) - loss.smoothed(f - step, y, smoothing)) / 2
    assert loss.slopes(f, y, smoothing) == pytest.approx(value / step, rel=1e-5, abs=1e-15 / step)
    slope = (loss.slopes(f + step, y, smoothing) - loss.slopes(f - step, y, smoothing)) / 2
    found = loss.curvatures(f, y, smoothing)
    assert found == pytest.approx(slope / step, rel=1e-4, abs=1e-15 / step)
    assert found.max() > 0


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_lipschitz_constant_holds_and_is_the_smallest(loss) -> None:
    f, y = points(loss, 1, 1.0, 4000)
    g = np.where(np.arange(f.size) % 2 == 0, f[::-1], f + 1e-3)
    rise = np.abs(loss.values(f, y) - loss.values(g, y))
    assert np.all(rise <= loss.lipschitz * np.abs(f - g) * (1 + 1e-9) + 1e-12)
    for smoothing in SMOOTHINGS:
        assert np.all(np.abs(loss.slopes(f, y, smoothing)) <= loss.lipschitz)
    steepest = np.abs(loss.slopes(np.array([-1e3]), np.array([1.0]), 1.0))
    assert steepest == pytest.approx(loss.lipschitz, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_loss_of_a_zero_prediction(loss) -> None:
    largest = max(loss.values(np.zeros(2), np.array([-1.0, 1.0])))
    if loss.classifies:
        assert loss.at_zero == pytest.approx(largest, rel=1e-15)
    else:
        assert loss.at_zero == np.inf


@given(
    loss=st.sampled_from(LOSSES),
    seed=st.integers(0, 10**6),
    log_smoothing=st.floats(-15, 0),
)
def test_smooth_neighbours_lie_below_and_are_convex(loss, seed, log_smoothing) -> None:
    smoothing = 10.0**log_smoothing
    f, y = points(loss, seed, smoothing)
    low, exact = loss.smoothed(f, y, smoothing), loss.values(f, y)
    rounding = 1e-15 * (1 + np.abs(f) + np.abs(y)) * max(1.0, loss.lipschitz)
    assert np.all(low <= exact + rounding)
    assert np.all(low >= exact - (0.0 if loss.smooth else smoothing / 2) - rounding)
    order = np.argsort(f)
    for label in (-1.0, 1.0):
        slopes = loss.slopes(f[order], np.full(f.size, label), smoothing)
        assert np.all(np.diff(slopes) >= -1e-15 * loss.lipschitz)
    assert np.all(loss.curvatures(f, y, smoothing) >= 0)


def conjugate(loss: Loss, multiplier: float, y: float) -> float:
    """Maximise ``multiplier*f - loss(f)`` on a grid of candidates around the kinks, and by search.

    The multiplier lies inside the slopes' range, so that the maximum is attained.
    """

    def height(f: float) -> float:
        return float(multiplier * f - loss.values(np.array([f]), np.array([y]))[0])

    candidates = [0.0, y, *kinks(loss, np.array([y]), 0.0)[:, 0]]
    found = optimize.minimize_scalar(lambda f: -height(f), bounds=(-60, 60), method="bounded")
    return max([height(f) for f in candidates if np.isfinite(f)] + [-found.fun])


@given(
    loss=st.sampled_from(LOSSES),
    f=st.floats(-8, 8),
    label=st.sampled_from([-1.0, 1.0]),
    log_smoothing=st.floats(-6, 0),
)
def test_the_fenchel_gap_is_that_of_the_conjugate(loss, f, label, log_smoothing) -> None:
    smoothing = 10.0**log_smoothing
    at, y = np.array([f]), np.array([label])
    slope = loss.slopes(at, y, smoothing)
    gap = loss.fenchel_gaps(at, y, smoothing)[0]
    expected = loss.values(at, y)[0] + conjugate(loss, float(slope[0]), label) - slope[0] * f
    assert gap >= 0
    assert gap == pytest.approx(expected, abs=1e-6)
    if loss.smooth:
        assert gap == 0


@pytest.mark.parametrize("smoothing", [*SMOOTHINGS, 1e-12])
def test_the_gap_of_the_hinge_vanishes_beyond_the_parabola(smoothing) -> None:
    loss, y = HingeLoss(), np.ones(5)
    f = np.array([-3.0, 1 - 2 * smoothing, 1 + 1e-9, 2.0, 50.0])
    assert np.array_equal(loss.fenchel_gaps(f, y, smoothing), np.zeros(5))
    shares = np.linspace(0.1, 0.9, 9)
    inside = 1 - smoothing * shares
    gaps = loss.fenchel_gaps(inside, np.ones(9), smoothing)
    # the conjugate of the hinge is minus the share: gap = (1 - f) - share + share*f
    assert gaps == pytest.approx(smoothing * shares * (1 - shares), rel=1e-14 / smoothing)
    # multipliers outside [0, 1] would have no finite conjugate
    assert np.all(np.abs(loss.slopes(inside, np.ones(9), smoothing)) <= 1)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_declaration_agrees(loss) -> None:
    f, y = points(loss, 2, 0.1, 60)
    expression = loss.declare(cp.Constant(f), y)
    assert expression.shape == (60,)
    assert expression.value == pytest.approx(loss.values(f, y), rel=1e-9, abs=1e-12)
    variable = cp.Variable(60)
    declared = loss.declare(variable, y)
    assert declared.is_convex()
    assert not declared.is_affine()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_huge_predictions_do_not_overflow(loss) -> None:
    f, y = np.array([-1e12, -800.0, 800.0, 1e12]), np.array([1.0, 1.0, -1.0, 1.0])
    for smoothing in (1.0, 1e-15):
        for array in (
            loss.values(f, y),
            loss.smoothed(f, y, smoothing),
            loss.slopes(f, y, smoothing),
            loss.curvatures(f, y, smoothing),
            loss.fenchel_gaps(f, y, smoothing),
        ):
            assert np.all(np.isfinite(array))
            assert array.shape == (4,)


def test_losses_have_names() -> None:
    assert loss_of("logistic") == LogisticLoss()
    assert loss_of("hinge") == HingeLoss()
    assert loss_of("huber", 2.0) == HuberLoss(2.0)
    assert loss_of("huber") == HuberLoss(1.0)
    assert loss_of("absolute") == AbsoluteLoss()
    assert loss_of(QuantileLoss(0.3)) == QuantileLoss(0.3)


@pytest.mark.parametrize("name", ["squared", "Logistic", "", None])
def test_unknown_losses_are_named(name) -> None:
    with pytest.raises(ParameterError, match=f"loss must be .*got {name!r}"):
        loss_of(name)


@pytest.mark.parametrize("threshold", [0.0, -1.0, np.nan, np.inf])
def test_a_bad_threshold_is_named(threshold) -> None:
    with pytest.raises(ParameterError, match=r"huber_threshold must be a finite number > 0"):
        loss_of("huber", threshold)


@pytest.mark.parametrize("loss", [each for each in LOSSES if each.smooth], ids=str)
def test_smooth_losses_state_the_most_that_they_bend(loss) -> None:
    f, y = points(loss, 3, 1.0)
    values, slopes, curvatures = loss.derivatives(f, y)
    np.testing.assert_allclose(values, loss.values(f, y), rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(slopes, loss.slopes(f, y, 0.0), rtol=1e-12, atol=1e-300)
    assert curvatures.max() <= loss.curvature
    other = np.sort(f)
    rise = loss.slopes(other, y, 0.0) - loss.slopes(f, y, 0.0)
    assert np.all(np.abs(rise) <= loss.curvature * np.abs(other - f) * (1 + 1e-9) + 1e-12)
    within = loss.curvatures_within(curvatures, np.abs(other - f))
    assert np.all(loss.curvatures(other, y, 0.0) <= within * (1 + 1e-12))


class TooSteep(HuberLoss):
    """States a bound that is not one."""

    lipschitz = 0.5


@pytest.mark.parametrize("given", ["hubris", 3, None, TooSteep()])
def test_what_is_no_lipschitz_loss_is_refused(given) -> None:
    with pytest.raises(ParameterError, match=r"loss must be|states lipschitz"):
        loss_of(given)
