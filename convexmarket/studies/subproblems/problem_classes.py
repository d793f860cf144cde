"""Subproblems at any size: of a market, of a function that returns markets, or of a class name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from convexmarket.allocation import allocate
from convexmarket.data.datasets import medical, wdbc
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.joint import JointMarket
from convexmarket.learners import ridge_risk_constants
from convexmarket.market import Market
from convexmarket.priors import Uniform
from convexmarket.privacy.random_sources import gamma_sphere_noise
from convexmarket.sellers import Sellers
from convexmarket.studies.subproblems import markets, models
from convexmarket.studies.subproblems.markets import Floats, Instance
from convexmarket.terms import Budget, MaxEpsilon, Noise, Payments, PowerCost, Spread

#: Every class of subproblems, with its formulations.
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
MarketOf = Callable[[int, np.random.Generator], Market]

#: Largest numbers of private rows of the model behind a fit, and of its predictions.
_MOST_PRIVATE, _MOST_POINTS = 500, 1_000
#: Scale of the noise in a prediction.
_PREDICTION_NOISE = 0.2

# Parameters of the classes by name.
_PRIOR = Uniform(float(np.exp(-4)), float(5 * np.exp(-4)))
_REGULARIZATION = 0.03
#: Guarantees, in nats, of conservative, medium and liberal people, and their shares (R).
_GRANTS, _SHARES = ((0.01, 0.2), (0.2, 1.0), (1.0, 1.0)), (0.34, 0.43, 0.23)
_LABEL_NOISE = 0.1
_RISK = 3.0 * Spread() + 10.0 * Noise()


@dataclass(frozen=True, eq=False)
class Family:
    """A subproblem at any size up to ``largest``, or at ``own_size`` only.

    ``make`` maps a size and a generator to an instance. ``name`` distinguishes subproblems of one
    class in the same problem.
    """

    problem_class: str
    make: Make
    name: str = ""
    own_size: int | None = None
    largest: float = np.inf


#: The subproblem of each class for a market.
_OF_MARKET: dict[str, Callable[[Market], Instance]] = {
    "allocation": markets.at_best_eta,
    "certified search": markets.certified_search,
    "given guarantees": lambda market: markets.guarantees(
        np.asarray(market.form.epsilon_caps), market.form.mu, market.form.sigma
    ),
    "budget": markets.budget,
    "variants": markets.at_natural_eta,
}


def families_of_market(
    example: Market, market_of: MarketOf | None = None, name: str = ""
) -> list[Family]:
    """Return the subproblems of a market; the pieces of the market determine the classes.

    ``market_of`` maps a size and a generator to a market with the same pieces. By default, the
    example is the only market, at its size.
    """
    form = example.form
    if not any(term.adds_to == "sigma" for term in example.terms):
        raise NotSupportedError(
            f"{example!r} has no Noise term, which studies of solvers need; add sigma * Noise()"
        )
    if rough := [term for term in example.terms if not term.is_smooth]:
        raise NotSupportedError(
            f"{rough[0]!r} is not smooth, so residuals cannot be computed from its gradient; "
            "leave it out"
        )
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
    return [Family(each, partial(_made, each, of), name, own_size) for each in classes]


def _made(problem_class: str, market_of: MarketOf, size: int, rng: np.random.Generator) -> Instance:
    return _OF_MARKET[problem_class](market_of(size, rng))


def classifier_families(rows: Any, market_of: MarketOf, regularization: float) -> list[Family]:
    """Return the training of a market's classifier on rows, and the fit to its predictions.

    Sellers with weight zero are left out of the training. The private model of the fit is kernel
    ridge regression, and its norm is the bound.
    """

    def logistic(size: int, rng: np.random.Generator) -> Instance:
        bought = allocate(market_of(size, rng))
        X, y = models.draw_rows(rows.X_train, rows.y_train, size, rng)
        used = bought.weights > 0
        scale = 2.0 * rows.data_norm / bought.eta
        noise = np.array([scale * gamma_sphere_noise(X.shape[1], rng) for _ in range(2)])
        return models.logistic(X[used], y[used], bought.weights[used], regularization, noise)

    def fit(size: int, rng: np.random.Generator) -> Instance:
        X, y = rows.X_train[:_MOST_PRIVATE], rows.y_train[:_MOST_PRIVATE]
        kernel = partial(rbf_kernel, gamma=2.0 / rows.data_norm**2)
        model = KernelRidge(alpha=regularization * len(X), kernel="precomputed")
        dual = model.fit(kernel(X), y).dual_coef_
        points = models.draw_rows(rows.X_test, np.zeros(len(rows.X_test)), size, rng)[0]
        predicted = kernel(points, X) @ dual
        noisy = predicted + rng.laplace(scale=_PREDICTION_NOISE, size=(2, size))
        norm = np.sqrt(dual @ kernel(X) @ dual)
        return models.fit(kernel(points), noisy, float(norm))

    return [
        Family("weighted logistic regression", logistic),
        Family("semi-interactive fit", fit, largest=_MOST_POINTS),
    ]


def families_of_class(name: str) -> list[Family]:
    """Return the subproblem of a class on the data of this package.

    Markets draw their sellers from the uniform prior of the papers' experiment. Models are trained
    on its breast-cancer records, ridge regression on medical charges.
    """
    if name not in CLASSES:
        raise ParameterError(
            f"problems names the class {name!r}; known are {', '.join(sorted(CLASSES))}"
        )
    if name in _MAKERS:
        return [Family(name, _MAKERS[name])]
    drawn = partial(_drawn, name)
    if name in _OF_MARKET:
        return [Family(name, partial(_made, name, drawn))]
    families = classifier_families(wdbc(), drawn, _REGULARIZATION)
    return [family for family in families if family.problem_class == name]


def _drawn(problem_class: str, size: int, rng: np.random.Generator) -> Market:
    """Draw the market of a class; most classes use the papers' market."""
    sellers = Sellers(_PRIOR.sample(size, rng), _PRIOR)
    if problem_class == "budget":
        return Market(sellers, _RISK, [Budget(5.0)])
    if problem_class == "variants":
        return Market(sellers, _RISK + 0.003 * Payments(PowerCost(1.5)), [MaxEpsilon(2.0)])
    return Market(sellers, _RISK + 0.003 * Payments())


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
    market = _drawn("z-block", size, rng)
    return models.z_block(JointMarket(market, X, y, regularization=_REGULARIZATION))


def _ridge(size: int, rng: np.random.Generator) -> Instance:
    rows, epsilon = medical(0.8, 0), _grants(size, rng)
    weights = epsilon / epsilon.sum()
    return models.draw_ridge(rows.X_train, rows.y_train, weights, 1.0, _LABEL_NOISE, rng)


_MAKERS: dict[str, Make] = {"given guarantees": _guarantees, "z-block": _z_block, "ridge": _ridge}
