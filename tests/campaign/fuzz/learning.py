"""Accounts, learners, releases and online terms: promises that hold at any numbers."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.privacy import Simulation
from tests.campaign.fuzz.mathematics import any_prior, made
from tests.campaign.fuzz.running import Target, require
from tests.campaign.fuzz.values import nonnegative, number, ordinary, positive, wide
from tests.release.builders import bound_of

# ---------------------------------------------------------------------------------------- accounts


@st.composite
def accounts(draw: Any) -> dict[str, Any]:
    """Draw budgets, and releases that are charged one after the other."""
    numbers = draw(st.sampled_from([ordinary, nonnegative, number]))
    size = draw(st.integers(1, 4))
    charges = []
    for _ in range(draw(st.integers(1, 6))):
        rows = draw(st.one_of(st.none(), st.lists(st.integers(-1, size), max_size=size)))
        used = size if rows is None or draw(st.integers(0, 9)) == 0 else len(rows)
        epsilon = [draw(numbers) * draw(st.sampled_from([1.0, 0.1, 0.01])) for _ in range(used)]
        charges.append((epsilon, draw(st.sampled_from([0.0, 1e-9, 1e-6, 0.5, 1.0, -1.0])), rows))
    return {
        "budget": [draw(numbers) for _ in range(size)],
        "delta": draw(st.sampled_from([0.0, 1e-6, 1e-5, 0.1])),
        "composition": draw(st.sampled_from(["basic", "advanced"])),
        "charges": charges,
    }


def check_account(case: dict[str, Any]) -> str:
    """Charge releases; hold what is admitted against sums of our own."""
    budget = np.array(case["budget"], dtype=float)
    account = cm.PrivacyAccountant(budget, case["delta"], composition=case["composition"])
    total, deltas = np.zeros(budget.size), np.zeros(budget.size)

    admitted = 0
    for epsilon, delta, rows in case["charges"]:
        before = account.spent, account.spent_delta, account.remaining, account.releases
        places = np.arange(budget.size) if rows is None else np.array(rows, dtype=int)
        try:
            guarantee = cm.Guarantee(np.array(epsilon), delta, "m", "sharp", ())
            account.charge(guarantee, None if rows is None else places)
        except cm.ConvexMarketError:
            after = account.spent, account.spent_delta, account.remaining, account.releases
            for single, other in zip(before[:3], after[:3], strict=True):
                require(np.array_equal(single, other, equal_nan=True), "a refusal was charged")
            require(before[3] == after[3], "a refusal was recorded")
            continue
        admitted += 1
        used = np.array(epsilon, dtype=float)
        total[places] += used
        deltas[places] += np.where(used > 0, delta, 0.0)
    slack = 1 + 1e-9
    if case["composition"] == "basic":
        require((total <= budget * slack).all(), "more epsilon than sold", total, budget)
        require(np.allclose(account.spent, total, rtol=1e-9, atol=0), "spent", account.spent, total)
        require((deltas <= case["delta"] * slack).all(), "more delta than sold", deltas)
    else:
        safe = account.spent <= budget * slack + 1e-12
        require(safe.all(), "advanced", total, budget)
        require((deltas <= case["delta"] / 10 * slack).all(), "more delta than sold", deltas)
    for name in ("spent", "spent_delta", "remaining"):
        values = getattr(account, name)
        require(not np.isnan(values).any() and (values >= 0).all(), name, values)
    require(len(account.releases) == admitted, "releases")
    return "accepted" if admitted else "refused"


# ------------------------------------------------------------------------------------------ bounds

BOUNDS = {
    "function": (partial(bound_of, "function"), {"n_queries": 10}),
    "interactive": (partial(bound_of, "interactive"), {"max_queries": 10, "max_updates": 2}),
    "semi": (partial(bound_of, "semi_interactive"), {"n_points": 10, "max_norm": 2.0}),
    "non": (
        partial(bound_of, "non_interactive"),
        {"rounds": 3, "net_size": 100.0, "net_radius": 0.1, "max_norm": 1.0,
         "feature_lipschitz": 1.0},
    ),
    "updates": (partial(bound_of, "suggest_updates"), {"max_queries": 10, "max_norm": 1.0}),
    "points": (partial(bound_of, "suggest_test_size"), {"max_norm": 1.0, "largest": 1000}),
}  # fmt: skip


@st.composite
def bounds(draw: Any) -> Any:
    """Draw a bound of a release and its three first numbers."""
    numbers = draw(st.sampled_from([ordinary, wide, positive, number]))
    delta = st.sampled_from([0.0, 1e-300, 1e-12, 1e-6, 0.5, 1 - 1e-16, 1.0])
    extra = draw(
        st.sampled_from(
            [
                {},
                {"failure_probability": 1e-300},
                {"failure_probability": 0.5},
                {"accounting": "paper"},
            ]
        )
    )
    return draw(st.sampled_from(sorted(BOUNDS))), draw(numbers), draw(numbers), draw(delta), extra


def check_bound(case: Any) -> str:
    """A bound is a nonnegative number, and more epsilon never makes it larger."""
    name, sensitivity, epsilon, delta, extra = case
    bound, fixed = BOUNDS[name]
    if name == "function":
        extra = {key: value for key, value in extra.items() if key != "accounting"}

    def value(sold: float) -> float:
        result = bound(sensitivity, sold, delta, **fixed, **extra)
        return float(getattr(result, "total", result))

    first = value(epsilon)
    require(first >= 0, "max_norm", first)
    if name not in ("points", "updates"):
        require(value(2 * epsilon) <= first * (1 + 1e-6), "more epsilon, more error", first)
    return "accepted"


# ---------------------------------------------------------------------------------------- learners


@st.composite
def fits(draw: Any) -> dict[str, Any]:
    """Draw rows, guarantees and a learner."""
    n, d = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    unit = st.floats(-0.57, 0.57)
    odd = st.sampled_from([0.0, 1.0, 2.0, np.nan, np.inf, 1e300, 1e-300])
    entry = (
        st.one_of(unit, unit, unit, unit, unit, unit, unit, odd) if draw(st.booleans()) else unit
    )
    return {
        "X": [[draw(entry) for _ in range(d)] for _ in range(n)],
        "y": [draw(st.sampled_from([-1.0, 1.0])) for _ in range(n)],
        "epsilon": [draw(st.one_of(ordinary, nonnegative)) for _ in range(n)],
        "regularization": draw(st.one_of(ordinary, wide, positive)),
        "learner": draw(st.integers(0, 5)),
        "seed": draw(st.integers(0, 3)),
    }


def check_fit(case: dict[str, Any]) -> str:
    """A fit is finite, has a guarantee, repeats with its seed, and says no less than it charges."""
    X, y = np.array(case["X"]), np.array(case["y"])
    epsilon = np.array(case["epsilon"], dtype=float)
    first, second = (_fitted(case, X, y, epsilon) for _ in range(2))
    coef = np.asarray(first.coef_)
    require(np.isfinite(coef).all(), "coefficients", coef)
    require(np.array_equal(coef, second.coef_), "the same seed gives another model")
    predictions = np.asarray(first.predict(X), dtype=float)
    require(np.isfinite(predictions).all(), "predictions", predictions)
    guarantee = getattr(first, "guarantee_", None)
    if guarantee is not None:
        promised = guarantee.epsilon
        require(promised.shape == y.shape, "one guarantee for each row", promised.shape)
        require(not np.isnan(promised).any() and (promised >= 0).all(), "guarantee", promised)
        require(0 <= guarantee.delta < 1, "delta", guarantee.delta)
        if case["learner"] != 3:
            require(
                (promised <= epsilon * (1 + 1e-9)).all(), "more than was sold", promised, epsilon
            )
    return "accepted"


def _fitted(case: dict[str, Any], X: np.ndarray, y: np.ndarray, epsilon: np.ndarray) -> Any:
    common, alpha = {"feature_range": (-1.0, 1.0)}, case["regularization"]
    terms = {"epsilon": epsilon, "random_state": Simulation(case["seed"])}
    match case["learner"]:
        case 0:
            return cm.PersonalizedRidge(alpha, **common).fit(X, y, **terms)
        case 1:
            options = {"perturbation": "output", "weighting": "equal"} | common
            return cm.PersonalizedRidge(alpha, **options).fit(X, y, **terms)
        case 2:
            return cm.PersonalizedRidge(alpha, feature_range=(-1.0, 1.0)).fit(X, y, epsilon=np.inf)
    learner = cm.PrivateLogisticRegression(regularization=alpha, data_norm=1.0, classes=(-1, 1))
    return learner.fit(X, y, **terms)


# ------------------------------------------------------------------------------------------ online


@st.composite
def policies(draw: Any) -> dict[str, Any]:
    """Draw an online buyer."""
    numbers = draw(st.sampled_from([ordinary, ordinary, wide, positive]))
    return {
        "prior": draw(any_prior()),
        "m": draw(st.sampled_from([1, 2, 5, 100, 10**6, 10**18])),
        "mu": draw(numbers),
        "sigma": draw(numbers),
        "gamma": draw(numbers),
        "cap": draw(st.one_of(st.none(), st.none(), st.floats(1, 10))),
        "rule": draw(st.sampled_from(["expectation", "expectation", "algorithm-3"])),
    }


def check_policy(case: dict[str, Any]) -> str:
    """Quotes fall with the report, pay at least the cost, and come back from JSON as they were."""
    prior = made(case["prior"])
    policy = cm.OnlinePolicy(
        prior, case["m"], case["mu"], case["sigma"], case["gamma"], case["cap"], case["rule"]
    )
    levels = np.linspace(0.001, 0.999, 9)
    reports = np.unique(prior.quantile(levels))
    epsilon, paid = policy.quote(reports)
    require(np.isfinite(epsilon).all() and (epsilon >= 0).all(), "epsilon", epsilon)
    require(np.isfinite(paid).all() and (paid >= 0).all(), "payments", paid)
    require((np.diff(epsilon) <= 1e-9 * epsilon.max()).all(), "a dearer seller sells more", epsilon)
    require((paid >= reports * epsilon * (1 - 1e-12)).all(), "somebody loses", paid)
    single = policy.quote(float(reports[0]))
    require(
        np.isclose(single.epsilon, epsilon[0], rtol=1e-9), "one and many differ", single, epsilon
    )
    again = cm.online.policy_from_dict(json.loads(json.dumps(policy.to_dict(), allow_nan=False)))
    same = again.quote(reports)
    require(np.array_equal(same.epsilon, epsilon), "another policy comes back from JSON")
    require(np.allclose(same.payment, paid, rtol=1e-12), "other payments come back from JSON")
    # Eq. (8) for any two reports: neither gains by giving the other's.
    surplus = paid - reports * epsilon
    other = paid[None, :] - reports[:, None] * epsilon[None, :]
    slack = 1e-7 * (np.abs(paid).max() + np.abs(surplus).max()) + 10 * policy.payment_error
    require(
        (other <= surplus[:, None] + slack).all(), "a misreport gains", other - surplus[:, None]
    )
    return "accepted"


TARGETS = [
    Target("accounts", accounts(), check_account, weight=5),
    Target("release bounds", bounds(), check_bound, 10.0),
    Target("fits", fits(), check_fit, 20.0, weight=5),
    Target("online policies", policies(), check_policy, 20.0),
]
