"""The exact solver against brute force, the CVXPY declarations and the certified search."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation import exact
from convexmarket.allocation.exact import solve_at, solve_exact
from convexmarket.market import StandardForm

# Edge cases are answered in numbers or in words; never in NaN with a warning.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

FORMULATIONS = ["primal", "dual", "projection"]


# ------------------------------------------------------------------------- oracles


def project(psi, count, beta, cap):
    """Project -beta*psi on the capped simplex, one row per beta, by bisection.

    ``count`` sellers have the cost ``psi``; they get the same weight each. Costs are measured from
    the dearest seller needed to fill the cap, so that the threshold lies in [-cap, 0] whatever
    beta is.
    """
    needed = int(np.ceil((1 - 1e-12) / cap))
    marginal = psi[np.searchsorted(np.cumsum(count), min(needed, count.sum()))]
    point = -beta[:, None] * (psi - marginal)
    low, high = np.full((beta.size, 1), -cap), np.zeros((beta.size, 1))
    for _ in range(54):
        middle = 0.5 * (low + high)
        enough = (np.clip(point - middle, 0, cap) @ count)[:, None] >= 1
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    weights = np.clip(point - low, 0, cap)
    return weights / (weights @ count)[:, None]


def values_along(form, psi, count, exponents):
    """Return the objective at a(beta) with the best eta, for beta = 10**exponents."""
    weights = project(psi, count, 10.0**exponents, form.max_weight)
    cost = (weights * psi) @ count
    low, high = max(form.eta_low, 1e-300), min(form.eta_high, 1e300)
    with np.errstate(divide="ignore", invalid="ignore"):
        eta = np.sqrt(form.sigma / form.gamma / cost)
    eta = np.clip(np.where(np.isnan(eta), low, eta), low, high)
    norm = np.sqrt(weights**2 @ count)
    return form.mu * norm + form.sigma / eta + form.gamma * eta * cost


def brute_force(form):
    """Return the least objective: a grid over beta, zoomed in on around every local minimum.

    Whatever mu, sigma and gamma are, the best weights for some eta are the projection of
    -beta*psi for some beta in [0, inf].
    """
    finite = form.virtual_costs[np.isfinite(form.virtual_costs)]
    psi, count = np.unique(finite, return_counts=True)
    if psi.size == 1:
        return float(values_along(form, psi, count, np.zeros(1))[0])
    # From where all weights are alike to where the two cheapest have parted.
    first, last = 1e-9 / finite.size / (psi[-1] - psi[0]), 1e4 / np.diff(psi).min()
    exponents = np.linspace(np.log10(first), np.log10(last), 1500)
    values = values_along(form, psi, count, exponents)
    best = float(values.min())
    padded = np.concatenate((values[:1], values, values[-1:]))
    higher = np.maximum(padded[:-2], padded[2:]) > values * (1 + 1e-14)  # no plateau
    dip = (values <= padded[:-2]) & (values <= padded[2:]) & (values <= 1.01 * best) & higher
    for i in np.flatnonzero(dip):
        around = exponents[[max(i - 1, 0), min(i + 1, exponents.size - 1)]]
        for _ in range(4):
            finer = np.linspace(*around, 60)
            found = values_along(form, psi, count, finer)
            k = int(found.argmin())
            best = min(best, float(found[k]))
            around = finer[[max(k - 1, 0), min(k + 1, finer.size - 1)]]
    return best


def least_linear(costs, cap):
    """Return min costs'a over the capped simplex, filling the cheapest first."""
    filled = np.diff(np.minimum(cap * np.arange(costs.size + 1), 1.0))
    return float(np.sort(costs) @ filled)


def random_point(rng, form):
    """Return random feasible weights: a mixture of vertices of the capped simplex."""
    available = np.flatnonzero(np.isfinite(form.virtual_costs))
    weights = np.zeros(form.virtual_costs.size)
    for share in rng.dirichlet(np.ones(3)):
        order = rng.permutation(available)
        filled = np.diff(np.minimum(form.max_weight * np.arange(order.size + 1), 1.0))
        weights[order] += share * filled
    return weights


# ------------------------------------------------------------------------- markets


def costs(max_size=10):
    """Virtual costs with ties, clusters closer than any tolerance, and wide ranges."""
    plain = st.lists(st.floats(0.01, 10), min_size=1, max_size=max_size)
    tied = st.lists(st.sampled_from([0.002, 0.5, 1.0, 100.0]), min_size=1, max_size=max_size)
    equal = st.builds(lambda c, m: [c] * m, st.floats(0.01, 10), st.integers(1, max_size))
    clustered = st.lists(
        st.builds(
            lambda c, k: c * (1 + 1e-9 * k), st.sampled_from([0.1, 1.0, 3.0]), st.integers(0, 3)
        ),
        min_size=1,
        max_size=max_size,
    )
    # The instance with three roots, and others where few cheap sellers compete with many.
    competing = st.builds(
        lambda cheap, few, many: [cheap] * few + [1.0] * many,
        st.sampled_from([1e-6, 0.002, 0.01, 0.1]),
        st.integers(1, 3),
        st.integers(1, 45),
    )
    return st.one_of(plain, tied, equal, clustered, competing).map(np.array)


weight = st.floats(-2, 2).map(lambda exponent: 10.0**exponent)


@st.composite
def caps(draw, m):
    """Draw k/m for k = 1, barely above 1, m (no cap), with m/k an integer and not."""
    ratio = m / draw(st.integers(1, m))
    k = draw(st.sampled_from([None, 1.0, 1 + 1e-9, 1.01, 1.3, 2.0, ratio, float(m)]))
    return 1.0 if k is None else min(1.0, k / m)


@st.composite
def forms(draw, zeros=False, infinite=False, capped=True):
    psi = draw(costs()) * 10.0 ** draw(st.sampled_from([-6, 0, 0, 6]))
    if zeros:
        psi[: draw(st.integers(1, psi.size))] = 0.0
    cap = draw(caps(psi.size)) if capped else 1.0
    if infinite:
        n = draw(st.integers(1, 3))
        psi = np.append(psi, np.full(n, np.inf))
    sigma, gamma = draw(weight), draw(weight)
    scale = float(np.median(psi[np.isfinite(psi)])) or 1.0
    return StandardForm(
        virtual_costs=draw(st.permutations(list(psi)).map(np.array)),
        mu=draw(weight),
        # Often in balance with the other terms, whatever the scale of the costs.
        sigma=draw(st.sampled_from([sigma, 1 / (gamma * scale)])),
        gamma=gamma,
        max_weight=cap,
    )


@st.composite
def ranged_forms(draw):
    """Forms whose EtaRange holds the free optimum inside, or keeps eta above or below it."""
    form = draw(st.one_of(forms(), forms(zeros=True)))
    psi = form.virtual_costs
    centre = np.sqrt(form.sigma / form.gamma / (psi.mean() or 1.0))
    low = centre * 10 ** draw(st.floats(-3, 2))
    high = low * 10 ** draw(st.sampled_from([0.0, 0.1, 1.0, 4.0]))
    mu = draw(st.sampled_from([form.mu, form.mu, 0.0]))
    sigma = draw(st.sampled_from([form.sigma, form.sigma, 0.0]))
    return replace(form, eta_low=low, eta_high=high, mu=mu, sigma=sigma)


def market_of(form):
    m = form.virtual_costs.size
    return cm.Market.standard(
        cm.Sellers(virtual_costs=form.virtual_costs),
        mu=form.mu,
        sigma=form.sigma,
        gamma=form.gamma,
        cap=max(1.0, m * form.max_weight) if form.max_weight < 1 else None,
        eta_range=(form.eta_low, form.eta_high) if form.eta_high < np.inf else None,
    )


def three_roots():
    """Few cheap sellers, many dear ones: Eq. (14) has three roots."""
    return StandardForm(np.array([0.002] + [1.0] * 44), mu=3.0, sigma=2.5, gamma=0.25)


# ---------------------------------------------------------------------- invariants


def assert_sound(form, found, seed=0):
    """Feasible, worth what it says, certified, and optimal for its own eta."""
    psi, u, a = form.virtual_costs, form.max_weight, found.weights
    assert a.sum() == pytest.approx(1, abs=1e-12)
    assert a.min() >= 0
    assert a.max() <= u * (1 + 1e-15)
    assert not a[np.isinf(psi)].any()
    assert form.eta_low <= found.eta <= form.eta_high
    assert 0 < found.eta < np.inf
    assert found.objective == pytest.approx(form.objective(a, found.eta), rel=1e-14)
    assert found.lower_bound <= found.objective
    assert found.objective - found.lower_bound <= 1e-12 * found.objective
    rng = np.random.default_rng(seed)
    for _ in range(10):
        eta = np.clip(found.eta * 10 ** rng.normal(0, 1), form.eta_low, form.eta_high)
        value = form.objective(random_point(rng, form), eta)
        assert found.lower_bound <= value * (1 + 1e-14)
    # Weak duality at this eta, proved by the gradient of the norm alone.
    t = form.gamma * found.eta
    gradient = form.mu * a / np.linalg.norm(a) + t * psi
    bound = least_linear(gradient[np.isfinite(psi)], u) + form.sigma / found.eta
    assert found.objective == pytest.approx(bound, rel=1e-10)
    # The multiplier prices the sellers between nothing and the cap.
    free = (a > 1e-6 * a.max()) & (a < u * (1 - 1e-6))
    if free.any():
        np.testing.assert_allclose(found.multiplier * found.eta, gradient[free], rtol=1e-8)


# ----------------------------------------------------------------- the best of all


@settings(relaxed, max_examples=120)
@example(three_roots(), 0)
@given(forms(), st.integers(0, 99))
def test_nothing_is_better_by_brute_force(form, seed):
    found = solve_exact(form)
    assert_sound(form, found, seed)
    assert found.objective == pytest.approx(brute_force(form), rel=1e-11)


@settings(relaxed, max_examples=60)
@given(forms(infinite=True))
def test_sellers_without_a_price_are_left_out(form):
    finite = np.isfinite(form.virtual_costs)
    if np.count_nonzero(finite) * form.max_weight < 1 - 1e-9:
        with pytest.raises(cm.InfeasibleMarketError, match="have a finite virtual cost"):
            solve_exact(form)
        return
    found = solve_exact(form)
    alone = solve_exact(replace(form, virtual_costs=form.virtual_costs[finite]))
    assert_sound(form, found)
    assert found.objective == pytest.approx(alone.objective, rel=1e-14)
    np.testing.assert_allclose(found.weights[finite], alone.weights, atol=1e-9)


def test_a_seller_at_the_top_of_a_prior_whose_density_ends_at_zero():
    sellers = cm.Sellers([0.2, 1.0, 0.4, 0.5], cm.Beta(2, 2))
    assert sellers.virtual_costs[1] == np.inf
    allocation = cm.allocate(cm.Market.standard(sellers, mu=9, sigma=1, gamma=0.5, cap=1.5))
    assert allocation.weights[1] == 0
    assert allocation.n_bought == 3
    with pytest.raises(cm.InfeasibleMarketError, match=r"3 of 4 sellers .* raise the cap"):
        cm.allocate(cm.Market.standard(sellers, mu=9, sigma=1, gamma=0.5, cap=1.3))


@settings(relaxed, max_examples=100)
@given(ranged_forms(), st.integers(0, 99))
def test_a_range_for_eta(form, seed):
    found = solve_exact(form)
    if found.objective > 0:
        assert_sound(form, found, seed)
    assert found.objective == pytest.approx(brute_force(form), rel=1e-11)
    # What binds is at its bound, and a wider range there would be better.
    at = {"eta_low": form.eta_low, "eta_high": form.eta_high}
    assert all(found.eta == at[name] for name in found.binding)
    if not found.binding and form.mu > 0:
        slope = form.gamma * form.expected_cost(found.weights) - form.sigma / found.eta**2
        assert abs(slope) <= 1e-7 * form.sigma / found.eta**2


@pytest.mark.parametrize(
    ("eta_range", "binding"),
    [
        ((0.01, 100), ()),
        ((5, 100), ("eta_low",)),
        ((0.1, 1), ("eta_high",)),
        ((2, 2), None),
        # Only the local minimum at eta = 0.83 is inside, but the end beside the global one wins.
        ((0.01, 2.9), ("eta_high",)),
    ],
)
def test_a_range_on_either_side_of_the_optimum(eta_range, binding):
    form = replace(three_roots(), eta_low=eta_range[0], eta_high=eta_range[1])
    found = solve_exact(form)
    assert found.objective == pytest.approx(brute_force(form), rel=1e-12)
    if binding is not None:
        assert found.binding == binding


@settings(relaxed, max_examples=60)
@given(forms(zeros=True))
def test_free_sellers_are_worth_a_finite_eta_or_refused(form):
    expected = brute_force(form)  # its beta goes to where all weight rests on free sellers
    free = np.count_nonzero(form.virtual_costs == 0)
    enough = free * form.max_weight >= 1 - 1e-12  # a cap of 6/5 of 1/6 is a fifth up to rounding
    limit = form.mu / np.sqrt(free) if enough else np.inf
    try:
        found = solve_exact(form)
    except cm.UnattainedOptimumError as error:
        assert expected >= limit * (1 - 1e-9)
        assert "virtual cost of 0" in str(error)  # noqa: PT017 - either answer may be right
    else:
        assert_sound(form, found)
        assert found.objective == pytest.approx(expected, rel=1e-11)
        assert found.objective <= limit


@settings(relaxed, max_examples=60)
@given(forms(), st.floats(-1, 1))
def test_one_eta(form, exponent):
    eta = float(np.sqrt(form.sigma / form.gamma / form.virtual_costs.mean())) * 10**exponent
    found = solve_at(form, eta)
    assert found.eta == eta
    held = replace(form, eta_low=eta, eta_high=eta)
    assert_sound(held, found)
    assert found.objective == pytest.approx(brute_force(held), rel=1e-11)
    assert solve_exact(held).objective == pytest.approx(found.objective, rel=1e-14)


def test_eta_stays_in_its_range_to_the_last_digit():
    psi, eta = np.array([1e-6, 1e-6, 1e-6, 7e-6, 1e-6]), 674.1998624632421
    form = StandardForm(psi, 1.0, 1.0, 1.0, max_weight=0.2, eta_low=eta, eta_high=eta)
    assert solve_exact(form).eta == eta


@settings(relaxed, max_examples=60)
@given(forms(), weight)
def test_without_spread_the_cheapest_are_filled(form, eta):
    form = replace(form, mu=0.0)
    at_eta = solve_at(form, eta)
    assert at_eta.eta == eta
    assert_sound_without_spread(form, at_eta)
    found = solve_exact(form)
    np.testing.assert_array_equal(at_eta.weights, found.weights)
    assert_sound_without_spread(form, found)
    cost = least_linear(form.virtual_costs, form.max_weight)
    assert found.objective == pytest.approx(2 * np.sqrt(form.sigma * form.gamma * cost), rel=1e-12)
    # Those who tie share alike: it is the limit of the answers as mu -> 0.
    for tied in np.unique(form.virtual_costs):
        assert np.ptp(found.weights[form.virtual_costs == tied]) <= 1e-15


def assert_sound_without_spread(form, found):
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert 0 <= found.weights.min() <= found.weights.max() <= form.max_weight * (1 + 1e-15)
    assert found.objective == pytest.approx(form.objective(found.weights, found.eta), rel=1e-14)
    assert found.lower_bound == pytest.approx(found.objective, rel=1e-12)


def test_a_little_spread_is_close_to_none():
    psi = np.array([0.3, 0.1, 0.1, 0.1, 2.0])
    without = solve_exact(StandardForm(psi, 0.0, 1.0, 1.0, max_weight=0.4))
    little = solve_exact(StandardForm(psi, 1e-9, 1.0, 1.0, max_weight=0.4))
    np.testing.assert_allclose(little.weights, without.weights, atol=1e-8)
    np.testing.assert_allclose(without.weights, [0, 1 / 3, 1 / 3, 1 / 3, 0])


# ------------------------------------------------------- Eq. (13)-(14) and its roots


def eq14(form, multiplier):
    """Return the left side of A's Eq. (14), zero at its roots."""
    v = np.maximum(multiplier - form.gamma * form.virtual_costs, 0.0)
    square = v @ v
    return multiplier - form.sigma / form.mu**2 * square - square / v.sum()


@settings(relaxed, max_examples=150)
@given(forms(capped=False))
def test_kkt_conditions_of_paper_a(form):
    found = solve_exact(form)
    v = np.maximum(found.multiplier - form.gamma * form.virtual_costs, 0.0)
    slope = 1 + 2 * form.sigma / form.mu**2 * v.sum()  # what one rounding of the root does
    rounding = 4 * np.spacing(found.multiplier) * slope
    assert abs(eq14(form, found.multiplier)) <= 1e-9 * found.multiplier + rounding
    norm = np.linalg.norm(v)
    # Eq. (13): eps_i = mu*v_i/(||v|| sum v); eta is its sum.
    np.testing.assert_allclose(found.weights, v / v.sum(), atol=1e-7)
    assert found.eta == pytest.approx(form.mu / norm, rel=1e-7)


@pytest.mark.parametrize(
    ("multiplier", "objective"),
    [
        (0.0429264069, 3.0707106781),
        (0.2504113906, 3.2140948463),
        (0.3763006421, 1.9946349581),
    ],
)
def test_each_of_the_three_roots_is_a_root(multiplier, objective):
    form = three_roots()
    below, above = eq14(form, multiplier - 1e-9), eq14(form, multiplier + 1e-9)
    assert below * above < 0
    v = np.maximum(multiplier - form.gamma * form.virtual_costs, 0.0)
    value = form.objective(v / v.sum(), form.mu / np.linalg.norm(v))
    assert value == pytest.approx(objective, abs=1e-9)
    assert solve_exact(form).objective <= value + 1e-9


def test_the_best_of_the_three_roots_is_found():
    allocation = cm.allocate(market_of(three_roots()))
    assert allocation.method == "exact"
    assert allocation.objective == pytest.approx(1.9946349581, abs=1e-9)
    assert allocation.eta == pytest.approx(3.2672302966, abs=1e-9)
    assert allocation.multiplier == pytest.approx(0.3763006421, abs=1e-9)
    assert allocation.lower_bound == pytest.approx(1.9946349581, abs=1e-9)


# ------------------------------------------------------------------- equivariance


@settings(relaxed, max_examples=60)
@given(forms(), st.sampled_from([1e-100, 1e-6, 1e6, 1e100]))
def test_money_has_no_unit(form, scale):
    found = solve_exact(form)
    costs_scaled = solve_exact(
        replace(form, virtual_costs=form.virtual_costs * scale, gamma=form.gamma / scale)
    )
    assert costs_scaled.objective == pytest.approx(found.objective, rel=1e-12)
    all_scaled = solve_exact(
        replace(form, mu=form.mu * scale, sigma=form.sigma * scale, gamma=form.gamma * scale)
    )
    assert all_scaled.objective == pytest.approx(scale * found.objective, rel=1e-12)
    assert_sound(replace(form, mu=form.mu, gamma=form.gamma), found)


@settings(relaxed, max_examples=60)
@given(forms(), st.sampled_from([1e-100, 1e-6, 1e6, 1e100]))
def test_privacy_has_no_unit(form, scale):
    """Twice as much of a unit half as large: sigma and eta double, gamma halves."""
    found = solve_exact(form)
    other = solve_exact(replace(form, sigma=form.sigma * scale, gamma=form.gamma / scale))
    assert other.objective == pytest.approx(found.objective, rel=1e-12)
    assert form.objective(other.weights, other.eta / scale) == pytest.approx(
        found.objective, rel=1e-12
    )


@settings(relaxed, max_examples=60)
@given(forms(), st.randoms(use_true_random=False))
def test_the_order_of_sellers_does_not_matter(form, random):
    order = np.array(random.sample(range(form.virtual_costs.size), form.virtual_costs.size))
    found = solve_exact(form)
    shuffled = solve_exact(replace(form, virtual_costs=form.virtual_costs[order]))
    assert shuffled.objective == pytest.approx(found.objective, rel=1e-14)
    np.testing.assert_allclose(shuffled.weights, found.weights[order], atol=1e-13)
    for tied in np.unique(form.virtual_costs):  # equal sellers are treated equally
        assert np.ptp(found.weights[form.virtual_costs == tied]) == 0


@settings(relaxed, max_examples=100)
@given(forms(), st.data())
def test_guarantees_fall_with_the_own_report(form, data):
    seller = data.draw(st.integers(0, form.virtual_costs.size - 1))
    reports = st.one_of(st.just(0.0), st.floats(1e-9, 3))
    factors = data.draw(st.lists(reports, min_size=2, max_size=6))
    epsilon = []
    for factor in np.sort(factors):
        psi = form.virtual_costs.copy()
        psi[seller] *= factor
        try:
            found = solve_exact(replace(form, virtual_costs=psi))
        except cm.UnattainedOptimumError:  # a free seller: infinitely much
            epsilon.append(np.inf)
        else:
            epsilon.append(found.eta * found.weights[seller])
            assert_sound(replace(form, virtual_costs=psi), found)
    epsilon = np.minimum(epsilon, 1e300)
    # Where markets tie to rounding, either answer is right.
    assert np.all(np.diff(epsilon) <= 1e-7 * epsilon[:-1] + 1e-12 * epsilon.max())


# --------------------------------------------------------- conic solvers as oracles


@st.composite
def conic_forms(draw):
    """Forms within the few decades that conic solvers manage in the market's own units."""
    psi = draw(costs())
    assume(psi.max() <= 30 * psi.min() and psi.min() >= 0.01)
    moderate = st.floats(-0.7, 0.7).map(lambda exponent: 10.0**exponent)
    mu, sigma, gamma, cap = (draw(part) for part in (moderate, moderate, moderate, caps(psi.size)))
    return StandardForm(psi, mu, sigma, gamma, cap)


@settings(relaxed, max_examples=15)
@given(conic_forms())
def test_conic_declarations_of_one_eta_agree(form):
    market = market_of(form)
    allocation = cm.allocate(market)
    for formulation in FORMULATIONS:
        problem = cm.declare(market, eta=allocation.eta, formulation=formulation)
        problem.solve(solver="CLARABEL")
        value = problem.value
        if formulation == "projection":  # its value is another, its weights are the market's
            value = form.objective(problem.weights, allocation.eta)
        assert value == pytest.approx(allocation.objective, rel=1e-6)
        np.testing.assert_allclose(problem.weights, allocation.weights, atol=2e-3)


@settings(relaxed, max_examples=15)
@given(conic_forms())
def test_certified_searches_agree(form):
    market = market_of(form)
    allocation = cm.allocate(market)
    for formulation in FORMULATIONS:
        searched = cm.allocate(market, method="line_search", formulation=formulation, gap=1e-8)
        assert searched.lower_bound <= allocation.objective * (1 + 1e-12)
        assert allocation.lower_bound <= searched.objective * (1 + 1e-12)
        assert searched.objective == pytest.approx(allocation.objective, rel=1e-6)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("cap", [None, 1.0, 1.05, 2.5, 4.0])
def test_certified_searches_agree_to_their_gap(formulation, cap):
    psi = 2 * np.random.default_rng(5).uniform(0.02, 0.1, 40) - 0.02
    sellers = cm.Sellers(virtual_costs=psi)
    market = cm.Market.standard(sellers, mu=1, sigma=100, gamma=0.001, cap=cap)
    allocation = cm.allocate(market)
    searched = cm.allocate(market, method="line_search", formulation=formulation, gap=1e-8)
    assert searched.gap <= 1e-8
    assert searched.objective == pytest.approx(allocation.objective, rel=2e-8)
    np.testing.assert_allclose(searched.weights, allocation.weights, atol=2e-5)


@settings(relaxed, max_examples=20)
@given(forms())
def test_the_declared_objective_says_the_same(form):
    market = market_of(form)
    allocation = cm.allocate(market)
    declared = market.objective.value(allocation.weights, allocation.eta, form.virtual_costs)
    assert declared == pytest.approx(allocation.objective, rel=1e-12)
    assert allocation.gap <= 1e-12
    assert allocation.n_bought == np.count_nonzero(allocation.epsilon)
    np.testing.assert_allclose(allocation.epsilon.sum(), allocation.eta, rtol=1e-12)


# ----------------------------------------------------------------------------- large


LARGE = 200_000


def large_forms():
    rng = np.random.default_rng(11)
    uniform = 2 * rng.uniform(0.02, 0.10, LARGE) - 0.02
    ties = np.round(uniform, 3)
    skewed = rng.pareto(1.5, LARGE) + 0.01
    few = StandardForm(uniform, 1.0, 100.0, 0.001)
    return {
        "few bought": few,
        "nearly all bought": replace(few, mu=100.0),
        "capped": replace(few, max_weight=5 / LARGE),
        "tightly capped": replace(few, max_weight=1.001 / LARGE),
        "capped, nearly all": replace(few, mu=100.0, max_weight=1.5 / LARGE),
        "ties": replace(few, virtual_costs=ties, max_weight=20 / LARGE),
        "skewed": replace(few, virtual_costs=skewed),
        "skewed, capped": replace(few, virtual_costs=skewed, max_weight=50 / LARGE),
        "infinite": replace(few, virtual_costs=np.where(uniform > 0.1, np.inf, uniform)),
        "a range": replace(few, eta_low=10.0, eta_high=100.0),
        "three roots": StandardForm(
            np.append(np.full(4444, 0.002), np.ones(LARGE - 4444)), 3 * 66.6, 2.5, 0.25
        ),
    }


@pytest.mark.parametrize("name", large_forms())
def test_leaving_out_sellers_loses_nothing(name, monkeypatch):
    form = large_forms()[name]
    found = solve_exact(form)
    assert_sound(form, found)
    with monkeypatch.context() as patch:
        patch.setattr(exact, "_WORTH_PRUNING", np.inf)
        patch.setattr(exact, "highest_cost_bought", lambda *_, **__: np.inf)
        whole = solve_exact(form)
    assert found.objective == pytest.approx(whole.objective, rel=1e-13)
    np.testing.assert_allclose(found.weights, whole.weights, rtol=1e-9, atol=1e-15)


@settings(relaxed, max_examples=80)
@given(forms())
def test_nobody_above_the_highest_cost_is_bought_from(form):
    found = solve_exact(form)
    ceiling = exact.highest_cost_bought(form, np.sort(form.virtual_costs))
    assert not found.weights[form.virtual_costs > ceiling * (1 + 1e-12)].any()


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("solve", [solve_exact, partial(solve_at, eta=1.0)])
def test_too_tight_a_cap_is_said_to_be_infeasible(solve):
    form = StandardForm(np.array([1.0, np.inf, 2.0]), 1.0, 1.0, 1.0, max_weight=0.4)
    with pytest.raises(cm.InfeasibleMarketError, match=r"2 of 3 sellers .* cap of 1\.2"):
        solve(form)


def test_ranges_that_do_not_meet_are_infeasible():
    sellers = cm.Sellers(virtual_costs=[1.0, 2.0])
    objective = 1 * cm.Spread() + 1 * cm.Noise() + 1 * cm.Payments()
    market = cm.Market(sellers, objective, [cm.EtaRange(1, 2), cm.EtaRange(3, 4)])
    with pytest.raises(cm.InfeasibleMarketError, match="ranges of eta do not meet"):
        cm.allocate(market)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_an_optimum_at_no_privacy_is_refused(mu):
    market = cm.Market.standard(cm.Sellers(virtual_costs=[1.0, 2.0]), mu=mu, sigma=0, gamma=1)
    with pytest.raises(cm.UnattainedOptimumError, match=r"sigma.* is 0.*EtaRange"):
        cm.allocate(market)


@pytest.mark.parametrize("mu", [0.0, 1.0])
@pytest.mark.parametrize("cap", [None, 2.0])
def test_an_optimum_at_endless_privacy_is_refused(mu, cap):
    sellers = cm.Sellers(virtual_costs=[0.0, 0.0, 5.0])
    market = cm.Market.standard(sellers, mu=mu, sigma=1, gamma=1, cap=cap)
    with pytest.raises(cm.UnattainedOptimumError, match=r"2 sellers .* eta = infinity.*EtaRange"):
        cm.allocate(market)
    bounded = cm.Market.standard(sellers, mu=mu, sigma=1, gamma=1, cap=cap, eta_range=(1, 9))
    assert cm.allocate(bounded).eta == 9
    assert cm.allocate(bounded).binding == ("eta_high",)


def test_a_tight_cap_makes_free_sellers_harmless():
    sellers = cm.Sellers(virtual_costs=[0.0, 0.0, 5.0])
    allocation = cm.allocate(cm.Market.standard(sellers, mu=1, sigma=1, gamma=1, cap=1.2))
    assert allocation.weights.sum() == pytest.approx(1)
    assert 0 < allocation.eta < np.inf


@pytest.mark.parametrize("cap", [None, 1.0])
def test_one_seller_carries_everything(cap):
    sellers = cm.Sellers(virtual_costs=[0.25])
    allocation = cm.allocate(cm.Market.standard(sellers, mu=3, sigma=2, gamma=0.5, cap=cap))
    assert allocation.weights.tolist() == [1.0]
    assert allocation.eta == pytest.approx(4.0, rel=1e-15)
    assert allocation.objective == pytest.approx(4.0, rel=1e-15)  # 3 + 2/4 + 0.5*4*0.25


def test_k_of_one_makes_all_weights_equal():
    psi = np.random.default_rng(2).uniform(0, 9, 37)
    form = StandardForm(psi, 1.0, 1.0, 1.0, max_weight=1 / 37)
    found = solve_exact(form)
    np.testing.assert_allclose(found.weights, 1 / 37, rtol=1e-14)
    assert found.eta == pytest.approx(1 / np.sqrt(psi.mean()), rel=1e-14)


@pytest.mark.parametrize(
    ("psi", "mu", "sigma", "gamma", "cap", "eta_range"),
    [
        (np.r_[1.0, 1000 * np.ones(7)], 5e-7, 3.0, 1.0, 8 - 1e-5, (1.0, 1.0)),
        (np.r_[4.2e-5, np.ones(14)], 11.22, 5.9e-7, 3.9e7, 14.999999999, (0.0493, 11.8)),
        (np.r_[1e-6 * np.ones(5), 1000 * np.ones(3)], 0.00216, 3.0, 1.0, 1.5999999999921413, None),
    ],
)
def test_caps_a_hair_off_an_integer(psi, mu, sigma, gamma, cap, eta_range):
    market = cm.Market.standard(
        cm.Sellers(virtual_costs=psi),
        mu=mu,
        sigma=sigma,
        gamma=gamma,
        cap=cap,
        eta_range=eta_range,
    )
    found = cm.allocate(market)
    searched = cm.allocate(market, "line_search", formulation="projection", gap=1e-9)
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.objective >= searched.lower_bound * (1 - 1e-12)
    # Costs of 1000 magnify the rounding with which the search's weights sum to one.
    assert found.objective <= searched.objective * (1 + 1e-7)
    assert found.gap <= 1e-12


@pytest.mark.parametrize("mu", [1e300, 1e-300])
def test_what_double_precision_cannot_weigh_is_refused(mu):
    market = cm.Market.standard(cm.Sellers(virtual_costs=[0.2, 1.2]), mu=mu, sigma=1, gamma=1)
    with pytest.raises(cm.SolverError, match="closer"):
        cm.allocate(market)


def test_a_large_market_in_which_everybody_is_bought_from():
    """Looking for sellers to leave out once ran past the end of its sample."""
    psi = np.sort(cm.Beta(0.5, 0.5).sample(30_000, np.random.default_rng(0))) + 1.0
    form = StandardForm(psi, 10.0, 2.0, 0.5, 1.05 / psi.size)
    solution = solve_exact(form)
    assert np.count_nonzero(solution.weights) > 0.95 * psi.size
    assert solution.objective - solution.lower_bound <= 1e-12 * solution.objective
