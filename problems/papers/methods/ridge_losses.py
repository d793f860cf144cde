"""Expected test losses of private ridge regressions for values of a parameter (R, section 4).

Expectations over draws of the noise are exact. The noise Z has a density proportional to exp(-eta_z
||z||), and the test loss is quadratic in Z with known moments. A draw consists of the data with its
split, the privacy levels and, for the baseline of Jorgensen et al., the sample of rows. All methods
and values use the same draws. The losses of "objective", "huber" and "statistics" are simulated.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket.allocation import weights_for_guarantees
from convexmarket.data.datasets import medical, synthetic_regression
from convexmarket.learners import PersonalizedRidge, PrivateHuberRegressor
from convexmarket.privacy import Simulation
from convexmarket.privacy.random_sources import gamma_sphere_noise
from convexmarket.privacy.sensitivity import ridge_norm_bound, ridge_sensitivity

PAPERS = Path(__file__).parent.parent
#: The methods in the order of increasing loss that the paper states.
ORDER = ["pdp_op", "jorgensen_max", "jorgensen_mean", "nonpersonalized"]
LOSSES = ("unreg", "reg")
CELL = ["sweep", "parameter", "value", "method", "loss"]
KEYS = ["sweep", "parameter", "value", "loss"]
#: Largest ratio of a reproduced loss to its published value, and the ratio that "<<" denotes.
CLOSE, MUCH = 1.5, 10.0


@dataclass(frozen=True)
class Levels:
    """Epsilons of conservatives, mediums and liberals, and their shares (R, section 4)."""

    eps_conservative: float = 0.01
    eps_medium: float = 0.2
    eps_liberal: float = 1.0
    f_conservative: float = 0.34
    f_medium: float = 0.43

    def draw(self, n_rows, rng):
        """Draw a guarantee for every row, with uniform numbers that do not depend on the levels."""
        order, uniform = rng.permutation(n_rows), rng.random(n_rows)
        first = round(self.f_conservative * n_rows)
        second = first + min(round(self.f_medium * n_rows), n_rows - first)
        low = np.full(n_rows, self.eps_liberal)
        high = low.copy()
        low[:first], high[:first] = self.eps_conservative, self.eps_medium
        low[first:second], high[first:second] = self.eps_medium, self.eps_liberal
        return (low + uniform * (high - low))[order]


@dataclass(frozen=True)
class Sweep:
    """A sweep over one parameter. ``tables`` are the table numbers of its results in R."""

    parameter: str
    values: tuple
    tables: tuple = ()
    levels: Levels | None = None
    regularization: float | None = None


class Study:
    """The settings of a comparison of ridge regressions. A subclass adds data and sweeps.

    The bound of Theorem 3.6 uses the public assumptions ``label_noise``, ``coef_norm`` and
    ``smallest_eigenvalue``, and fails with probability ``failure_probability``. ``data`` is
    "medical", or a tuple (rows, features, label noise) for synthetic data.
    """

    sensitivity, failure_probability, levels = "paper", 0.05, Levels()
    draws, samples, perturbations = 25, 50, ()

    def load(self, draw):
        """Load the medical data with the split of a draw, or draw synthetic data."""
        rng = np.random.default_rng([0, draw, 0])
        if self.data == "medical":
            return medical(0.8, rng)
        n_rows, n_features, noise = self.data
        return synthetic_regression(n_rows, n_features, rng, 0.8, noise)

    def scenes(self, sweep, data, draw):
        """Yield a scene, its lambdas and its parameter values for each setting of a sweep."""
        alpha = sweep.regularization or self.regularization
        together = sweep.parameter == "regularization"
        for values in [sweep.values] if together else [(value,) for value in sweep.values]:
            levels = sweep.levels or self.levels
            if hasattr(levels, sweep.parameter):
                levels = replace(levels, **{sweep.parameter: values[0]})
            size = data.y_train.size
            epsilon = levels.draw(size, np.random.default_rng([0, draw, 1]))
            if sweep.parameter == "row_fraction":
                size = max(1, round(values[0] * size))
            noise = values[0] if sweep.parameter == "label_noise" else self.label_noise
            rows = (data.X_train[:size], data.y_train[:size], data.X_test, data.y_test)
            alphas = np.array(values if together else [alpha])
            yield Scene(*rows, epsilon[:size], noise), alphas, values


@dataclass(frozen=True)
class Scene:
    """Training rows, test rows, guarantees, and the label noise that a buyer assumes."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    epsilon: np.ndarray
    label_noise: float


def sampling_chances(epsilon, threshold):
    """Compute the sampling probabilities of rows at a threshold (Jorgensen et al., 2015)."""
    below = np.minimum(epsilon, threshold)
    chances = np.exp(below - threshold) * np.expm1(-below) / np.expm1(-threshold)
    return np.where(epsilon < threshold, chances, 1.0)


def sample(epsilon, threshold, n_samples, rng):
    """Draw samples of rows, as arrays of zeros and ones."""
    drawn = rng.random((n_samples, epsilon.size)) < sampling_chances(epsilon, threshold)
    return drawn.astype(float)


def solutions(scene, weights, alphas):
    """Compute weighted ridge solutions of shape (samples, lambdas, features)."""
    d = scene.X.shape[1]
    products = (scene.X[:, :, None] * scene.X[:, None, :]).reshape(-1, d * d)
    squares = (weights @ products).reshape(-1, 1, d, d) + alphas[:, None, None] * np.eye(d)
    moments = weights @ (scene.X * scene.y[:, None])
    return np.linalg.solve(squares, moments[:, None, :, None])[..., 0]


def evaluate(scene, weights, rates, alphas):
    """Compute mean, standard deviation and simulation error of each loss, shape (3, n_lambdas).

    ``weights`` has a row for each sample. ``rates``, the rates of the noise, has a row for each
    sample and a column for each lambda. The norm R of the noise satisfies E R^2 = d(d+1)/rate^2 and
    E R^4 = d(d+1)(d+2)(d+3)/rate^4, and on the sphere E (u'Hu)^2 = (tr(H)^2 + 2 tr(H^2))/(d(d+2)).
    """
    models, n_test = solutions(scene, weights, alphas), scene.y_test.size
    d = models.shape[2]
    residuals = scene.y_test - models @ scene.X_test.T
    slopes = residuals @ scene.X_test / -n_test
    hessian = scene.X_test.T @ scene.X_test / n_test
    result = {}
    for loss, penalty in zip(LOSSES, (np.zeros_like(alphas), alphas), strict=True):
        trace = np.trace(hessian) + penalty * d
        square = np.sum(hessian**2) + 2.0 * penalty * np.trace(hessian) + penalty**2 * d
        slope = np.sum((slopes + penalty[:, None] * models) ** 2, axis=2)
        second, fourth = (d + 1) / rates**2, (d + 1) * (d + 3) / rates**4
        variance = 2 * fourth * square + 2 * (d + 1) / rates**4 * trace**2 + 4 * second * slope
        mean = np.mean(residuals**2, axis=2) + penalty * np.sum(models**2, axis=2) + second * trace
        # The total variance is the sum of the variances due to the noise and due to the samples.
        std = np.sqrt(variance.mean(axis=0) + mean.var(axis=0))
        result[loss] = np.array([mean.mean(axis=0), std, mean.std(axis=0) / np.sqrt(len(mean))])
    return result


def method_losses(study, scene, alphas, rng):
    """Evaluate every method and loss on one scene, as arrays of shape (3, lambdas)."""
    epsilon, (n_rows, d) = scene.epsilon, scene.X.shape
    kappa = np.array([ridge_sensitivity(a, d, None, study.sensitivity) for a in alphas])
    tight = np.array([ridge_sensitivity(a, d, None, "tight") for a in alphas])
    shares, equal = (epsilon / epsilon.sum())[None], np.full((1, n_rows), 1.0 / n_rows)
    result = {
        "pdp_op": evaluate(scene, shares, epsilon.sum() / kappa[None], alphas),
        "nonpersonalized": evaluate(scene, equal, n_rows * epsilon.min() / kappa[None], alphas),
        "nonprivate": evaluate(scene, equal, np.full((1, alphas.size), np.inf), alphas),
        "pdp_op_tight": evaluate(scene, shares, epsilon.sum() / tight[None], alphas),
    }
    for name, threshold in (("max", epsilon.max()), ("mean", epsilon.mean())):
        taken = sample(epsilon, threshold, study.samples, rng)
        sizes = taken.sum(axis=1, keepdims=True)
        rates = np.where(sizes > 0, sizes * threshold / kappa, np.inf)
        result[f"jorgensen_{name}"] = evaluate(scene, taken / np.maximum(sizes, 1), rates, alphas)
    if scene.label_noise > 0:
        parts = [optimal(study, scene, *pair) for pair in zip(alphas, kappa, strict=True)]
        result["pdp_op_optimal"] = {
            loss: np.concatenate([part[loss] for part in parts], axis=1) for loss in LOSSES
        }
    if type(study).perturbations:  # drawn even in a quick run, which does not simulate releases
        seeds = rng.integers(0, 2**62, study.samples).tolist()
        for name in study.perturbations:
            result[name] = simulated(scene, alphas, name, seeds)
    losses = {(name, loss): pair[loss] for name, pair in result.items() for loss in LOSSES}
    # The paper's non-private loss without regularisation is the loss of least squares.
    root = np.sqrt(1.0 / n_rows)
    rows = np.vstack([scene.X * root, np.zeros((d, d))])  # the same shape as with lambda > 0
    plain = np.linalg.lstsq(rows, np.append(scene.y * root, np.zeros(d)), rcond=None)[0]
    error = np.mean((scene.y_test - scene.X_test @ plain) ** 2)
    losses["nonprivate", "unreg"] = np.outer([error, 0.0, 0.0], np.ones(alphas.size))
    return losses


def optimal(study, scene, alpha, kappa):
    """Compute the losses of the weights that minimise the bound of Theorem 3.6."""
    d = scene.X.shape[1]
    deviation = np.sqrt(2.0 * d / study.failure_probability)
    mu, sigma = scene.label_noise / alpha * deviation, kappa * (d + deviation)
    weights, _ = weights_for_guarantees(scene.epsilon, mu, sigma)
    rate = np.min(scene.epsilon[weights > 0] / weights[weights > 0]) / kappa
    return evaluate(scene, weights[None], np.array([[rate]]), np.array([alpha]))


def simulated(scene, alphas, name, seeds):
    """Simulate the losses of released models, or return NaN if no noise satisfies the guarantees.

    The threshold of "objective" exceeds all residuals, so the Huber loss is half of the squared
    loss. "huber" has the largest label as threshold and needs less noise. The default tolerance
    assumes residuals as large as the threshold.
    """
    (n, d), values = scene.X.shape, np.full((len(LOSSES), alphas.size, len(seeds)), np.nan)
    tol = 1e-12 + 2.0**-53 * (8 * n + 2e6 / scene.epsilon.sum())
    for k, alpha in enumerate(alphas.tolist()):
        most = 1.0 if name == "huber" else 1.0 + np.sqrt(d) * ridge_norm_bound(alpha, d)
        learner = PersonalizedRidge(alpha, perturbation="statistics", fit_intercept=False)
        if name != "statistics":
            learner = PrivateHuberRegressor(
                alpha, threshold=float(most), data_norm=float(np.sqrt(d)), tol=tol
            )
        for j, seed in enumerate(seeds):
            try:
                learner.fit(scene.X, scene.y, epsilon=scene.epsilon, random_state=Simulation(seed))
            except cm.errors.ParameterError:  # the Jacobian's share exceeds the smallest guarantee
                break
            error = np.mean((scene.y_test - scene.X_test @ learner.coef_) ** 2)
            values[:, k, j] = error, error + alpha * np.sum(learner.coef_**2)
    root = np.sqrt(len(seeds))
    return {
        loss: np.array([of.mean(axis=1), of.std(axis=1), of.std(axis=1) / root])
        for loss, of in zip(LOSSES, values, strict=True)
    }


def run(study):
    """Compute the tables of a study."""
    rows = []
    for draw in range(study.draws):
        data = study.load(draw)
        for number, sweep in enumerate(study.sweeps):
            rng = np.random.default_rng([0, draw, 3 + number])
            for scene, alphas, values in study.scenes(sweep, data, draw):
                for (method, loss), result in method_losses(study, scene, alphas, rng).items():
                    for value, (mean, std, error) in zip(values, result.T, strict=True):
                        row = (number, sweep.parameter, value, method, loss, draw, mean, std, error)
                        rows.append(row)
    draws = pd.DataFrame(rows, columns=[*CELL, "draw", "mean", "std", "simulation_error"])
    groups = draws.groupby(CELL, sort=False)[["mean", "std"]]
    low, high = groups.quantile(0.05).add_suffix("_low"), groups.quantile(0.95).add_suffix("_high")
    cells = pd.concat([groups.median(), low, high], axis=1).reset_index()
    return {
        "cells": cells,
        "draws": draws,
        "published": compare(study, cells),
        "orderings": orderings(cells, draws),
        "gains": gains(draws),
        "confirmation": confirm(study),
        "bound": bound(study),
    }


def compare(study, cells):
    """Compare the medians with the published tables, with one row for each cell."""
    tables = []
    for number, sweep in enumerate(study.sweeps):
        for table in sweep.tables:
            file = f"published/table{table:02}.csv"
            statistic = "std" if table > 12 else "mean"
            long = pd.read_csv(PAPERS / file).melt(sweep.parameter, value_name="published")
            long[["loss", "method"]] = long.variable.str.split("_", n=1, expand=True)
            long = long.rename(columns={sweep.parameter: "value"}).drop(columns="variable")
            named = {"file": file, "sweep": number, "parameter": sweep.parameter}
            tables.append(long.assign(**named, statistic=statistic))
    if not tables:
        return pd.DataFrame()
    merged = pd.concat(tables, ignore_index=True).merge(cells, on=CELL, how="left")
    merged["ours"] = np.where(merged.statistic == "mean", merged["mean"], merged["std"])
    merged["ratio"] = merged.ours / merged.published
    negligible = (merged.ours < 1e-20) & (merged.published < 1e-20)  # rounding
    merged["close"] = merged.ratio.between(1 / CLOSE, CLOSE) | negligible
    return merged[["file", *CELL, "statistic", "published", "ours", "ratio", "close"]]


def orderings(cells, draws):
    """Check PDP-OP < Jorgensen max < Jorgensen mean << non-personalised at every value."""
    medians = cells.pivot_table(index=KEYS, columns="method", values="mean", sort=False)
    every = draws.pivot_table(index=[*KEYS, "draw"], columns="method", values="mean", sort=False)
    shares = in_order(every, MUCH).groupby(level=KEYS, sort=False).mean()
    columns = {"ours": in_order(medians, MUCH), "in_order": in_order(medians, 1.0)}
    return pd.DataFrame(columns | {"share_of_draws": shares}).reset_index()


def in_order(table, much):
    """Check the order of the losses of the methods in each row."""
    first, second, third, last = (table[name] for name in ORDER)
    return (first < second) & (second < third) & (much * third < last)


def gains(draws):
    """Divide losses with tight sensitivity and optimal weights by the losses of PDP-OP."""
    table = draws.pivot_table(index=[*KEYS, "draw"], columns="method", values="mean", sort=False)
    parts = []
    for method in ("pdp_op_tight", "pdp_op_optimal"):
        if method in table:
            ratio = table[method] / table.pdp_op
            wins = (ratio < 1 - 1e-9).groupby(level=KEYS, sort=False).mean()
            columns = {"ratio": ratio.groupby(level=KEYS, sort=False).median(), "wins": wins}
            parts.append(pd.DataFrame(columns).reset_index().assign(method=method))
    return pd.concat(parts, ignore_index=True)


def confirm(study, number=2000):
    """Simulate some cells of the first draw, and compare the losses with the closed forms."""
    sweep, data, rows = study.sweeps[0], study.load(0), []
    rng = np.random.default_rng([0, 0, 2])
    for scene, alphas, values in study.scenes(sweep, data, 0):
        exact = method_losses(study, scene, alphas, np.random.default_rng([0, 0, 3]))
        for k in sorted({0, alphas.size // 2, alphas.size - 1}):
            for method in ("pdp_op", "jorgensen_max", "nonpersonalized"):
                released = release(study, scene, alphas[k], method, rng, number)
                error = np.mean((scene.y_test - released @ scene.X_test.T) ** 2, axis=1)
                both = (error, error + alphas[k] * np.sum(released**2, axis=1))
                for loss, draws in zip(LOSSES, both, strict=True):
                    mean, _, simulation_error = exact[method, loss][:, k]
                    deviation = np.hypot(draws.std() / np.sqrt(draws.size), simulation_error)
                    z = (draws.mean() - mean) / deviation
                    row = (sweep.parameter, values[k], method, loss, mean, draws.mean(), z)
                    rows.append(row)
    columns = ["parameter", "value", "method", "loss", "exact", "simulated", "z"]
    return pd.DataFrame(rows, columns=columns)


def release(study, scene, alpha, method, rng, number):
    """Draw released models of shape (number, features) from the noise and the samples."""
    epsilon, n_rows = scene.epsilon, scene.epsilon.size
    kappa = ridge_sensitivity(alpha, scene.X.shape[1], None, study.sensitivity)
    if method == "jorgensen_max":
        number = min(number, max(50, 10_000_000 // n_rows))  # to limit the memory
        taken = sample(epsilon, epsilon.max(), number, rng)
        taken = taken[taken.sum(axis=1) > 0]
        weights = taken / taken.sum(axis=1, keepdims=True)
        rates = taken.sum(axis=1) * epsilon.max() / kappa
    else:
        share, total = epsilon / epsilon.sum(), epsilon.sum()
        if method == "nonpersonalized":
            share, total = np.full(n_rows, 1.0 / n_rows), n_rows * epsilon.min()
        weights, rates = share[None], np.full(number, total / kappa)
    models = solutions(scene, weights, np.array([alpha]))[:, 0]
    noise = np.array([gamma_sphere_noise(models.shape[1], rng) / rate for rate in rates])
    return models + noise


def bound(study):
    """Compute the terms of the bound of Theorem 3.6 for each lambda and the first draw."""
    data = study.load(0)
    d = data.X_train.shape[1]
    epsilon = study.levels.draw(data.y_train.size, np.random.default_rng([0, 0, 1]))
    deviation, rows = np.sqrt(2.0 * d / study.failure_probability), []
    for alpha in np.logspace(-3, 4, 141):
        rate = epsilon.sum() / ridge_sensitivity(alpha, d, None, study.sensitivity)
        bias = study.coef_norm / (1.0 + study.smallest_eigenvalue / alpha)
        norm = np.linalg.norm(epsilon / epsilon.sum())
        labels = study.label_noise / alpha * deviation * norm
        terms = (bias, (d + deviation) / rate, labels)
        rows.append((alpha, *terms, sum(terms)))
    return pd.DataFrame(rows, columns=["regularization", "bias", "privacy", "labels", "total"])
