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
from convexmarket.studies.subproblems import markets, models
from convexmarket.studies.subproblems.instances import (
    CLASSES,
    Family,
    Floats,
    Instance,
    Make,
    MarketOf,
)
from convexmarket.terms import (
    Budget,
    Cap,
    Constraint,
    MaxEpsilon,
    Noise,
    Objective,
    Payments,
    PowerCost,
    Spread,
)

__all__ = [
    "CLASSES",
    "Family",
    "allocation_families",
    "classifier_families",
    "families_of_class",
    "families_of_market",
    "market_family",
    "papers_market",
]

#: Private rows of the model behind a fit, and points that it predicts, at most.
_MOST_PRIVATE, _MOST_POINTS = 500, 1_000
#: Scale of the noise in a prediction.
_PREDICTION_NOISE = 0.2


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


def _granted(market: Market) -> Instance:
    return markets.guarantees(
        np.asarray(market.form.epsilon_caps), market.form.mu, market.form.sigma
    )


#: The subproblem of a market, of each class that is one.
_OF_MARKET: dict[str, Callable[[Market], Instance]] = {
    "allocation": markets.at_best_eta,
    "certified search": markets.certified_search,
    "given guarantees": _granted,
    "budget": markets.budget,
    "variants": markets.at_natural_eta,
}


def _of_class(
    problem_class: str, market_of: MarketOf, name: str = "", own_size: int | None = None
) -> Family:
    make = _OF_MARKET[problem_class]
    return Family(problem_class, lambda size, rng: make(market_of(size, rng)), name, own_size)


def allocation_families(market_of: MarketOf, own_size: int | None = None) -> list[Family]:
    """Return the papers' market at its optimal eta, and the search for that eta."""
    names = ("allocation", "certified search")
    return [_of_class(name, market_of, own_size=own_size) for name in names]


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
    if not any(term.adds_to == "sigma" for term in example.terms):
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
    if form.epsilon_caps is not None:
        problem_class = "given guarantees"
    elif form.standard is not None and form.mu > 0:
        problem_class = "allocation"
    else:
        budgets_alone = form.budgets and not form.payment_terms
        problem_class = "budget" if budgets_alone else "variants"
    try:
        _OF_MARKET[problem_class](example)
    except ConvexMarketError as error:
        raise NotSupportedError(f"{example!r} has no subproblem to compare: {error}") from None
    return _of_class(problem_class, market_of, name, own_size)


def classifier_families(rows: Any, market_of: MarketOf, regularization: float) -> list[Family]:
    """Return the training of a market's classifier on rows, and the fit to its predictions.

    Parameters
    ----------
    rows : MarketData
        Rows to train on, and public rows.
    market_of : callable
        From a size and a generator to the market that sells the rows.
    regularization : float
        Of the classifier.
    """

    def logistic(size: int, rng: np.random.Generator) -> Instance:
        bought = allocate(market_of(size, rng))
        arguments = bought.weights, regularization, 2.0 * rows.data_norm / bought.eta
        return models.draw_logistic(rows.X_train, rows.y_train, *arguments, rng)

    def fit(size: int, rng: np.random.Generator) -> Instance:
        private = rows.X_train[:_MOST_PRIVATE], rows.y_train[:_MOST_PRIVATE]
        arguments = rows.data_norm / 2.0, regularization, _PREDICTION_NOISE
        return models.draw_fit(rows.X_test, *private, *arguments, size, rng)

    return [
        Family("weighted logistic regression", logistic),
        Family("semi-interactive fit", fit, largest=_MOST_POINTS),
    ]


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
    if name in _MARKETS:
        return [_of_class(name, _MARKETS[name])]
    if name in _MAKERS:
        return [Family(name, _MAKERS[name])]
    families = classifier_families(wdbc(), _market, _REGULARIZATION)
    return [family for family in families if family.problem_class == name]


# ------------------------------------------------------------------- instances of the classes

_PRIOR = Uniform(float(np.exp(-4)), float(5 * np.exp(-4)))
_REGULARIZATION = 0.03
#: Guarantees, in nats, of conservative, medium and liberal people, and their shares (R).
_GRANTS, _SHARES = ((0.01, 0.2), (0.2, 1.0), (1.0, 1.0)), (0.34, 0.43, 0.23)
_LABEL_NOISE = 0.1

_market: MarketOf = partial(papers_market, _PRIOR, 3.0, 10.0, 0.003, None)


def _variant(objective: Objective, constraint: Constraint, size: int, rng: Any) -> Market:
    return Market(Sellers(_PRIOR.sample(size, rng), _PRIOR), objective, [constraint])


_RISK = 3.0 * Spread() + 10.0 * Noise()
_MARKETS: dict[str, MarketOf] = {
    "allocation": _market,
    "certified search": _market,
    "budget": partial(_variant, _RISK, Budget(5.0)),
    "variants": partial(_variant, _RISK + 0.003 * Payments(PowerCost(1.5)), MaxEpsilon(2.0)),
}


def _grants(size: int, rng: np.random.Generator) -> Floats:
    group = rng.choice(len(_GRANTS), size, p=_SHARES)
    low, high = np.array(_GRANTS).T
    return rng.uniform(low[group], high[group])


def _guarantees(size: int, rng: np.random.Generator) -> Instance:
    n_features = medical(0.8, 0).X_train.shape[1]
    mu, sigma = ridge_risk_constants(1.0, n_features, _LABEL_NOISE, 0.05)
    return markets.guarantees(_grants(size, rng), mu, sigma)


def _z_block(size: int, rng: np.random.Generator) -> Instance:
    rows = wdbc()
    X, y = models.draw_rows(rows.X_train, rows.y_train, size, rng)
    return models.z_block(JointMarket(_market(size, rng), X, y, regularization=_REGULARIZATION))


def _ridge(size: int, rng: np.random.Generator) -> Instance:
    rows, epsilon = medical(0.8, 0), _grants(size, rng)
    weights = epsilon / epsilon.sum()
    return models.draw_ridge(rows.X_train, rows.y_train, weights, 1.0, _LABEL_NOISE, rng)


_MAKERS: dict[str, Make] = {
    "given guarantees": _guarantees,
    "z-block": _z_block,
    "ridge": _ridge,
}
