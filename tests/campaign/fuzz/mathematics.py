"""Properties of priors and allocations for arbitrary numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.priors.parsing import prior_from_dict
from tests.campaign.fuzz.running import Target, require
from tests.campaign.fuzz.values import costs, nonnegative, number, ordinary, positive, wide

LEVELS = np.array([0.0, 1e-9, 0.01, 0.3, 0.5, 0.77, 0.99, 1 - 1e-9, 1.0])


# ------------------------------------------------------------------------------------------ priors


@st.composite
def any_prior(draw: Any) -> Any:
    """Draw a family and parameters of a prior, from ordinary or arbitrary numbers."""
    numbers = draw(st.sampled_from([ordinary, ordinary, wide, positive, number]))
    seed = draw(st.integers(0, 8))
    values = [draw(numbers) for _ in range(4)]
    return seed, values


def made(case: tuple[int, list[float]]) -> cm.Prior:
    kind, (x, y, z, w) = case
    low = min(x, y)
    makers = [
        lambda: cm.Uniform(x, x + y),
        lambda: cm.priors.Exponential(x),
        lambda: cm.Beta(x, y, z, z + w),
        lambda: cm.priors.Power(x, y),
        lambda: cm.priors.TruncatedNormal(x, y, z, z + w),
        lambda: cm.priors.LogNormal(x, y),
        lambda: cm.priors.Gamma(x, y),
        lambda: cm.EmpiricalPrior([x, y, y, z, w]),
        lambda: cm.priors.Mixture([x, y], [cm.Uniform(low, low + z), cm.Uniform(low, low + w)]),
    ]
    return makers[kind]()


def check_prior(case: tuple[int, list[float]]) -> str:
    """Compare the functions of a prior with their definitions."""
    prior = made(case)
    low, high = prior.support
    require(0 <= low <= high, "support", prior.support)
    require(low <= prior.mean <= high * (1 + 1e-9), "mean", prior.mean, prior.support)
    c = np.asarray(prior.quantile(LEVELS))
    require(not np.isnan(c).any() and (c >= low).all() and (c <= high).all(), "quantiles", c)
    require((c[1:] >= c[:-1]).all(), "quantiles fall", c)
    inside = c[np.isfinite(c)]
    F = np.asarray(prior.cdf(inside))
    require(((F >= 0) & (F <= 1)).all() and (np.diff(F) >= 0).all(), "cdf", F)
    resolved = np.spacing(inside) * np.nan_to_num(prior.pdf(inside), posinf=np.inf) < 1e-9
    slack = 1e-8
    if isinstance(prior, cm.priors.TruncatedNormal):
        # scipy's distribution has an error of up to 1e-9 z at z deviations from the mean. If the
        # support is much narrower than a deviation, rounding is relative to the deviation.
        mean, deviation = case[1][:2]
        away = max(abs(low - mean), abs(high - mean)) / deviation
        slack = max(1e-6, 1e-9 * away) + 1e-15 * deviation / (high - low)
    far = (LEVELS[: inside.size] * (1 - 1e-6) - slack > F) & (inside > low)
    require(not (far & resolved).any(), "F(quantile(u)) < u", F)
    raw = np.asarray(prior.virtual_cost(inside))
    ironed = np.asarray(prior.ironed_virtual_cost(inside))
    for costs_ in (raw, ironed):
        require(not np.isnan(costs_).any() and (costs_ >= 0).all(), "virtual costs", costs_)
    require((raw >= inside).all(), "psi < c", raw, inside)
    finite = ironed[np.isfinite(ironed)]
    require((np.diff(finite) >= -1e-9 * finite[1:]).all(), "ironed costs decrease", ironed)
    # F/f overflows where the density underflows.
    faint = high > 1e290 or (np.asarray(prior.pdf(inside)) < 1e-290).any()
    require(faint or np.isfinite(ironed[inside < np.nextafter(high, 0)]).all(), "psi inf")
    drawn = prior.sample(20, np.random.default_rng(0))
    require(((drawn >= low) & (drawn <= high)).all(), "sample outside the support")
    again = prior_from_dict(prior.to_dict())
    require(again == prior and hash(again) == hash(prior), "to_dict does not round-trip")
    if high < np.inf:
        require(np.isposinf(prior.virtual_cost(np.nextafter(high, np.inf))), "psi is finite above")
    return "accepted"


# -------------------------------------------------------------------------------------- allocation


@st.composite
def standard_markets(draw: Any) -> dict[str, Any]:
    """Draw the numbers of the papers' problem, with ties, zeros, and tight or absent limits."""
    style = draw(st.integers(0, 3))
    numbers = [ordinary, wide, nonnegative, number][style]
    cost_numbers = [ordinary, st.one_of(ordinary, wide), nonnegative, nonnegative][style]
    case = {
        "virtual_costs": draw(costs(cost_numbers)),
        "mu": draw(numbers),
        "sigma": draw(numbers),
        "gamma": draw(numbers),
        "cap": draw(
            st.one_of(st.none(), st.sampled_from([1, 1.0, 1 + 1e-15, 1.5, 2, 3.0, 1e300]), numbers)
        ),
        "eta_range": None,
    }
    if draw(st.integers(0, 3)) == 0:
        low = draw(numbers)
        case["eta_range"] = (low, draw(st.one_of(st.just(low), numbers)))
    return case


def declared(case: dict[str, Any]) -> cm.Market:
    buyer = {key: value for key, value in case.items() if key != "virtual_costs"}
    return cm.Market.standard(cm.Sellers(virtual_costs=case["virtual_costs"]), **buyer)


def objective_of(case: dict[str, Any], weights: np.ndarray, eta: float) -> float:
    """Compute the papers' objective, with an order of operations that avoids overflow."""
    psi = np.asarray(case["virtual_costs"])
    norm = float(np.linalg.norm(weights / weights.max()) * weights.max())
    unit = case["gamma"] * eta
    cost = float(sum(unit * p * a if np.isfinite(unit * p) else unit * (p * a)
                     for p, a in zip(psi, weights, strict=True) if a > 0))  # fmt: skip
    return case["mu"] * norm + case["sigma"] / eta + cost


def check_allocation(case: dict[str, Any]) -> str:
    """Check feasibility, certificate and optimality of an exact allocation at other points."""
    market = declared(case)
    result = cm.allocate(market)
    psi = np.asarray(case["virtual_costs"], dtype=float)
    m = psi.size
    bound = 1.0 if case["cap"] is None else min(1.0, case["cap"] / m)
    with np.errstate(over="ignore"):
        largest = case["gamma"] * psi[result.weights > 0].max() + case["mu"] / result.eta
    check_feasible(result, bound, case["eta_range"], largest)
    with np.errstate(all="ignore"):
        value = objective_of(case, result.weights, result.eta)
        close = abs(value - result.objective) <= 1e-9 * abs(result.objective) + 1e-300
        require(close, "objective is not that of the weights:", result.objective, value)
        for weights in others(psi, bound, result.weights):
            for eta in etas(case, psi, weights, result.eta):
                rival = objective_of(case, weights, eta)
                better = rival < result.objective * (1 - 1e-7) - 1e-300
                require(not better, "a better point:", rival, "<", result.objective, "eta", eta)
    require(result.gap < 1e-6, "the exact gap is", result.gap)
    return "accepted"


def check_feasible(
    found: Any, bound: float | np.ndarray, eta_range: Any = None, largest_price: float = 1.0
) -> None:
    """Check weights and eta against their limits, and the bound against the value.

    The multiplier has the magnitude of the largest price, which may overflow.
    """
    weights = found.weights
    require(np.isfinite(weights).all() and (weights >= 0).all(), "weights", weights)
    require(abs(weights.sum() - 1) <= 1e-9, "weights sum to", weights.sum())
    require((weights <= np.asarray(bound) * (1 + 1e-7)).all(), "above the cap", weights, bound)
    require(0 < found.eta < np.inf, "eta", found.eta)
    require(np.isfinite(found.epsilon).all() and (found.epsilon >= 0).all(), "epsilon")
    if eta_range is not None:
        low, high = eta_range
        require(low * (1 - 1e-9) <= found.eta <= high * (1 + 1e-9), "eta out of its range")
    require(np.isfinite(found.objective), "objective", found.objective)
    slack = 1e-9 * abs(found.objective) + 1e-300
    require(found.lower_bound <= found.objective + slack, "bound above the value", found)
    finite = np.isfinite(found.multiplier) or np.isposinf(largest_price)
    require(finite and not np.isnan(found.multiplier), "multiplier", found.multiplier)


def others(psi: np.ndarray, bound: float, best: np.ndarray) -> list[np.ndarray]:
    """Return feasible weights: equal weights, the cheapest first, and mixtures with the best."""
    m = psi.size
    even = np.full(m, 1 / m)
    greedy, left = np.zeros(m), 1.0
    for i in np.argsort(psi, kind="stable"):
        greedy[i] = min(bound, left)
        left -= greedy[i]
    return [even, greedy, 0.5 * (even + best), 0.99 * best + 0.01 * greedy, best]


def etas(case: dict[str, Any], psi: np.ndarray, weights: np.ndarray, eta: float) -> list[float]:
    """Return values of eta near the result, and the best eta for these weights."""
    cost = case["gamma"] * float(psi @ weights)
    tried = [eta, eta * 1.01, eta / 1.01, eta * 2, eta / 2]
    if 0 < cost < np.inf and case["sigma"] > 0:
        tried.append(float(np.sqrt(case["sigma"] / cost)))
    if case["eta_range"] is not None:
        low, high = case["eta_range"]
        tried = [min(max(value, low), high) for value in tried] + [low, high]
    return [value for value in tried if 0 < value < np.inf]


# ---------------------------------------------------------------------------------------- variants

SPREADS = [
    cm.Spread(), cm.Spread(1.5), cm.Spread(3), cm.Spread(np.inf), cm.terms.SquaredSpread(),
    cm.terms.NegativeEntropy(),
]  # fmt: skip
PRIVACY_COSTS = [
    cm.terms.LinearCost(),
    cm.PowerCost(1.5),
    cm.PowerCost(2),
    cm.terms.ExponentialCost(),
]


@st.composite
def variants(draw: Any) -> Any:
    """Draw sellers, weighted terms and constraints as plain values."""
    numbers = draw(st.sampled_from([ordinary, wide]))
    m = draw(st.integers(1, 5))
    psi = [draw(numbers) for _ in range(m)]
    terms = [(draw(numbers), draw(st.sampled_from(range(len(SPREADS)))))]
    constraint = draw(st.lists(st.integers(0, 5), max_size=2, unique=True))
    values = [[draw(numbers) for _ in range(m)] for _ in constraint]
    return {
        "psi": psi,
        "spread": terms,
        "noise": draw(numbers),
        "payments": draw(st.one_of(st.none(), numbers)),
        "cost": draw(st.integers(0, len(PRIVACY_COSTS) - 1)),
        "losses": draw(st.one_of(st.none(), st.none(), st.just([draw(numbers)] * m))),
        "constraints": list(zip(constraint, values, strict=True)),
    }


def variant_market(case: dict[str, Any]) -> cm.Market:
    sellers = cm.Sellers(virtual_costs=case["psi"])
    objective = case["noise"] * cm.Noise()
    for weight, which in case["spread"]:
        objective = objective + weight * SPREADS[which]
    if case["payments"] is not None:
        objective = objective + case["payments"] * cm.Payments(PRIVACY_COSTS[case["cost"]])
    if case["losses"] is not None:
        objective = objective + 1.0 * cm.Losses(case["losses"])
    groups = ["a" if i % 2 else "b" for i in range(len(sellers))]
    makers = [
        lambda v: cm.Cap(1 + v[0]),
        lambda v: cm.Cap(v),
        lambda v: cm.MaxEpsilon(v),
        lambda v: cm.Budget(v[0]),
        lambda v: cm.EtaRange(v[0], v[0] + v[-1]),
        lambda v: cm.GroupShare(groups, at_least={"b": min(v[0], 1.0)}),
    ]
    return cm.Market(sellers, objective, [makers[k](v) for k, v in case["constraints"]])


def check_variant(case: dict[str, Any]) -> str:
    """Check constraints, certificate and optimality of an allocation at nearby points."""
    market = variant_market(case)
    result = cm.allocate(market, gap=1e-4)
    psi = np.asarray(case["psi"])
    check_feasible(result, 1.0)
    require(limits_hold(market, result.weights, result.eta, 1e-5), "infeasible", result)
    with np.errstate(all="ignore"):
        value = market.objective.value(result.weights, result.eta, psi)
        require(
            abs(value - result.objective) <= 1e-6 * abs(value) + 1e-9, "objective", value, result
        )
        m = psi.size
        rng = np.random.default_rng(m)
        tried = [np.full(m, 1 / m), *rng.dirichlet(np.ones(m), 4)]
        tried += [0.9 * result.weights + 0.1 * w for w in tried]
        for weights in tried:
            for eta in result.eta * np.array([0.3, 0.9, 1.0, 1.1, 3.0]):
                if limits_hold(market, weights, eta, 0.0):
                    rival = market.objective.value(weights, eta, psi)
                    slack = 1e-6 * (abs(result.objective) + abs(rival))
                    require(
                        not rival < result.lower_bound - slack, "below the bound:", rival, result
                    )
    return "accepted"


def limits_hold(market: cm.Market, weights: np.ndarray, eta: float, slack: float) -> bool:
    """Check whether weights and eta satisfy the definition of every constraint."""
    m = weights.size
    psi = market.sellers.virtual_costs
    for item in market.constraints:
        match item:
            case cm.Cap():
                good = np.all(m * weights <= np.asarray(item.k) + slack * m)
            case cm.MaxEpsilon():
                good = np.all(eta * weights <= np.asarray(item.epsilon) * (1 + slack) + slack * eta)
            case cm.Budget():
                good = eta * psi @ weights <= item.amount * (1 + slack)
            case cm.EtaRange():
                good = item.low * (1 - slack) <= eta <= item.high * (1 + slack)
            case cm.GroupShare():
                share = {g: weights[item.groups == g].sum() for g in ("a", "b")}
                good = all(share[g] >= low - slack for g, low in item.at_least.items())
        if not good:
            return False
    return True


TARGETS = [
    Target("priors", any_prior(), check_prior, weight=5),
    Target("allocation", standard_markets(), check_allocation, weight=5),
    Target("variants at any scale", variants(), check_variant, 20.0),
]
