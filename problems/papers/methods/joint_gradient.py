"""The papers' method for the joint problem: projected gradient descent on a grid of eta.

For each eta = m*eps_avg of a grid, a descent updates model and weights together, starting from a
random model and equal weights. The method selects the best point (A, Algorithm 4). The best eta can
lie between two points, and a descent can stop early. With ``logarithms``, the descent updates z =
log(a) and projects onto the set sum exp(z) = 1, which is not convex (B, section 4.2).
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, lambertw

from convexmarket.allocation.simplex import project_capped_simplex


@dataclass(frozen=True)
class Terms:
    """Weights of the objective, the cap, and whether the spread is the squared norm."""

    mu: float
    sigma: float
    gamma: float
    cap: float | None = None
    squared: bool = False


def slopes(joint, terms, model, weights, eta):
    """Return the objective without sigma/eta, and its gradients in the model and the weights."""
    margins = joint.y * (joint.X @ model)
    losses, length = np.logaddexp(0.0, -margins), np.linalg.norm(weights)
    prices = losses + terms.gamma * eta * joint.market.sellers.virtual_costs
    value = weights @ prices + joint.regularization / 2 * (model @ model)
    value += terms.mu * (length**2 if terms.squared else length)
    by_model = joint.regularization * model - (weights * expit(-margins) * joint.y) @ joint.X
    by_weights = prices + terms.mu * weights * (2.0 if terms.squared else 1.0 / length)
    return value, by_model, by_weights


def project_logarithms(v):
    """Project v onto sum exp(z) = 1 by solving z + tau*exp(z) = v, or return NaN if it fails."""

    def nearest(tau):
        turn = -(1 - 1e-12) / np.e
        return v - np.real(lambertw(np.maximum(tau * np.exp(v), turn), 0))

    def excess(tau):
        return np.exp(nearest(tau)).sum() - 1.0

    low, high = (-(1 - 1e-12) * np.exp(-1.0 - v).min(), 0.0) if excess(0.0) < 0 else (0.0, 1.0)
    if excess(low) < 0:
        return np.full(v.shape, np.nan)
    while excess(high) > 0:
        high *= 2.0
    z = nearest(brentq(excess, low, high, xtol=1e-300, rtol=1e-15))
    return z - np.log(np.exp(z).sum())


def descend(joint, terms, eta, model, logarithms=False, tol=1e-9, max_iterations=10_000):
    """Run a descent at one eta from equal weights. Return model, weights and objective.

    Each iteration increases the step by a tenth, then halves it until the objective is below a
    quadratic bound. Because differences have rounding errors, a bound on gradients is also checked.
    """
    m = len(joint.y)
    limit = min(1.0, (terms.cap or m) / m)
    rows = np.einsum("ij,ij->i", joint.X, joint.X).max()
    bend = terms.mu * (2.0 if terms.squared else np.sqrt(m))
    step = 1.0 / (max(rows / 4 + joint.regularization, bend) + np.linalg.norm(joint.X, 2))
    place = np.full(m, 1.0 / m)
    if logarithms:
        place = np.log(place)

    def look(model, place):
        if not logarithms:
            return slopes(joint, terms, model, place, eta)
        value, by_model, by_weights = slopes(joint, terms, model, np.exp(place), eta)
        return value, by_model, np.exp(place) * by_weights

    value, by_model, by_place = look(model, place)
    for _ in range(max_iterations):
        while True:
            to_model, to_place = model - step * by_model, place - step * by_place
            to_place = (
                project_logarithms(to_place)
                if logarithms
                else project_capped_simplex(to_place, limit)
            )
            moved, bought = to_model - model, to_place - place
            change = moved @ moved + bought @ bought
            there = look(to_model, to_place)
            promised = value + by_model @ moved + by_place @ bought + change / (2 * step)
            bend = (there[1] - by_model) @ moved + (there[2] - by_place) @ bought
            falls = there[0] <= promised + 1e-12 * abs(value) and bend <= change / step
            if falls or change <= 1e-30:
                break
            step /= 2.0
        model, place = to_model, to_place
        value, by_model, by_place = there
        if change <= tol**2 * (model @ model + place @ place):
            break
        step *= 1.1
    return model, np.exp(place) if logarithms else place, value + terms.sigma / eta


def largest_eta(joint, terms):
    """Compute an upper bound on eta at stationary points."""
    costs, m = np.sort(joint.market.sellers.virtual_costs), len(joint.y)
    limit = min(1.0, (terms.cap or m) / m)
    full = int(1.0 / limit + 1e-9)
    cheapest = limit * costs[:full].sum() + (1.0 - full * limit) * costs[min(full, m - 1)]
    return np.sqrt(terms.sigma / (terms.gamma * cheapest))


def projected_gradient(joint, terms, grid, rng):
    """Return the best (objective, eta) of a grid that divides (0, largest eta] evenly."""
    high = largest_eta(joint, terms)
    result = []
    for eta in np.linspace(high / grid, high, grid):
        _, _, objective = descend(joint, terms, eta, rng.normal(size=joint.X.shape[1]))
        result.append((objective, eta))
    return min(result)
