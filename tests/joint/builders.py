"""Create random joint problems."""

import numpy as np

import convexmarket as cm


def data(m, n, rng):
    X = rng.normal(size=(m, n))
    X /= np.linalg.norm(X, axis=1).max()
    return X, np.where(X @ rng.normal(size=n) + 0.1 * rng.normal(size=m) > 0, 1.0, -1.0)


def convex_joint(seed, m=40, n=4, margin=1.5, squared=True, **options):
    """Create a problem that is strictly convex in (w, a) for a fixed eta."""
    rng = np.random.default_rng(seed)
    X, y = data(m, n, rng)
    regularization = float(np.exp(rng.uniform(-3, 0)))
    spectral = np.linalg.norm(X, 2) ** 2
    cap = options.pop("cap", None)
    radius = 1.0 if cap is None else np.sqrt(cap / m)
    mu = margin * spectral / regularization * (0.5 if squared else m * radius**3)
    return joint_of(
        X,
        y,
        mu * (cm.terms.SquaredSpread() if squared else cm.Spread()),
        rng,
        cap,
        regularization=regularization,
        **options,
    )


def joint_of(X, y, spread, rng, cap=None, cost=None, constraints=(), **options):
    prior = cm.Uniform(0.02, 0.1)
    sellers = cm.Sellers(prior.sample(len(y), rng), prior)
    objective = spread + float(np.exp(rng.normal())) * 10 * cm.Noise()
    objective += float(np.exp(rng.normal())) * 0.01 * cm.Payments(cost or cm.terms.LinearCost())
    limits = [*constraints, *([] if cap is None else [cm.Cap(cap)])]
    options.setdefault("regularization", 0.05)
    return cm.JointMarket(cm.Market(sellers, objective, limits), X, y, **options)


def naive(seed, constraints=(), sigma=0.0, losses=False, cost=None, **options):
    """Create a problem without a spread in which the first row is zero."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(12, 3)) * rng.uniform(0, 1, (12, 1)), rng.choice([-1, 1], 12)
    X[0] = 0.0
    sellers = cm.Sellers(rng.uniform(0.1, 0.9, 12), prior=cm.Uniform(0, 1))
    objective = (
        0.0 * cm.Spread() + sigma * cm.Noise() + 0.1 * cm.Payments(cost or cm.terms.LinearCost())
    )
    if losses:
        objective += 0.5 * cm.Losses(rng.random(12))
    market = cm.Market(sellers, objective, constraints)
    return cm.JointMarket(market, X, y, regularization=0.05, **options)


def instance(m=40, n=3, seed=0, *, terms=None, constraints=(), sellers=None, **options):
    """Create a joint market, which is convex for a fixed eta by default."""
    rng = np.random.default_rng(seed)
    X, y = data(m, n, rng)
    options = {"regularization": 0.1, **options}
    if terms is None:
        mu = np.linalg.norm(X, 2) ** 2 / options["regularization"]
        terms = mu * cm.terms.SquaredSpread() + 10.0 * cm.Noise() + 0.01 * cm.Payments()
    prior = cm.Uniform(0.02, 0.1)
    sellers = sellers or cm.Sellers(prior.sample(m, rng), prior)
    return cm.JointMarket(cm.Market(sellers, terms, constraints), X, y, **options)
