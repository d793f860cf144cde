"""Create models and releases, and define attacks on releases."""

from functools import cache
from inspect import signature

import numpy as np
from scipy import sparse, stats

import convexmarket as cm
from convexmarket.privacy import Simulation
from convexmarket.release.lattice_noise import LAPLACE_SLACK
from convexmarket.release.scales import calibrate, interactive_epsilon


def source(random_state):
    """Convert a seed to a Simulation. Return other random sources unchanged."""
    seeds = int, np.integer, np.random.Generator
    is_seed = isinstance(random_state, seeds) and random_state != -1
    return Simulation(random_state) if is_seed else random_state


def bound_of(method, sensitivity, epsilon, delta, **arguments):
    """Call a method of ErrorBounds. Each keyword is passed to the method or to the constructor."""
    cls = cm.release.ErrorBounds
    custom = {
        name: arguments.pop(name)
        for name in signature(getattr(cls, method)).parameters
        if name in arguments
    }
    return getattr(cls(sensitivity, epsilon, delta, **arguments), method)(**custom)


TERMS = {"epsilon": 1.0, "delta": 1e-6}
QUERIES = np.random.default_rng(1).uniform(-0.6, 0.6, (5, 2))


@cache
def model(kernel="rbf", n_features=2, n_rows=40, regularization=0.1):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, (n_rows, n_features)) * min(1.0, np.sqrt(2.0 / n_features))
    erm = cm.KernelERM(kernel=kernel, regularization=regularization, data_norm=1.0)
    return erm.fit(X, np.where(X[:, 0] > 0.1, 1, -1))


def made_of(kind, erm, **changes):
    """Create the release that ``kind`` names, with a fixed seed by default."""
    terms = TERMS | {"random_state": Simulation(0)} | changes
    if kind == "interactive":
        return cm.InteractiveRelease(erm, **({"max_queries": 20, "max_updates": 5} | terms))
    if kind == "function":
        return cm.release.FunctionRelease(erm, **terms)
    if kind == "public":
        return cm.release.PublicRelease(erm, **({"rounds": 2, "net_radius": 0.4} | terms))
    noise = "process" if kind == "process" else "laplace"
    return cm.TestSetRelease(erm, **({"X": QUERIES, "noise": noise} | terms))


#: Values of epsilon and delta of the guarantees that the tests attack.
ATTACKS = [(1.0, 1e-3), (1.0, 1e-6), (0.3, 1e-4), (5.0, 1e-2)]


def check_slightly_above(scale, continuous, slack=LAPLACE_SLACK):
    """Check that a lattice scale exceeds the continuous scale by at most ``slack`` (relative)."""
    assert continuous * (1.0 - 1e-8) <= scale <= continuous * (1.0 + slack) ** 2 * (1.0 + 1e-8)


def calibrate_once(patch, module):
    """Cache the calibrated noise scales of a module, so that equal releases share a scale."""
    calibrate, cache = module.calibrate, {}

    def cached(shifts, sold, epsilon_of):
        key = shifts.tobytes(), sold.tobytes()
        if key not in cache:
            cache[key] = calibrate(shifts, sold, epsilon_of)
        return cache[key]

    patch.setattr(module, "calibrate", cached)


def outcomes(shift, threshold, offset):
    """Compute the probabilities of the answers to a query under two neighbouring data sets.

    The first answer is the prediction of the public model. The other answers are cells of noisy
    values. A cell contains less information than a value, so a release reveals at least as much as
    these cells.
    """
    edges = np.concatenate(
        [[-np.inf, -threshold, threshold, np.inf], np.linspace(offset, offset + shift, 5)]
    )
    edges = np.sort(edges)
    middle = (edges[1:] + edges[:-1]) / 2.0
    unchanged = np.abs(middle) <= threshold
    laws = []
    for centre in (offset, offset + shift):
        masses = np.diff(stats.laplace.cdf(edges, loc=centre))
        laws.append(np.append(masses[unchanged].sum(), np.where(unchanged, 0.0, masses)))
    return laws


def worst_delta(shift, threshold, updates, n_queries, reach, n_grid=1500):
    """Compute the delta of the best adaptive adversary on a grid of log-ratios.

    The value function depends on the likelihood ratio y = Q/P and the remaining updates. Its final
    value is ``max(0, 1 - y)``. Its value at y = exp(epsilon) is the delta at epsilon. The value
    function is convex in y, so interpolation between grid points overestimates it.
    """
    offsets = np.linspace(-threshold - shift - 0.2, threshold + 0.2, 25)
    laws = [outcomes(shift, threshold, offset) for offset in offsets]
    P, Q = (np.array([law[side] for law in laws]) for side in (0, 1))
    log_ratios = np.linspace(-reach, reach, n_grid)
    y = np.exp(log_ratios)
    ratios = np.divide(Q, P, out=np.ones_like(P), where=P > 0)
    after = y * ratios[:, :, None]
    place = np.clip(np.searchsorted(y, after) - 1, 0, n_grid - 2)
    share = np.clip((after - y[place]) / (y[place + 1] - y[place]), 0.0, 1.0)

    def expectation(k):
        """Return the matrix that maps values after the answers ``k`` to their expectations."""
        weights = P[:, k, None] * np.stack([1.0 - share[:, k], share[:, k]])
        rows = np.arange(len(P) * n_grid).reshape(-1, 1, n_grid)
        columns = np.stack([place[:, k], place[:, k] + 1])
        entries = np.broadcast_to(rows, weights.shape).ravel(), columns.ravel()
        return sparse.csr_array((weights.ravel(), entries), shape=(len(P) * n_grid, n_grid))

    stays, updated = expectation(slice(0, 1)), expectation(slice(1, None))
    stopped = np.maximum(1.0 - y, 0.0)
    values = [stopped] * (updates + 1)
    for _ in range(n_queries):
        values = [stopped] + [
            (stays @ values[left] + updated @ values[left - 1]).reshape(-1, n_grid).max(axis=0)
            for left in range(1, updates + 1)
        ]
    return log_ratios, values[updates]


def check_the_adversary_stays_below_the_claim(updates, epsilon, delta, threshold, n_queries):
    s = calibrate(np.ones(1), np.full(1, epsilon), interactive_epsilon(updates, delta, "tight"))[0]
    log_ratios, deltas = worst_delta(
        1.0 / s, threshold, updates, n_queries, max(4.0, 2.0 * epsilon)
    )
    assert np.interp(epsilon, log_ratios, deltas) <= delta
