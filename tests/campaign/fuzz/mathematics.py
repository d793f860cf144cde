"""Test properties of priors and of allocations for numbers of any magnitude."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.priors.parsing import prior_from_dict
from tests.campaign.fuzz.running import Target, require
from tests.campaign.fuzz.values import number, ordinary, positive, wide

LEVELS = np.array([0.0, 1e-9, 0.01, 0.3, 0.5, 0.77, 0.99, 1 - 1e-9, 1.0])


@st.composite
def any_prior(draw: Any) -> Any:
    """Draw the index of a prior family, and ordinary or arbitrary numbers as its parameters."""
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
    """Check the distribution function, quantiles, virtual costs and samples of a prior."""
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
        # SciPy's distribution has an error of up to 1e-9 z at z deviations from the mean.
        # If the support is much narrower than a deviation, rounding errors scale with it.
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
    underflow = high > 1e290 or (np.asarray(prior.pdf(inside)) < 1e-290).any()
    require(underflow or np.isfinite(ironed[inside < np.nextafter(high, 0)]).all(), "psi inf")
    drawn = prior.sample(20, np.random.default_rng(0))
    require(((drawn >= low) & (drawn <= high)).all(), "sample outside the support")
    again = prior_from_dict(prior.to_dict())
    require(again == prior and hash(again) == hash(prior), "to_dict does not round-trip")
    if high < np.inf:
        require(np.isposinf(prior.virtual_cost(np.nextafter(high, np.inf))), "psi is finite above")
    return "accepted"


def check_feasible(result: Any) -> None:
    """Check that the weights, eta, epsilon and lower bound of an allocation are valid."""
    weights = result.weights
    require(np.isfinite(weights).all() and (weights >= 0).all(), "weights", weights)
    require(abs(weights.sum() - 1) <= 1e-9, "weights sum to", weights.sum())
    require(0 < result.eta < np.inf, "eta", result.eta)
    require(np.isfinite(result.epsilon).all() and (result.epsilon >= 0).all(), "epsilon")
    require(np.isfinite(result.objective), "objective", result.objective)
    slack = 1e-9 * abs(result.objective) + 1e-300
    require(result.lower_bound <= result.objective + slack, "bound exceeds the value", result)
    require(np.isfinite(result.multiplier), "multiplier", result.multiplier)


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
    """Check the constraints and the bound of an allocation, and compare it with nearby points."""
    market = variant_market(case)
    result = cm.allocate(market, gap=1e-4)
    psi = np.asarray(case["psi"])
    check_feasible(result)
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
                        not rival < result.lower_bound - slack,
                        "value below the bound:",
                        rival,
                        result,
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
    Target("variants at any scale", variants(), check_variant, 20.0),
]
