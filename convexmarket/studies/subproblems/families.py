"""Subproblems at any size: of a market, of a function that returns markets, or of a class name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from convexmarket.allocation import allocate
from convexmarket.data.datasets import medical, wdbc
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.joint import JointMarket
from convexmarket.learners import ridge_risk_constants
from convexmarket.market import Market
from convexmarket.priors import Prior, Uniform
from convexmarket.sellers import Sellers
from convexmarket.studies.subproblems.instances import CLASSES, Family, Instance, Make, MarketOf
from convexmarket.studies.subproblems.markets import (
    at_best_eta,
    at_natural_eta,
    budget,
    certified_search,
    guarantees,
)
from convexmarket.studies.subproblems.models import (
    draw_fit,
    draw_logistic,
    draw_ridge,
    draw_rows,
    z_block,
)
from convexmarket.terms import Budget, Cap, MaxEpsilon, Noise, Payments, PowerCost, Spread

__all__ = [
    "CLASSES",
    "MOST_POINTS",
    "MOST_PRIVATE",
    "Family",
    "allocation_families",
    "families_of_class",
    "families_of_market",
    "market_family",
    "papers_market",
]

#: Largest numbers of private rows, and of points, in a fit to predictions.
MOST_PRIVATE, MOST_POINTS = 500, 1_000


def papers_market(
    prior: Prior,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None,
    size: int,
    rng: np.random.Generator,
) -> Market:
    """Return a market of sellers drawn from a prior."""
    sellers = Sellers(prior.sample(size, rng), prior)
    objective = mu * Spread() + sigma * Noise() + gamma * Payments()
    return Market(sellers, objective, [] if cap is None else [Cap(min(cap, size))])


def allocation_families(market_of: MarketOf, own_size: int | None = None) -> list[Family]:
    """Return the papers' market at its optimal eta, and the search for that eta."""
    return [
        Family("allocation", lambda size, rng: at_best_eta(market_of(size, rng)), "", own_size),
        Family(
            "certified search",
            lambda size, rng: certified_search(market_of(size, rng)),
            "",
            own_size,
        ),
    ]


def families_of_market(example: Market, market_of: MarketOf | None = None) -> list[Family]:
    """Return the subproblems of a market.

    Parameters
    ----------
    example : Market
        Its pieces decide the class of the subproblem.
    market_of : callable, optional
        From a size and a generator to a market of the same pieces. Without it the example is the
        only market, at its size.

    Raises
    ------
    NotSupportedError
        If it has no subproblem that a study can solve.
    """
    of = market_of or (lambda _size, _rng: example)
    own_size = None if market_of else len(example.sellers)
    first = market_family(example, of, own_size=own_size)
    return allocation_families(of, own_size) if first.problem_class == "allocation" else [first]


def market_family(
    example: Market, market_of: MarketOf, name: str = "", own_size: int | None = None
) -> Family:
    """Return the subproblem of a market at a fixed eta, under guarantees, or with a budget.

    Raises
    ------
    NotSupportedError
        If the market has no noise term or a term that is not smooth, or leaves eta no choice.
    """
    if not any(term.is_noise for term in example.terms):
        raise NotSupportedError(
            f"{example!r} has no Noise term, and studies compare markets with one; add sigma * "
            "Noise()"
        )
    if rough := [term for term in example.terms if not term.is_smooth]:
        raise NotSupportedError(
            f"{rough[0]!r} is not smooth, so that residuals cannot be computed from its gradient; "
            "leave it out"
        )
    form = example.form
    make: Callable[[Market], Instance]
    if form.granted is not None:
        problem_class = "given guarantees"

        def make(market: Market) -> Instance:
            granted = market.form.granted
            assert granted is not None  # the example has the constraint too
            return guarantees(granted, form.mu, form.sigma)

    elif form.standard is not None and form.mu > 0:
        problem_class, make = "allocation", at_best_eta
    elif form.budgets and not form.payment_terms:
        problem_class, make = "budget", budget
    else:
        problem_class, make = "variants", at_natural_eta
    try:
        make(example)
    except ConvexMarketError as error:
        raise NotSupportedError(f"{example!r} has no subproblem to compare: {error}") from None
    return Family(problem_class, lambda size, rng: make(market_of(size, rng)), name, own_size)


def families_of_class(name: str) -> list[Family]:
    """Return the subproblem of a class on the data of this package.

    Markets draw their sellers from the uniform prior of the papers' experiment. Models are trained
    on its breast-cancer records, ridge regression on medical charges.

    Raises
    ------
    ParameterError
        If the class does not exist.
    """
    if name not in CLASSES:
        raise ParameterError(
            f"problems names the class {name!r}; known are {', '.join(sorted(CLASSES))}"
        )
    largest = MOST_POINTS if name == "semi-interactive fit" else None
    return [Family(name, _MAKERS[name], largest=largest)]


# ------------------------------------------------------------------- instances of the classes

_PRIOR = Uniform(float(np.exp(-4)), float(5 * np.exp(-4)))
_REGULARIZATION = 0.03
#: Guarantees, in nats, of conservative, medium and liberal people, and their shares (R).
_GRANTS, _SHARES = ((0.01, 0.2), (0.2, 1.0), (1.0, 1.0)), (0.34, 0.43, 0.23)
_LABEL_NOISE = 0.1

_market: MarketOf = partial(papers_market, _PRIOR, 3.0, 10.0, 0.003, None)


def _limited(size: int, rng: np.random.Generator) -> Market:
    sellers = Sellers(_PRIOR.sample(size, rng), _PRIOR)
    return Market(sellers, 3.0 * Spread() + 10.0 * Noise(), [Budget(5.0)])


def _powers(size: int, rng: np.random.Generator) -> Market:
    sellers = Sellers(_PRIOR.sample(size, rng), _PRIOR)
    objective = 3.0 * Spread() + 10.0 * Noise() + 0.003 * Payments(PowerCost(1.5))
    return Market(sellers, objective, [MaxEpsilon(2.0)])


def _grants(size: int, rng: np.random.Generator) -> Any:
    group = rng.choice(len(_GRANTS), size, p=_SHARES)
    low, high = np.array(_GRANTS).T
    return rng.uniform(low[group], high[group])


def _guarantees(size: int, rng: np.random.Generator) -> Instance:
    n_features = medical(0.8, 0).X_train.shape[1]
    mu, sigma = ridge_risk_constants(1.0, n_features, _LABEL_NOISE, 0.05)
    return guarantees(_grants(size, rng), mu, sigma)


def _logistic(size: int, rng: np.random.Generator) -> Instance:
    rows, allocation = wdbc(), allocate(_market(size, rng))
    noise_scale = 2.0 * rows.data_norm / allocation.eta
    return draw_logistic(
        rows.X_train, rows.y_train, allocation.weights, _REGULARIZATION, noise_scale, rng
    )


def _z_block(size: int, rng: np.random.Generator) -> Instance:
    rows = wdbc()
    X, y = draw_rows(rows.X_train, rows.y_train, size, rng)
    return z_block(JointMarket(_market(size, rng), X, y, regularization=_REGULARIZATION))


def _ridge(size: int, rng: np.random.Generator) -> Instance:
    rows, epsilon = medical(0.8, 0), _grants(size, rng)
    weights = epsilon / epsilon.sum()
    return draw_ridge(rows.X_train, rows.y_train, weights, 1.0, _LABEL_NOISE, rng)


def _fit(size: int, rng: np.random.Generator) -> Instance:
    rows, n = wdbc(), MOST_PRIVATE
    X, y, bandwidth = rows.X_train[:n], rows.y_train[:n], rows.data_norm / 2.0
    return draw_fit(rows.X_test, X, y, bandwidth, _REGULARIZATION, 0.2, size, rng)


_MAKERS: dict[str, Make] = {
    "allocation": lambda size, rng: at_best_eta(_market(size, rng)),
    "certified search": lambda size, rng: certified_search(_market(size, rng)),
    "given guarantees": _guarantees,
    "budget": lambda size, rng: budget(_limited(size, rng)),
    "variants": lambda size, rng: at_natural_eta(_powers(size, rng)),
    "weighted logistic regression": _logistic,
    "z-block": _z_block,
    "ridge": _ridge,
    "semi-interactive fit": _fit,
}
