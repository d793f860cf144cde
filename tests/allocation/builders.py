"""Build markets, standard forms and user-defined terms, and check allocations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation import exact_solver
from convexmarket.market import StandardForm
from tests.allocation.brute_force import least_linear

FORMULATIONS = ["primal", "dual", "projection"]
COSTS = np.array([0.2, 0.4, 1.0])
POINT = np.array([0.5, 0.3, 0.2])
#: Every method supports STANDARD. JOINT is one convex program. PAID requires a search over eta.
STANDARD = cm.Spread() + cm.Noise() + 0.5 * cm.Payments()
JOINT = cm.Spread(3) + cm.Noise()
PAID = cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments(cm.PowerCost(2))

SPREADS = [
    cm.Spread(),
    cm.Spread(1.5),
    cm.Spread(3),
    cm.Spread(np.inf),
    cm.terms.SquaredSpread(),
    cm.terms.NegativeEntropy(),
]
COST_FUNCTIONS = [
    cm.terms.LinearCost(),
    cm.PowerCost(1.5),
    cm.PowerCost(2),
    cm.PowerCost(3),
    cm.terms.ExponentialCost(),
]


# ------------------------------------------------------------------------- markets


def sellers_of(costs):
    """Return sellers with the given virtual costs, which can be infinite."""
    costs = np.asarray(costs, dtype=float)
    sellers = cm.Sellers(virtual_costs=np.where(np.isfinite(costs), costs, 1.0))
    for i in np.flatnonzero(np.isinf(costs)):
        sellers = sellers.with_virtual_cost(i, np.inf)
    return sellers


def market(*constraints, objective=STANDARD, costs=COSTS):
    return cm.Market(sellers_of(costs), objective, constraints)


def form(psi=COSTS, **changes) -> StandardForm:
    defaults = {"mu": 1.0, "sigma": 2.0, "gamma": 0.5, "max_weight": 1.0}
    return StandardForm(virtual_costs=np.array(psi, dtype=float), **(defaults | changes))


def market_of(form):
    """Return the market that has the given standard form."""
    m = form.virtual_costs.size
    return cm.Market.standard(
        cm.Sellers(virtual_costs=form.virtual_costs),
        mu=form.mu,
        sigma=form.sigma,
        gamma=form.gamma,
        cap=max(1.0, m * form.max_weight) if form.max_weight < 1 else None,
        eta_range=(form.eta_low, form.eta_high) if form.eta_high < np.inf else None,
    )


def uniform_market(m=30, mu=1.0, sigma=100.0, **constraints):
    """Return a market with the costs of the papers' experiments, uniform on [0.02, 0.1]."""
    costs = 2 * np.random.default_rng(0).uniform(0.02, 0.10, m) - 0.02
    sellers = cm.Sellers(virtual_costs=costs)
    return cm.Market.standard(sellers, mu=mu, sigma=sigma, gamma=0.001, **constraints)


def three_roots():
    """Return a standard form with one cheap and 44 expensive sellers and three roots of Eq. (14).

    The objective has a local minimum of 3.0707 and a global minimum of 1.9946.
    """
    return StandardForm(np.array([0.002] + [1.0] * 44), mu=3.0, sigma=2.5, gamma=0.25)


def positive(rng, size=None):
    return np.exp(rng.normal(size=size)) if size else float(np.exp(rng.normal()))


def random_market(rng):
    """Draw a market with two to eight sellers, one or two spreads and up to five constraints."""
    m = int(rng.integers(2, 9))
    if rng.random() < 0.5:
        sellers = cm.Sellers(rng.uniform(0.02, 1, m), prior=cm.Uniform(0.02, 1))
    else:
        sellers = cm.Sellers(virtual_costs=rng.exponential(1, m) + 1e-3)
    chosen = rng.choice(len(SPREADS), rng.integers(1, 3), replace=False)
    objective = sum(positive(rng) * SPREADS[i] for i in chosen) + positive(rng) * cm.Noise()
    if rng.random() < 0.2:
        objective += positive(rng) * cm.Losses(rng.uniform(0, 2, m))
    constraints = []
    if rng.random() < 0.5:
        single = rng.random() < 0.6
        constraints.append(cm.Cap(rng.uniform(1.05, 4) if single else rng.uniform(1.1, 3.6, m)))
    if rng.random() < 0.4:
        single = rng.random() < 0.6
        constraints.append(cm.MaxEpsilon(positive(rng) if single else positive(rng, m)))
    if rng.random() < 0.3:
        constraints.append(cm.Budget(positive(rng)))
    if m > 2 and rng.random() < 0.4:
        groups = np.array(["a", "b"])[np.r_[0, 1, rng.integers(0, 2, m - 2)]]
        share = {"at_least": {"a": rng.uniform(0, 0.5)}} if rng.random() < 0.6 else {"equal": True}
        constraints.append(cm.GroupShare(groups, **share))
    if rng.random() < 0.2:
        constraints.append(cm.EtaRange(0.1, 10))
    limits = cm.Budget, cm.MaxEpsilon, cm.EtaRange
    if not any(isinstance(item, limits) for item in constraints) or rng.random() < 0.7:
        objective += positive(rng) * cm.Payments(COST_FUNCTIONS[rng.integers(5)])
    return cm.Market(sellers, objective, constraints)


def check_feasible(market, allocation, tolerance=1e-7):
    weights, eta = allocation.weights, allocation.eta
    assert np.all(weights >= 0)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    quantities = cm.terms.Quantities.at(weights, eta, market.sellers.virtual_costs)
    for piece in market.constraints:
        for item in piece.constraints(quantities):
            assert np.all(item.violation() <= tolerance), piece


# ------------------------------------------------------------------ user-defined pieces


class Own(cm.Term):
    """User-defined term whose expression a given function builds."""

    def __init__(self, build):
        self.build = build

    def expression(self, quantities):
        return self.build(quantities)


class Bound(cm.terms.Constraint):
    """User-defined constraint whose CVXPY constraints a given function builds."""

    def __init__(self, build):
        self.build = build

    def constraints(self, quantities):
        return self.build(quantities)


#: Functions that return a wrong value of a multiplier, as a faulty solver could.
FALSE_VALUES = {
    "noise": lambda rng, dual: rng.normal(size=dual.shape),
    "huge": lambda rng, dual: rng.normal(size=dual.shape) * 10.0 ** rng.integers(3, 300),
    "zeros": lambda rng, dual: np.zeros(dual.shape),
    "of the wrong sign": lambda rng, dual: -dual,
    "of any sign": lambda rng, dual: dual * rng.choice([-1, 1], dual.shape),
    "nearly right": lambda rng, dual: dual * (1 + 1e-6 * rng.normal(size=dual.shape)),
    "many times": lambda rng, dual: dual * rng.uniform(0, 10, dual.shape),
    "of others": lambda rng, dual: rng.permutation(dual.ravel()).reshape(dual.shape),
}


# ---------------------------------------------------------------- strategies for forms


def costs(max_size=10):
    """Draw virtual costs that have ties, are nearly equal, or differ by orders of magnitude."""
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
    # Few sellers are cheap and many are expensive, as in the form with three roots.
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
    """Draw the largest weight k/m for k = 1, k slightly above 1, k = m (no cap), and other k."""
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
        psi = np.append(psi, np.full(draw(st.integers(1, 3)), np.inf))
    sigma, gamma = draw(weight), draw(weight)
    scale = float(np.median(psi[np.isfinite(psi)])) or 1.0
    return StandardForm(
        virtual_costs=draw(st.permutations(list(psi)).map(np.array)),
        mu=draw(weight),
        # The second choice gives noise and payments similar magnitudes at any scale of the costs.
        sigma=draw(st.sampled_from([sigma, 1 / (gamma * scale)])),
        gamma=gamma,
        max_weight=cap,
    )


@st.composite
def ranged_forms(draw):
    """Draw forms whose range of eta lies below, around or above the unrestricted optimum."""
    form = draw(st.one_of(forms(), forms(zeros=True)))
    psi = form.virtual_costs
    centre = np.sqrt(form.sigma / form.gamma / (psi.mean() or 1.0))
    low = centre * 10 ** draw(st.floats(-3, 2))
    high = low * 10 ** draw(st.sampled_from([0.0, 0.1, 1.0, 4.0]))
    mu = draw(st.sampled_from([form.mu, form.mu, 0.0]))
    sigma = draw(st.sampled_from([form.sigma, form.sigma, 0.0]))
    return replace(form, eta_low=low, eta_high=high, mu=mu, sigma=sigma)


# ---------------------------------------------------------------- exact solutions


def random_point(rng, form):
    """Draw feasible weights as a mixture of three vertices of the capped simplex."""
    available = np.flatnonzero(np.isfinite(form.virtual_costs))
    weights = np.zeros(form.virtual_costs.size)
    for share in rng.dirichlet(np.ones(3)):
        order = rng.permutation(available)
        filled = np.diff(np.minimum(form.max_weight * np.arange(order.size + 1), 1.0))
        weights[order] += share * filled
    return weights


def assert_sound(form, solution, seed=0):
    """Check that a solution is feasible, has the stated objective, and is optimal at its eta."""
    psi, u, a = form.virtual_costs, form.max_weight, solution.weights
    assert a.sum() == pytest.approx(1, abs=1e-12)
    assert a.min() >= 0
    assert a.max() <= u * (1 + 1e-15)
    assert not a[np.isinf(psi)].any()
    assert form.eta_low <= solution.eta <= form.eta_high
    assert 0 < solution.eta < np.inf
    assert solution.objective == pytest.approx(form.objective(a, solution.eta), rel=1e-14)
    assert solution.lower_bound <= solution.objective
    assert solution.objective - solution.lower_bound <= 1e-12 * solution.objective
    rng = np.random.default_rng(seed)
    for _ in range(10):
        eta = np.clip(solution.eta * 10 ** rng.normal(0, 1), form.eta_low, form.eta_high)
        value = form.objective(random_point(rng, form), eta)
        assert solution.lower_bound <= value * (1 + 1e-14)
    # The objective is convex in the weights, so its gradient gives a lower bound at this eta.
    t = form.gamma * solution.eta
    gradient = form.mu * a / np.linalg.norm(a) + t * psi
    bound = least_linear(gradient[np.isfinite(psi)], u) + form.sigma / solution.eta
    assert solution.objective == pytest.approx(bound, rel=1e-10)
    # At weights strictly between zero and the cap, the gradient equals the multiplier times eta.
    free = (a > 1e-6 * a.max()) & (a < u * (1 - 1e-6))
    if free.any():
        np.testing.assert_allclose(solution.multiplier * solution.eta, gradient[free], rtol=1e-8)


def large_form(name, m):
    """Return a form with many sellers. The solver omits the expensive sellers at first."""
    rng = np.random.default_rng(11)
    uniform = 2 * rng.uniform(0.02, 0.10, m) - 0.02
    skewed = rng.pareto(1.5, m) + 0.01
    few = StandardForm(uniform, 1.0, 100.0, 0.001)
    if name == "three roots":
        psi = np.append(np.full(m // 45, 0.002), np.ones(m - m // 45))
        return StandardForm(psi, 3 * np.sqrt(m // 45), 2.5, 0.25)
    changes = {
        "few bought": {},
        "nearly all bought": {"mu": 100.0},
        "capped": {"max_weight": 5 / m},
        "tightly capped": {"max_weight": 1.001 / m},
        "capped, nearly all": {"mu": 100.0, "max_weight": 1.5 / m},
        "ties": {"virtual_costs": np.round(uniform, 3), "max_weight": 20 / m},
        "skewed": {"virtual_costs": skewed},
        "skewed, capped": {"virtual_costs": skewed, "max_weight": 50 / m},
        "infinite": {"virtual_costs": np.where(uniform > 0.1, np.inf, uniform)},
        "a range": {"eta_low": 10.0, "eta_high": 100.0},
    }
    return replace(few, **changes[name])


LARGE = ["few bought", "nearly all bought", "capped", "tightly capped", "capped, nearly all"]
LARGE += ["ties", "skewed", "skewed, capped", "infinite", "a range", "three roots"]


def assert_omission_is_exact(form, monkeypatch):
    """Check that the solution does not change if the solver starts with all sellers."""
    result = exact_solver.solve_exact(form)
    assert_sound(form, result)
    with monkeypatch.context() as patch:
        patch.setattr(exact_solver, "_WORTH_PASSES", np.inf)
        patch.setattr(exact_solver, "highest_cost_bought", lambda *_, **__: np.inf)
        complete = exact_solver.solve_exact(form)
    assert result.objective == pytest.approx(complete.objective, rel=1e-13)
    np.testing.assert_allclose(result.weights, complete.weights, rtol=1e-9, atol=1e-15)
