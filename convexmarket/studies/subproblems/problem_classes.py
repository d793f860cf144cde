"""Subproblems of a market, of a function that returns markets, or of a named class.

Named classes draw sellers from the prior of the papers' experiment, and rows from the WDBC data.
Ridge regression and given guarantees use the data set of medical charges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from convexmarket.data.datasets import medical, wdbc
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.joint import JointMarket
from convexmarket.learners import ridge_risk_constants
from convexmarket.market import Market
from convexmarket.priors import Uniform
from convexmarket.sellers import Sellers
from convexmarket.studies.subproblems import markets, models
from convexmarket.studies.subproblems.markets import Floats, Instance
from convexmarket.terms import Budget, MaxEpsilon, Noise, Payments, PowerCost, Spread

CLASSES: dict[str, tuple[str, ...]] = {
    "allocation": ("primal", "dual", "projection", "unscaled"),
    "certified search": ("primal", "dual", "projection"),
    "given guarantees": ("primal", "unscaled"),
    "budget": ("joint", "joint-scaled"),
    "variants": ("primal",),
    "weighted logistic regression": ("primal", "dual", "unscaled"),
    "z-block": ("exponential", "purchase"),
    "ridge": ("primal", "unscaled", "normal", "factor"),
    "semi-interactive fit": ("primal", "diagonal", "quadratic"),
}

Make = Callable[[int, np.random.Generator], Instance]


@dataclass(frozen=True, eq=False)
class Family:
    """A named subproblem for all sizes up to ``largest``, or only for ``own_size``."""

    problem_class: str
    make: Make
    name: str = ""
    own_size: int | None = None
    largest: float = np.inf


_OF_MARKET: dict[str, Callable[[Market], Instance]] = {
    "allocation": markets.at_eta,
    "certified search": markets.certified_search,
    "given guarantees": lambda market: markets.guarantees(
        np.asarray(market.form.epsilon_caps), market.form.mu, market.form.sigma
    ),
    "budget": markets.budget,
    "variants": markets.at_eta,
}


def families_of_market(
    example: Market, market_of: Callable[..., Market] | None = None, name: str = ""
) -> list[Family]:
    """Return the subproblems of ``example``, or of the markets that ``market_of`` returns."""
    form = example.form
    if not any(term.adds_to == "sigma" for term in example.terms):
        raise NotSupportedError(f"{example!r} has no Noise term; add sigma * Noise()")
    if rough := [term for term in example.terms if not term.is_smooth]:
        raise NotSupportedError(f"{rough[0]!r} is not smooth; leave out this term")
    if form.epsilon_caps is not None:
        classes = ["given guarantees"]
    elif form.standard is not None and form.mu > 0:
        classes = ["allocation", "certified search"]
    else:
        classes = ["budget" if form.budgets and not form.total_gamma else "variants"]
    try:
        _OF_MARKET[classes[0]](example)
    except ConvexMarketError as error:
        raise NotSupportedError(f"{example!r} has no subproblem to compare: {error}") from None
    own_size = None if market_of else len(example.sellers)
    of = market_of or (lambda _size, _rng: example)

    def make(problem_class: str, size: int, rng: np.random.Generator) -> Instance:
        return _OF_MARKET[problem_class](of(size, rng))

    return [Family(each, partial(make, each), name, own_size) for each in classes]


def families_of_class(name: str) -> list[Family]:
    """Return the subproblem of a class, with the data sets of this package."""
    if name not in CLASSES:
        raise ParameterError(f"problems names the class {name!r}; known are {', '.join(CLASSES)}")
    largest = _MOST_POINTS if name == "semi-interactive fit" else np.inf
    return [Family(name, partial(_drawn, name), largest=largest)]


_MOST_POINTS = 1_000  # largest number of predictions in a fit
_REGULARIZATION = 0.03  # regularization of the classifiers
_PRIOR, _RISK = Uniform(float(np.exp(-4)), float(5 * np.exp(-4))), 3.0 * Spread() + 10.0 * Noise()
#: Ranges of epsilon for conservative, medium and liberal people, and their shares (R).
_GRANTS, _SHARES = ((0.01, 0.2), (0.2, 1.0), (1.0, 1.0)), (0.34, 0.43, 0.23)
_LABEL_NOISE = 0.1


def _drawn(name: str, size: int, rng: np.random.Generator) -> Instance:
    if name == "semi-interactive fit":
        return models.draw_fit(wdbc(), _REGULARIZATION, size, rng)
    if name in ("given guarantees", "ridge"):
        charges = medical(0.8, 0)
        if name == "ridge":
            weights = _grants(size, rng)
            X, y = models.draw_rows(charges.X_train, charges.y_train, size, rng)
            labels = np.array([y, y + _LABEL_NOISE * rng.standard_normal(size)])
            return models.ridge(X, labels, weights / weights.sum(), 1.0)
        risk = ridge_risk_constants(1.0, charges.X_train.shape[1], _LABEL_NOISE, 0.05)
        return markets.guarantees(_grants(size, rng), *risk)
    if name == "z-block":
        rows = wdbc()
        X, y = models.draw_rows(rows.X_train, rows.y_train, size, rng)
        joint = JointMarket(_market(name, size, rng), X, y, regularization=_REGULARIZATION)
        return models.z_block(joint)
    market = _market(name, size, rng)
    if name == "weighted logistic regression":
        return models.draw_logistic(wdbc(), market, _REGULARIZATION, rng)
    return _OF_MARKET[name](market)


def _market(name: str, size: int, rng: np.random.Generator) -> Market:
    sellers = Sellers(_PRIOR.sample(size, rng), _PRIOR)
    if name == "budget":
        return Market(sellers, _RISK, [Budget(5.0)])
    if name == "variants":
        return Market(sellers, _RISK + 0.003 * Payments(PowerCost(1.5)), [MaxEpsilon(2.0)])
    return Market(sellers, _RISK + 0.003 * Payments())


def _grants(size: int, rng: np.random.Generator) -> Floats:
    group = rng.choice(len(_GRANTS), size, p=_SHARES)
    return rng.uniform(*np.array(_GRANTS)[group].T)
