"""Test that losses agree with their slopes, constants and CVXPY declarations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.learners import AbsoluteLoss, HingeLoss, HuberLoss, LogisticLoss, Loss
from convexmarket.learners.losses import loss_of
from tests.learners.builders import declared_losses

KINKED = [HingeLoss(), AbsoluteLoss()]
SMOOTH = [LogisticLoss(), HingeLoss(0.5), HingeLoss(2.0), HuberLoss(), HuberLoss(0.05)]
LOSSES = [*KINKED, *SMOOTH]
widths = st.floats(-15, 0).map(lambda exponent: 10.0**exponent)


def points(loss: Loss, seed: int, width: float, n: int = 400):
    """Return predictions and labels, with predictions near and far from the kinks."""
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], n) if loss.classifies else 3 * rng.standard_normal(n)
    f = rng.standard_normal(n) * 10.0 ** rng.uniform(-3, 2, n)
    f[::3] = (y + rng.standard_normal(n) * width)[::3]
    return f, y


@pytest.mark.parametrize("width", [1.0, 0.1, 1e-4])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_slopes_and_curvatures_equal_the_derivatives(loss, width):
    loss = loss.smoothed(width)
    f, y = points(loss, 0, width)
    f, y = f[np.abs(f) < 30], y[np.abs(f) < 30]
    step = 1e-5 * width
    up, down, here = (loss.derivatives(f + d, y) for d in (step, -step, 0.0))
    assert here[1] == pytest.approx((up[0] - down[0]) / (2 * step), rel=1e-5, abs=1e-4)
    clear = np.abs(up[2] - down[2]) <= 1e-3 * loss.curvature  # the curvature is continuous here
    slope = (up[1] - down[1]) / (2 * step)
    assert here[2][clear] == pytest.approx(slope[clear], rel=1e-3, abs=1e-4 * loss.curvature)
    assert 0 < here[2].max() <= loss.curvature * (1 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_constants_are_valid_and_minimal(loss):
    f, y = points(loss, 1, 1.0, 4000)
    slopes = [np.abs(loss.smoothed(width).derivatives(f, y)[1]) for width in (1.0, 1e-4)]
    assert np.all(np.array(slopes) <= loss.lipschitz)
    steepest = loss.derivatives(np.array([-1e3]), np.ones(1))[1]
    assert -steepest == pytest.approx(loss.lipschitz, rel=1e-12)
    largest = loss.values(np.zeros(2), np.array([-1.0, 1.0])).max()
    assert loss.at_zero == (pytest.approx(largest, rel=1e-15) if loss.classifies else np.inf)
    curvatures = loss.derivatives(f, y)[2]
    if np.isfinite(loss.curvature):
        other = np.sort(f)
        within = loss.curvatures_within(curvatures, np.abs(other - f))
        assert np.all(loss.derivatives(other, y)[2] <= within * (1 + 1e-12))


@given(loss=st.sampled_from(LOSSES), seed=st.integers(0, 10**6), width=widths)
def test_smoothed_losses_are_convex_lower_bounds(loss, seed, width):
    f, y = points(loss, seed, width)
    smooth = loss.smoothed(width)
    low, exact = smooth.values(f, y), loss.values(f, y)
    rounding = 1e-15 * (1 + np.abs(f) + np.abs(y)) * max(1.0, loss.lipschitz)
    assert np.all(low <= exact + rounding)
    assert np.all(low >= exact - (0.0 if smooth is loss else width / 2) - rounding)
    order = np.argsort(f)
    for label in (-1.0, 1.0):
        _, slopes, curvatures = smooth.derivatives(f[order], np.full(f.size, label))
        assert np.all(np.diff(slopes) >= -1e-15 * loss.lipschitz)
        assert np.all(curvatures >= 0)


@given(
    loss=st.sampled_from(LOSSES), f=st.floats(-8, 8), y=st.sampled_from([-1.0, 1.0]), width=widths
)
def test_the_fenchel_gap_equals_its_definition_by_the_conjugate(loss, f, y, width):
    """Compute the conjugate as the maximum of slope*g - loss(g) over kinks and local maxima."""
    at, label = np.array([f]), np.array([y])
    slope = loss.smoothed(width).derivatives(at, label)[1]

    def height(g: float) -> float:
        return float(slope[0] * g - loss.values(np.array([g]), label)[0])

    result = optimize.minimize_scalar(lambda g: -height(g), bounds=(-60, 60), method="bounded")
    conjugate = max(height(0.0), height(y), -result.fun)
    gap = loss.fenchel_gaps(at, label, slope)[0]
    assert gap >= 0
    assert gap == pytest.approx(loss.values(at, label)[0] + conjugate - slope[0] * f, abs=1e-6)


@pytest.mark.parametrize("width", [1.0, 1e-4, 1e-12])
def test_the_gap_of_the_hinge_vanishes_beyond_the_parabola(width):
    loss, shares = HingeLoss(), np.linspace(0.1, 0.9, 9)
    far, inside = np.array([-3.0, 1 - 2 * width, 1 + 1e-9, 2.0, 50.0]), 1 - width * shares
    for f, expected in ((far, np.zeros(5)), (inside, width * shares * (1 - shares))):
        y = np.ones(f.size)
        gaps = loss.fenchel_gaps(f, y, loss.smoothed(width).derivatives(f, y)[1])
        assert gaps == pytest.approx(expected, rel=1e-14 / width, abs=0.0)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_cvxpy_declaration_equals_the_loss(loss):
    f, y = points(loss, 2, 0.1, 60)
    assert declared_losses(loss, f, y).value == pytest.approx(
        loss.values(f, y), rel=1e-9, abs=1e-12
    )


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_huge_predictions_do_not_overflow(loss):
    f, y = np.array([-1e12, -800.0, 800.0, 1e12]), np.array([1.0, 1.0, -1.0, 1.0])
    for width in (1.0, 1e-15):
        result = loss.smoothed(width).derivatives(f, y)
        assert np.isfinite([*result, loss.fenchel_gaps(f, y, result[1])]).all()


class TooSteep(HuberLoss):
    """Loss whose largest slope exceeds the declared Lipschitz constant."""

    lipschitz = 0.5


@pytest.mark.parametrize("given", ["squared", "Logistic", 3, None, TooSteep()])
def test_a_loss_without_a_valid_lipschitz_constant_is_refused(given):
    with pytest.raises(ParameterError, match=r"loss must be .*got|has lipschitz"):
        loss_of(given)


def test_a_kinked_loss_without_smoothing_is_refused():
    class Kinked(Loss):
        lipschitz = 1.0

        def derivatives(self, f, y):
            return np.abs(f), np.sign(f), np.zeros_like(f)

    with pytest.raises(NotSupportedError, match="define this method"):
        Kinked().smoothed(0.1)
