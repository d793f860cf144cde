"""Calls of every public name, with arguments of which one or two are not what they should be."""

from __future__ import annotations

import atexit
import dataclasses
import inspect
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from hypothesis import strategies as st

import convexmarket as cm
from tests.campaign.fuzz.running import Target, require
from tests.campaign.fuzz.values import EXTREMES, NOT_POSITIVE, STRANGE

#: Results and records: made by the package, not by its users.
RESULTS = {
    "Allocation",
    "FirstOrderResiduals",
    "GammaCalibration",
    "IncentiveAudit",
    "LedgerAccount",
    "Incentives",
    "JointAllocation",
    "NoisyLoss",
    "Offer",
    "OnlineOutcome",
    "PaymentEstimate",
    "PaymentIdentity",
    "PrivacyAudit",
    "PublicPredictor",
    "PublicRelease",
    "Quote",
    "RidgeErrorBound",
    "SemiInteractiveBound",
    "SolveRecord",
    "StandardForm",
    "ConvexProgram",
    "Quantities",
}
#: Bases to be subclassed, and rules that get arrays of the package.
ABSTRACT = {
    "Prior",
    "Term",
    "Constraint",
    "PrivacyCost",
    "truthful_payment",
    "virtual_cost_payment",
    "Objective",
}
#: Methods that the package calls with values of its own.
INSIDE = {
    "check", "constraints", "create", "expression", "simplex_minimum", "conjugate", "check_domain",
    "losses", "noise_price", "objective", "purchase_market", "shortened", "by_prior", "numbers",
    "priced", "check_labels", "weighted", "comparisons", "reading", "quantities_used",
}  # fmt: skip
#: Numbers that may be undefined in a result, as its documentation says.
UNDEFINED = {"lower_bound", "z_score"}

HOSTILE = [*STRANGE, *EXTREMES, *NOT_POSITIVE]
X = np.array([[0.6, 0.2], [0.3, 0.5], [0.1, 0.7], [0.4, 0.4], [0.5, 0.1], [0.2, 0.3]])
Y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0])
BUDGET = cp.Parameter(nonneg=True, name="b")
EPSILON = np.array([1.0, 2.0, 0.5, 1.0, 1.5, 2.0])


def sellers() -> cm.Sellers:
    return cm.Sellers([0.1, 0.6, 0.3], cm.Uniform(0, 1), groups=["a", "b", "a"])


def market() -> cm.Market:
    return cm.Market.standard(sellers(), mu=2, sigma=1, gamma=0.5)


def joint_market() -> cm.JointMarket:
    several = cm.Sellers([0.1, 0.6, 0.3, 0.2, 0.4, 0.5], cm.Uniform(0, 1))
    declared = cm.Market.standard(several, mu=2, sigma=1, gamma=0.5)
    return cm.JointMarket(declared, X, Y, regularization=1.0)


@cache
def ledger_file() -> str:
    """Return a new ledger for this process, with two sellers."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path = Path(folder.name, "sold.sqlite")
    with cm.Ledger.create(path) as ledger:
        ledger.sell(["Ann", "Bob"], [1.0, 2.0], [0.5, 0.9])
    return str(path)


def erm() -> cm.KernelERM:
    return cm.KernelERM(data_norm=1.0, regularization=0.5).fit(X, Y)


def policy() -> cm.OnlinePolicy:
    return cm.OnlinePolicy(cm.Uniform(1, 5), 20, mu=1, sigma=1, gamma=1)


def ridge() -> cm.PersonalizedRidge:
    return cm.PersonalizedRidge(regularization=1.0)


#: What an argument of this name should be, for one callable or for all.
GOOD: dict[str, Callable[[], Any]] = {
    "sellers": sellers,
    "market": market,
    "allocation": lambda: cm.allocate(market()),
    "prior": lambda: cm.Uniform(0, 1),
    "joint": joint_market,
    "policy": policy,
    "start": policy,
    "erm": erm,
    "estimator": ridge,
    "objective": lambda: cm.Spread() + 1.0 * cm.Noise(),
    "X": lambda: X,
    "y": lambda: Y,
    "X_test": lambda: X,
    "y_test": lambda: Y,
    "epsilon": lambda: EPSILON,
    "weights": lambda: np.full(6, 1 / 6),
    "model": lambda: np.array([0.1, 0.2]),
    "samples": lambda: [0.1, 0.2, 0.4],
    "components": lambda: [cm.Uniform(0, 1), cm.Uniform(0, 2), *[cm.Uniform(0, 1)] * 4],
    "guarantee": lambda: cm.Guarantee(np.array([0.1] * 6), 0.0, "m", "sharp", ()),
    "accountant": lambda: cm.PrivacyAccountant([5.0] * 6, 0.1),
    "parameter": lambda: cp.Parameter(nonneg=True, name="b"),
    "random_state": lambda: 0,
    "sensitivities": lambda: [1.1, 2.0, 3.0],
    "sensitivity": lambda: 0.5,
    "groups": lambda: ["a", "b", "a"],
    "delta": lambda: 1e-5,
    "low": lambda: 0.5,
    "high": lambda: 1.5,
    "eta": lambda: 2.0,
    "text": lambda: "uniform:0,1",
    "described": lambda: policy().to_dict(),
    "values": lambda: [1.0, 2.0],
    "mechanism": lambda: "m",
    "accounting": lambda: "sharp",
    "assumptions": lambda: (),
    "regularization": lambda: 0.5,
    "failure_probability": lambda: 0.05,
    "noise_failure_probability": lambda: 1e-3,
    "kernel": lambda: "rbf",
    "loss": lambda: "logistic",
    "position": lambda: 0,
    "n_sellers": lambda: 3,
    "n_features": lambda: 2,
    "size": lambda: 3,
    "c": lambda: [0.6, 0.9],
    "u": lambda: [0.1, 0.9],
    "virtual_cost": lambda: 0.3,
    "ids": lambda: None,
    "k": lambda: 2.0,
    "amount": lambda: 1.0,
    "power": lambda: 2.0,
    "p": lambda: 2.0,
    "test_index": lambda: 0,
    "constraints": list,
    "expected_sellers": lambda: 20,
    "max_queries": lambda: 5,
    "max_updates": lambda: 2,
    "rounds": lambda: 3,
    "net_size": lambda: 100.0,
    "net_radius": lambda: 0.1,
    "max_norm": lambda: 1.0,
    "feature_lipschitz": lambda: 1.0,
    "n_points": lambda: 10,
    "n_queries": lambda: 10,
    "beta": lambda: 1.0,
    "budget": lambda: 1.0,
    "draws": lambda: 3,
    "folder": lambda: "",
    "predictions": lambda: [0.1, -0.2],
    "noise": lambda: "laplace",
    "at_least": lambda: {"a": 0.2},
    "classes": lambda: (-1, 1),
    "data_norm": lambda: 1.0,
    "label_noise": lambda: 0.1,
    "coef_norm": lambda: 1.0,
    "frozen": lambda: __import__("scipy.stats").stats.expon(),
    "quantities": lambda: cm.terms.Quantities(
        cp.Variable(3), cp.Variable(3), cp.Variable(), np.array([0.1, 0.2, 0.3])
    ),
    "misreports": lambda: None,
    "budgets": lambda: [1.0],
    "max_sellers": lambda: None,
    "sold": lambda: np.array([0.1, 0.0]),
}
FOR: dict[tuple[str, str], Callable[[], Any]] = {
    ("Sellers", "virtual_costs"): lambda: None,
    ("Sellers", "prior"): lambda: cm.Uniform(0, 4),
    ("Sellers.draw", "groups"): lambda: None,
    ("draw", "groups"): lambda: None,
    ("calibrate_gamma", "groups"): lambda: None,
    ("check_payment_identity", "groups"): lambda: None,
    ("GivenEpsilon", "epsilon"): lambda: [0.5, 0.2, 0.3],
    ("MaxEpsilon", "epsilon"): lambda: 0.5,
    ("GroupShare", "equal"): lambda: True,
    ("Sellers", "sensitivities"): lambda: [0.1, 0.6, 0.3],
    ("declare", "eta"): lambda: 2.0,
    ("Losses", "values"): lambda: [0.1, 0.2, 0.3],
    ("InteractiveRelease", "max_queries"): lambda: 10,
    ("OnlinePolicy", "prior"): lambda: cm.Uniform(1, 5),
    ("check_reports", "c"): lambda: [0.6],
    ("sweep", "parameter"): lambda: BUDGET,
    ("Beta", "low"): lambda: 0.0,
    ("OnlineMarket", "policy"): policy,
    ("first_order_residuals", "weights"): lambda: np.full(6, 1 / 6),
    ("sweep", "market"): lambda: cm.Market(
        sellers(), cm.Spread() + 1.0 * cm.Noise(), [cm.Budget(BUDGET)]
    ),
    ("weights_for_guarantees", "epsilon"): lambda: [0.5, 1.0],
    ("JointMarket", "noise"): lambda: "expected",
    ("JointMarket", "market"): lambda: joint_market().market,
    ("fit", "epsilon"): lambda: EPSILON,
    ("PrivateLogisticRegression", "regularization"): lambda: 0.5,
    ("expected_loss", "epsilon"): lambda: EPSILON,
    ("audit_privacy", "mechanism"): ridge,
    ("audit_privacy", "epsilon"): lambda: EPSILON,
    ("audit_privacy", "n_rows"): lambda: 1,
    ("audit_privacy", "draws"): lambda: 50,
    ("allocate_together", "markets"): lambda: [market(), market()],
    ("allocate_together", "constraints"): lambda: [cm.MaxEpsilon(0.5)],
    ("private_selection", "scores"): lambda: [0.5, 0.7],
    ("private_selection", "epsilon"): lambda: 1.0,
    ("estimate_payments", "sellers"): lambda: None,
    ("allocate_jointly", "starts"): lambda: 2,
    ("NoiseModel", "noise"): lambda: "expected",
    ("check_payment_identity", "draws"): lambda: 5,
    ("ErrorBounds", "epsilon"): lambda: 1.0,
    ("Mixture", "weights"): lambda: [1.0] * 6,
    ("RidgeErrorBound", "weights"): lambda: [0.5, 0.5],
    ("quote", "sensitivity"): lambda: 1.5,
    ("Guarantee", "epsilon"): lambda: EPSILON,
    ("predict", "epsilon"): lambda: None,
    ("Ledger", "path"): ledger_file,
    ("sell", "ids"): lambda: ["Ann", "Bob"],
    ("sell", "epsilon"): lambda: [1.0, 2.0],
    ("sell", "prices"): lambda: [0.5, 0.9],
    ("account", "ids"): lambda: ["Ann", "Bob"],
}
#: Tried by the tests of their packages.
ELSEWHERE = {
    *("CVaR", "EffectiveSize", "Fairness", "MarketNumbers", "Moments", "Piece", "QuadraticSpread"),
    *("RobustCosts", "SquaredNoise", "TieredCost", "WeightedTerm", "prior_from_dict", "Together"),
    *("CoalitionAudit", "Kernel", "Learner", "ExponentialBlock"),
    *("objective_perturbation_log_density", "convexity_constant", "Buyer"),
    *("MarketPlan", "Plan", "ConstrainedFit", "FitFormulation", "KernelBasis", "Remaining"),
    *(
        "buy",
        "price",
        "Deal",
        "PublicFeatures",
        "Spent",
        "ball_net",
        "declare_fit",
        "net_size",
        "AuditCheck",
        "Neighbours",
    ),
}
NOT_A_CALL = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL


def public() -> dict[str, Any]:
    """Return the names at the top, and those that the packages there add."""
    packages = (cm.terms, cm.priors, cm.allocation, cm.incentives, cm.learners, cm.joint, cm.online)
    found = {name: getattr(cm, name) for name in cm.__all__}
    for package in (*packages, cm.release, cm.attacks, cm.errors):
        found |= {name: getattr(package, name) for name in package.__all__ if name not in ELSEWHERE}
    return found


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Return the public functions and constructors by name, in a fixed order."""
    found = {}
    for name, item in public().items():
        if not callable(item) or name in RESULTS | ABSTRACT | ELSEWHERE:
            continue
        if inspect.isclass(item) and issubclass(item, BaseException):
            continue
        found[name] = item
    found["Market.standard"] = cm.Market.standard
    found["Sellers.draw"] = cm.Sellers.draw
    found["Prior.from_scipy"] = cm.Prior.from_scipy
    found["private_selection"] = cm.privacy.private_selection
    return found


def good(owner: str, name: str, parameter: inspect.Parameter) -> Any:
    """Return a sensible argument."""
    maker = FOR.get((owner, name))
    if maker is None and parameter.default is not inspect.Parameter.empty:
        return parameter.default
    maker = maker or GOOD.get(name)
    return 1.0 if maker is None else maker()


def arguments(owner: str, call: Callable[..., Any], spoilt: Mapping[int, int]) -> dict[str, Any]:
    """Return arguments by name, of which the spoilt positions are hostile."""
    taken = [p for p in inspect.signature(call).parameters.values() if p.kind not in NOT_A_CALL]
    given = {}
    for place, parameter in enumerate(taken):
        given[parameter.name] = (
            HOSTILE[spoilt[place]] if place in spoilt else good(owner, parameter.name, parameter)
        )
    return given


def called(call: Callable[..., Any], given: dict[str, Any]) -> Any:
    """Call by name, or by place where a parameter has no name to call it by."""
    places, names = [], {}
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            places.append(given[parameter.name])
        elif parameter.kind not in NOT_A_CALL:
            names[parameter.name] = given[parameter.name]
    return call(*places, **names)


@cache
def methods() -> list[tuple[str, str]]:
    """Return class and method of every public method of ours, in a fixed order."""
    found = []
    for name, item in sorted(functions().items()):
        if not inspect.isclass(item):
            continue
        for method, function in inspect.getmembers(item, callable):
            ours = getattr(function, "__module__", "") or ""
            if method in INSIDE or name == "OnlineMarket":
                continue
            if not method.startswith("_") and ours.startswith("convexmarket"):
                found.append((name, method))
    return found


@cache
def sizes() -> dict[str, int]:
    """Return how many arguments each call takes."""
    return {name: len(arguments(name, call, {})) for name, call in functions().items()}


@st.composite
def function_calls(draw: Any) -> tuple[str, dict[int, int]]:
    """Draw a public function and which of its arguments are what."""
    name = draw(st.sampled_from(sorted(functions())))
    return name, draw(spoilt(sizes()[name]))


@st.composite
def spoilt(draw: Any, count: int) -> dict[int, int]:
    places = draw(st.lists(st.integers(0, max(count - 1, 0)), max_size=2, unique=True))
    return {place: draw(st.integers(0, len(HOSTILE) - 1)) for place in places}


@st.composite
def method_calls(draw: Any) -> tuple[str, str, dict[int, int], dict[int, int]]:
    """Draw a public method, what its object is made of, and what it is given."""
    name, method = draw(st.sampled_from(methods()))
    own = draw(spoilt(sizes()[name])) if draw(st.integers(0, 3)) == 0 else {}
    return name, method, own, draw(spoilt(4))


def describe(name: str, given: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in given.items())})"


def check_function(case: tuple[str, dict[int, int]]) -> str:
    """Call a function; what it returns has to be defined."""
    name, bad = case
    call = functions()[name]
    given = arguments(name, call, bad)
    require_defined(called(call, given), name)
    return "accepted"


def check_method(case: tuple[str, str, dict[int, int], dict[int, int]]) -> str:
    """Call a method of an object, fitted where it can be fitted."""
    name, method, own, bad = case
    made = called(functions()[name], arguments(name, functions()[name], own))
    if hasattr(made, "fit") and method != "fit":
        called(made.fit, arguments("fit", made.fit, {}))
    bound = getattr(made, method)
    count = len(arguments(method, bound, {}))
    bad = {place: which for place, which in bad.items() if place < count}
    found = called(bound, arguments(method, bound, bad))
    if method not in ("cdf", "pdf"):  # of NaN they are NaN
        require_defined(found, f"{name}.{method}")
    return "accepted"


def require_defined(value: Any, what: str, depth: int = 0) -> None:
    """Refuse a result that holds NaN where its documentation does not allow it."""
    if depth > 4 or isinstance(value, cp.Expression | cp.Problem | cp.Constraint | str | bytes):
        return
    if isinstance(value, float | np.floating):
        require(not np.isnan(value), "NaN in", what)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            require(not np.isnan(value).any(), "NaN in", what)
    elif isinstance(value, pd.DataFrame):
        numbers = value.select_dtypes("number")
        require(not numbers.isna().to_numpy().any(), "NaN in", what)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            require_defined(item, f"{what}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            require_defined(item, what, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.name not in UNDEFINED:
                require_defined(getattr(value, field.name), f"{what}.{field.name}", depth + 1)


TARGETS = [
    Target("function calls", function_calls(), check_function, 20.0, weight=5),
    Target("method calls", method_calls(), check_method, 20.0, weight=5),
]
