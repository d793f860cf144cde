"""Private ridge regressions side by side: expected test losses over a parameter (R, section 4).

Losses are exact over the noise, but for those of ``learner.perturbations``, which are simulated
with the package's own learners. What is drawn is the data with its split and the privacy levels
(``draws``), and for the baseline that samples rows, the sample (``samples``). All methods, all
values of all sweeps share a draw, so that a comparison reflects the methods and not their luck.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from convexmarket.allocation import weights_for_guarantees
from convexmarket.data.datasets import RegressionData, medical, synthetic_regression
from convexmarket.data.files import read_limited
from convexmarket.errors import ParameterError, ProblemFileError
from convexmarket.lab.kinds.ridge_comparison.problem import (
    MedicalRows,
    RidgeComparisonProblem,
    SweepTable,
)
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.learners import PersonalizedRidge, PrivateHuberRegressor
from convexmarket.learners.ridge_baselines import sampling_probabilities
from convexmarket.learners.ridge_math import (
    noise_moments,
    noise_rate,
    ridge_error_bound,
    ridge_risk_constants,
    solve_ridge,
)
from convexmarket.privacy import (
    Sensitivity,
    Simulation,
    gamma_sphere_noise,
    ridge_sensitivity,
)
from convexmarket.privacy.sensitivity import ridge_norm_bound

__all__ = ["METHODS", "run_ridge_comparison"]

Floats = NDArray[np.float64]

#: The methods, in the order that the paper claims for their losses, and what they are.
METHODS = {
    "pdp_op": "PDP-OP",
    "jorgensen_max": "Jorgensen max",
    "jorgensen_mean": "Jorgensen mean",
    "nonpersonalized": "non-personalised",
    "nonprivate": "non-private",
    "pdp_op_tight": "PDP-OP, tight sensitivity",
    "pdp_op_optimal": "PDP-OP, optimal weights",
    "objective": "objective perturbation",
    "huber": "Huber objective perturbation",
    "statistics": "sufficient statistics",
}
LOSSES = ("unreg", "reg")
#: Of a table of published figures.
MOST_BYTES = 1_000_000

# Purposes of random numbers; those of the samples are counted on by sweep.
_DATA, _LEVELS, _CONFIRMATION, _SAMPLES = 0, 1, 2, 3
_CELL = ["sweep", "parameter", "value", "method", "loss"]

CONFIRMED = ("pdp_op", "jorgensen_max", "nonpersonalized")
CONFIRMING_DRAWS = 2000
LARGEST_SAMPLE = 10_000_000  # rows over all samples, for the memory they take
ORDER = ("pdp_op", "jorgensen_max", "jorgensen_mean", "nonpersonalized")
MUCH = 10.0  # how much larger the non-personalised loss has to be for "<<"
CLOSE = 1.5  # the factor within which a published cell counts as reproduced
NEGLIGIBLE = 1e-20  # losses below it are rounding
SAME = 1e-9  # ratios closer to one than this are one
LAMBDAS = np.logspace(-3, 4, 141)  # of the picture of Theorem 3.6

CAVEATS = (
    "The baseline of Jorgensen et al. is run as published, with noise that shrinks as the sample "
    "grows. With one row replaced its promise is then not established, and small cases break it; "
    "a version that keeps it is cm.learners.SampledRidge.",
    "Losses on test rows are facts about private models, not releases: nothing here is covered by "
    "a guarantee, and lambda must not be chosen by them.",
)


def run_ridge_comparison(
    problem: RidgeComparisonProblem, progress: Progress | None = None
) -> Result[RidgeComparisonProblem]:
    """Compute the expected losses of all methods over all sweeps, and compare with the paper.

    Parameters
    ----------
    problem : RidgeComparisonProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        The same for the same problem, whatever the number of jobs; timings apart. Its tables and
        numbers:

        cells
            One row per sweep, value, method and loss ("unreg": mean squared test error, "reg": with
            lambda * ||theta||^2): over the draws, median and 5% and 95% quantiles of the loss'
            exact mean (mean, mean_low, mean_high) and standard deviation over the noise (std, ...),
            and simulation_error, the median standard error from sampling rows.
        draws
            sweep, value, method, loss, draw, mean, std, simulation_error.
        published
            One row per published cell: file, sweep, value, method, loss, statistic, published, ours
            (the median), ratio (ours / published), percentile (share of our draws below the
            published figure) and close (within a factor of 1.5).
        orderings
            One row per sweep, value and loss: whether PDP-OP < Jorgensen max < Jorgensen mean <<
            non-personalised, in our medians (ours), in all of our draws (share_of_draws), and in
            the published tables (published; None where a column is missing); in_order: whether it
            holds in our medians with < for <<.
        gains
            sweep, value, loss, method ("pdp_op_tight" or "pdp_op_optimal"), ratio, the median over
            the draws of its loss over that of PDP-OP, and wins, the share of draws where it is
            smaller.
        confirmation
            sweep, value, method, loss, exact, simulated, z: a simulation of some cells.
        bound
            regularization, bias, privacy, labels, total: Theorem 3.6 over lambda.
        best_regularization : float or None
            The lambda that minimises it, None if it falls all the way.

    Raises
    ------
    ProblemFileError
        If a published table cannot be read, or does not fit its sweep.
    """
    stages = Stages(progress)
    tables = _published(problem)  # before any work
    calls = [delayed(_one_draw)(problem, draw) for draw in range(problem.run.draws)]
    records = stages.parallel("losses", problem.run.workers, calls)
    draws = pd.DataFrame([record for part in records for record in part])
    cells = _summarise(draws)
    with stages("confirmation", 1) as advance:
        confirmation = _confirm(problem)
        advance()
    bound = _bound(problem)
    lowest = int(bound.total.argmin())
    return Result(
        problem=problem,
        tables={
            "cells": cells,
            "draws": draws,
            "published": _compare(tables, cells, draws),
            "orderings": _orderings(tables, cells, draws),
            "gains": _gains(draws),
            "confirmation": confirmation,
            "bound": bound,
        },
        numbers={
            "best_regularization": (
                float(bound.regularization[lowest]) if lowest < len(bound) - 1 else None
            ),
        },
        caveats=CAVEATS,
        timings=stages.timings(),
        provenance=provenance_of(
            problem,
            draws=problem.run.draws,
            samples=problem.run.samples,
        ),
    )


# ---------------------------------------------------------------- one draw


@dataclass(frozen=True, eq=False)
class Scene:
    """Rows with what they ask for, test rows, and the label noise that a buyer assumes."""

    X: Floats
    y: Floats
    epsilon: Floats
    X_test: Floats
    y_test: Floats
    label_noise: float


@dataclass(frozen=True, eq=False)
class Losses:
    """Exact losses of one method, one entry per lambda: over the noise, and over the sample."""

    mean: Floats
    std: Floats
    simulation_error: Floats


def _generator(problem: RidgeComparisonProblem, draw: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng([problem.run.seed, draw, purpose])


def _load(problem: RidgeComparisonProblem, draw: int) -> RegressionData:
    """Return the data of a draw."""
    data, rng = problem.data, _generator(problem, draw, _DATA)
    if isinstance(data, MedicalRows):
        return medical(data.train_fraction, rng, data.ranges)
    return synthetic_regression(
        data.n_rows, data.n_features, rng, data.train_fraction, data.label_noise
    )


def _scenes(
    problem: RidgeComparisonProblem, sweep: SweepTable, data: RegressionData, draw: int
) -> Iterator[tuple[Scene, Floats, tuple[float, ...]]]:
    """Yield scenes with the lambdas to try on each, and the sweep's values that these are."""
    alpha = sweep.regularization or problem.learner.regularization
    by_lambda = sweep.parameter == "regularization"
    for values in [sweep.values] if by_lambda else [(value,) for value in sweep.values]:
        size = data.y_train.size
        privacy = problem.privacy_at(sweep, values[0])
        epsilon = privacy.draw(size, _generator(problem, draw, _LEVELS))
        if sweep.parameter == "row_fraction":
            size = max(1, round(values[0] * size))
        X, y = data.X_train[:size], data.y_train[:size]
        noise = values[0] if sweep.parameter == "label_noise" else problem.learner.label_noise
        scene = Scene(X, y, epsilon[:size], data.X_test, data.y_test, noise)
        yield scene, np.array(values if by_lambda else [alpha]), values


def _one_draw(problem: RidgeComparisonProblem, draw: int) -> list[dict[str, Any]]:
    """Return the exact losses of every method at every value of every sweep."""
    data, records = _load(problem, draw), []
    for number, sweep in enumerate(problem.sweeps):
        rng = _generator(problem, draw, _SAMPLES + number)
        for scene, alphas, values in _scenes(problem, sweep, data, draw):
            for (method, loss), found in method_losses(problem, scene, alphas, rng).items():
                records += [
                    {
                        "sweep": number,
                        "parameter": sweep.parameter,
                        "value": value,
                        "method": method,
                        "loss": loss,
                        "draw": draw,
                        "mean": float(found.mean[k]),
                        "std": float(found.std[k]),
                        "simulation_error": float(found.simulation_error[k]),
                    }
                    for k, value in enumerate(values)
                ]
    return records


def method_losses(
    problem: RidgeComparisonProblem, scene: Scene, alphas: Floats, rng: np.random.Generator
) -> dict[tuple[str, str], Losses]:
    """Return the losses of every method, by method and loss."""
    epsilon, n_rows = scene.epsilon, scene.epsilon.size
    kappa = _kappas(scene, alphas, problem.learner.sensitivity)
    tight = _kappas(scene, alphas, "tight")
    shares = (epsilon / epsilon.sum())[None]
    equal = np.full((1, n_rows), 1.0 / n_rows)
    found = {
        "pdp_op": _evaluate(scene, shares, epsilon.sum() / kappa[None], alphas),
        "nonpersonalized": _evaluate(scene, equal, n_rows * epsilon.min() / kappa[None], alphas),
        "nonprivate": _evaluate(scene, equal, np.full((1, alphas.size), np.inf), alphas),
        "pdp_op_tight": _evaluate(scene, shares, epsilon.sum() / tight[None], alphas),
    }
    for name, threshold in (("max", epsilon.max()), ("mean", epsilon.mean())):
        kept = _samples(epsilon, float(threshold), problem.run.samples, rng)
        sizes = kept.sum(axis=1, keepdims=True)
        rates = np.where(sizes > 0, sizes * threshold / kappa, np.inf)
        found[f"jorgensen_{name}"] = _evaluate(scene, kept / np.maximum(sizes, 1), rates, alphas)
    if scene.label_noise > 0:
        found["pdp_op_optimal"] = _optimal(problem, scene, alphas, kappa)
    if problem.learner.perturbations:
        seeds = rng.integers(0, 2**62, problem.run.samples).tolist()
        for name in problem.learner.perturbations:
            found[name] = _simulated(scene, alphas, name, seeds)
    losses = {(name, loss): pair[loss] for name, pair in found.items() for loss in LOSSES}
    # The paper's non-private loss without regularisation is that of least squares.
    plain = solve_ridge(scene.X, scene.y, equal[0], 0.0)
    error = np.full(alphas.size, np.mean((scene.y_test - scene.X_test @ plain) ** 2))
    losses["nonprivate", "unreg"] = Losses(error, np.zeros_like(error), np.zeros_like(error))
    return losses


def _kappas(scene: Scene, alphas: Floats, sensitivity: Sensitivity) -> Floats:
    n_features = scene.X.shape[1]
    return np.array([ridge_sensitivity(a, n_features, None, sensitivity) for a in alphas])


def _samples(epsilon: Floats, threshold: float, n_samples: int, rng: np.random.Generator) -> Floats:
    """Draw samples of rows, one per line, as zeros and ones."""
    chances = sampling_probabilities(epsilon, threshold)
    return (rng.random((n_samples, epsilon.size)) < chances).astype(np.float64)


def _optimal(
    problem: RidgeComparisonProblem, scene: Scene, alphas: Floats, kappa: Floats
) -> dict[str, Losses]:
    """Return the losses under the weights that minimise Theorem 3.6's bound, lambda by lambda."""
    learner, pieces = problem.learner, []
    for alpha, bound in zip(alphas, kappa, strict=True):
        mu, sigma = ridge_risk_constants(
            alpha,
            scene.X.shape[1],
            scene.label_noise,
            learner.failure_probability,
            sensitivity=learner.sensitivity,
        )
        weights, _ = weights_for_guarantees(scene.epsilon, mu, sigma)
        rate = np.array([[noise_rate(weights, scene.epsilon, bound)]])
        pieces.append(_evaluate(scene, weights[None], rate, np.array([alpha])))
    return {
        loss: Losses(
            *(
                np.concatenate([getattr(piece[loss], name) for piece in pieces])
                for name in ("mean", "std", "simulation_error")
            )
        )
        for loss in LOSSES
    }


def _simulated(scene: Scene, alphas: Floats, name: str, seeds: list[int]) -> dict[str, Losses]:
    """Return the losses of released models; undefined where no noise keeps the guarantees."""
    values = np.full((len(LOSSES), alphas.size, len(seeds)), np.nan)
    for k, alpha in enumerate(alphas.tolist()):
        learner = _learner(name, alpha, scene.X.shape[1])
        for j, seed in enumerate(seeds):
            try:
                learner.fit(scene.X, scene.y, epsilon=scene.epsilon, random_state=Simulation(seed))
            except ParameterError:  # the Jacobian's share exceeds what the smallest row sold
                break
            error = np.mean((scene.y_test - scene.X_test @ learner.coef_) ** 2)
            values[:, k, j] = error, error + alpha * np.sum(learner.coef_**2)
    return {
        loss: Losses(of.mean(axis=1), of.std(axis=1), of.std(axis=1) / np.sqrt(len(seeds)))
        for loss, of in zip(LOSSES, values, strict=True)
    }


def _learner(name: str, alpha: float, d: int) -> PrivateHuberRegressor | PersonalizedRidge:
    """Return a learner of ridge regression on the unit scale.

    Half of its squares is the Huber loss, where no residual of a ridge solution reaches the
    threshold; "huber" cuts at the largest label instead, for less noise.
    """
    if name == "statistics":
        return PersonalizedRidge(alpha, perturbation="statistics", fit_intercept=False)
    most = 1.0 if name == "huber" else 1.0 + np.sqrt(d) * ridge_norm_bound(alpha, d)
    return PrivateHuberRegressor(alpha, threshold=float(most), data_norm=float(np.sqrt(d)))


def _solutions(scene: Scene, weights: Floats, alphas: Floats) -> Floats:
    """Return the ridge solutions, of shape (samples, lambdas, features), from one factorisation."""
    d = scene.X.shape[1]
    products = (scene.X[:, :, None] * scene.X[:, None, :]).reshape(-1, d * d)
    values, vectors = np.linalg.eigh((weights @ products).reshape(-1, d, d))
    moments = np.einsum("sjk,sj->sk", vectors, weights @ (scene.X * scene.y[:, None]))
    scaled = moments[:, None, :] / (np.maximum(values, 0.0)[:, None, :] + alphas[:, None])
    return np.asarray(np.einsum("sjk,sak->saj", vectors, scaled))


def _evaluate(scene: Scene, weights: Floats, rates: Floats, alphas: Floats) -> dict[str, Losses]:
    """Return both losses of models with these weights and noise, one line per sample.

    Parameters
    ----------
    scene : Scene
    weights : ndarray of shape (n_samples, n_rows)
    rates : ndarray of shape (n_samples, n_lambdas)
    alphas : ndarray of shape (n_lambdas,)
    """
    models, n_test = _solutions(scene, weights, alphas), scene.y_test.size
    d = models.shape[2]
    residuals = scene.y_test - models @ scene.X_test.T
    slopes = residuals @ scene.X_test / -n_test
    hessian = scene.X_test.T @ scene.X_test / n_test
    losses = {}
    for loss, penalty in zip(LOSSES, (np.zeros_like(alphas), alphas), strict=True):
        trace = np.trace(hessian) + penalty * d
        square = np.sum(hessian**2) + 2.0 * penalty * np.trace(hessian) + penalty**2 * d
        slope = np.sum((slopes + penalty[:, None] * models) ** 2, axis=2)
        added, variance = noise_moments(rates, trace, square, slope, d)
        centre = np.mean(residuals**2, axis=2) + penalty * np.sum(models**2, axis=2)
        mean = centre + added
        losses[loss] = Losses(
            mean=mean.mean(axis=0),
            # The law of total variance: over the noise, and over the samples.
            std=np.sqrt(variance.mean(axis=0) + mean.var(axis=0)),
            simulation_error=mean.std(axis=0) / np.sqrt(len(mean)),
        )
    return losses


# ---------------------------------------------------------------- simulation


def _confirm(problem: RidgeComparisonProblem) -> pd.DataFrame:
    """Simulate some cells of the first draw, and compare with the closed forms."""
    sweep, rows = problem.sweeps[0], []
    data = _load(problem, 0)
    rng = _generator(problem, 0, _CONFIRMATION)
    for scene, alphas, values in _scenes(problem, sweep, data, 0):
        exact = method_losses(problem, scene, alphas, _generator(problem, 0, _SAMPLES))
        for k in sorted({0, alphas.size // 2, alphas.size - 1}):
            for method in CONFIRMED:
                simulated = _simulate(
                    problem, scene, float(alphas[k]), method, rng, CONFIRMING_DRAWS
                )
                for loss in LOSSES:
                    claim, draws = exact[method, loss], simulated[loss]
                    error = np.hypot(draws.std() / np.sqrt(draws.size), claim.simulation_error[k])
                    rows.append(
                        {
                            "parameter": sweep.parameter,
                            "value": values[k],
                            "method": method,
                            "loss": loss,
                            "exact": float(claim.mean[k]),
                            "simulated": float(draws.mean()),
                            "z": float((draws.mean() - claim.mean[k]) / error),
                        }
                    )
    return pd.DataFrame(rows)


def _simulate(
    problem: RidgeComparisonProblem,
    scene: Scene,
    alpha: float,
    method: str,
    rng: np.random.Generator,
    number: int,
) -> dict[str, Floats]:
    """Return the losses of so many released models, noise and samples drawn."""
    epsilon, n_rows = scene.epsilon, scene.epsilon.size
    kappa = ridge_sensitivity(alpha, scene.X.shape[1], None, problem.learner.sensitivity)
    if method == "jorgensen_max":
        number = min(number, max(50, LARGEST_SAMPLE // n_rows))
        kept = _samples(epsilon, float(epsilon.max()), number, rng)
        kept = kept[kept.sum(axis=1) > 0]
        weights = kept / kept.sum(axis=1, keepdims=True)
        rates = kept.sum(axis=1) * epsilon.max() / kappa
    else:
        share, total = epsilon / epsilon.sum(), epsilon.sum()
        if method == "nonpersonalized":
            share, total = np.full(n_rows, 1.0 / n_rows), n_rows * epsilon.min()
        weights, rates = share[None], np.full(number, total / kappa)
    models = _solutions(scene, weights, np.array([alpha]))[:, 0]
    noise = [gamma_sphere_noise(models.shape[1], rng) / rate for rate in rates]
    released = models + np.array(noise)
    error = np.mean((scene.y_test - released @ scene.X_test.T) ** 2, axis=1)
    return {"unreg": error, "reg": error + alpha * np.sum(released**2, axis=1)}


# ---------------------------------------------------------------- over the draws


def _summarise(draws: pd.DataFrame) -> pd.DataFrame:
    """Return medians and quantiles over the draws of every cell."""
    groups = draws.groupby(_CELL, sort=False)[["mean", "std"]]
    middle, low, high = (groups.quantile(share) for share in (0.5, 0.05, 0.95))
    errors = draws.groupby(_CELL, sort=False)[["simulation_error"]].median()
    parts = [middle, low.add_suffix("_low"), high.add_suffix("_high"), errors]
    return pd.concat(parts, axis=1).reset_index()


def _published(problem: RidgeComparisonProblem) -> pd.DataFrame:
    """Read the published tables, one row per cell."""
    folder = Path(problem.source.path).parent if problem.source else Path()
    tables = [pd.DataFrame(columns=[*_CELL, "statistic", "file", "published"])]
    for number, sweep in enumerate(problem.sweeps):
        for position, entry in enumerate(sweep.published):
            key = f"sweeps.{number}.published.{position}.file"
            long = _long(_read_table(folder / entry.file, key), sweep, f"{key}: {entry.file}")
            tables.append(
                long.assign(
                    sweep=number,
                    parameter=sweep.parameter,
                    statistic=entry.statistic,
                    file=entry.file,
                )
            )
    return pd.concat([table for table in tables if len(table)] or tables, ignore_index=True)


def _read_table(path: Path, key: str) -> pd.DataFrame:
    try:
        return pd.read_csv(io.BytesIO(read_limited(path, MOST_BYTES)))
    except (OSError, ValueError) as error:
        raise ProblemFileError(
            f"{key}: cannot read {path}: {error}; give the path of a CSV file relative to the"
            " problem file"
        ) from error


def _long(frame: pd.DataFrame, sweep: SweepTable, where: str) -> pd.DataFrame:
    """Return a published table with one row per cell; refuse one that does not fit its sweep."""
    if sweep.parameter not in frame:
        raise ProblemFileError(
            f"{where} has no column {sweep.parameter!r}; its columns are"
            f" {', '.join(map(str, frame.columns))}"
        )
    known = [f"{loss}_{method}" for loss in LOSSES for method in METHODS]
    unknown = [name for name in frame if name not in known and name != sweep.parameter]
    if unknown:
        raise ProblemFileError(
            f"{where} has columns {', '.join(map(str, unknown))}; name columns unreg_ or reg_ and"
            f" one of {', '.join(METHODS)}"
        )
    for name in frame:
        if not pd.api.types.is_numeric_dtype(frame[name]) or frame[name].isna().any():
            raise ProblemFileError(
                f"{where} has cells that are no numbers in column {name!r}; leave out the rows or"
                " the columns that are not published"
            )
    strange = sorted(set(frame[sweep.parameter]) - set(sweep.values))
    if strange:
        raise ProblemFileError(
            f"{where} has rows for {sweep.parameter} = {', '.join(f'{v:g}' for v in strange)},"
            " which the sweep does not try; add them to its values or drop the rows"
        )
    long = frame.melt(id_vars=sweep.parameter, value_name="published")
    long[["loss", "method"]] = long.variable.str.split("_", n=1, expand=True)
    return long.rename(columns={sweep.parameter: "value"}).drop(columns="variable")


def _compare(published: pd.DataFrame, cells: pd.DataFrame, draws: pd.DataFrame) -> pd.DataFrame:
    """Put our figures beside the published ones."""
    if published.empty:
        return published
    merged = published.merge(cells, on=_CELL, how="left")
    merged["ours"] = np.where(merged.statistic == "mean", merged["mean"], merged["std"])
    merged["ratio"] = merged.ours / merged.published
    negligible = (merged.ours < NEGLIGIBLE) & (merged.published < NEGLIGIBLE)
    merged["close"] = merged.ratio.between(1 / CLOSE, CLOSE) | negligible
    below = draws.merge(merged[[*_CELL, "statistic", "published"]], on=_CELL)
    figure = np.where(below.statistic == "mean", below["mean"], below["std"])
    below["percentile"] = figure < below.published
    shares = below.groupby([*_CELL, "statistic", "published"], sort=False).percentile.mean()
    merged = merged.merge(shares.reset_index(), on=[*_CELL, "statistic", "published"], how="left")
    columns = ["statistic", "published", "ours", "ratio", "percentile", "close"]
    return merged[["file", *_CELL, *columns]]


def _orderings(published: pd.DataFrame, cells: pd.DataFrame, draws: pd.DataFrame) -> pd.DataFrame:
    """Say where PDP-OP < Jorgensen max < Jorgensen mean << non-personalised holds."""
    keys = ["sweep", "parameter", "value", "loss"]
    medians = cells.pivot_table(index=keys, columns="method", values="mean", sort=False)
    every = draws.pivot_table(index=[*keys, "draw"], columns="method", values="mean", sort=False)
    shares = _in_order(every).groupby(level=keys, sort=False).mean()
    ours, plain = _in_order(medians), _in_order(medians, 1.0)
    frame = pd.DataFrame({"ours": ours, "in_order": plain, "share_of_draws": shares}).reset_index()
    means = published[published.statistic == "mean"]
    if means.empty:
        return frame.assign(published=None)
    table = means.pivot_table(index=keys, columns="method", values="published", sort=False)
    if not set(ORDER) <= set(table.columns):
        return frame.assign(published=None)
    printed = _in_order(table.dropna(subset=list(ORDER))).rename("published").reset_index()
    merged = frame.merge(printed, on=keys, how="left")
    return merged.assign(published=merged.published.astype(object).where(merged.published.notna()))


def _in_order(table: pd.DataFrame, much: float = MUCH) -> pd.Series:
    first, second, third, last = (table[name] for name in ORDER)
    return (first < second) & (second < third) & (much * third < last)


def _gains(draws: pd.DataFrame) -> pd.DataFrame:
    """Compare the tight sensitivity and the optimal weights with the paper's choices."""
    keys = ["sweep", "parameter", "value", "loss"]
    table = draws.pivot_table(index=[*keys, "draw"], columns="method", values="mean", sort=False)
    parts = []
    for method in ("pdp_op_tight", "pdp_op_optimal"):
        if method in table:
            ratio = table[method] / table.pdp_op
            groups = ratio.groupby(level=keys, sort=False)
            frame = pd.DataFrame(
                {
                    "ratio": groups.median(),
                    "wins": (ratio < 1 - SAME).groupby(level=keys, sort=False).mean(),
                }
            )
            parts.append(frame.reset_index().assign(method=method))
    return pd.concat(parts, ignore_index=True)


def _bound(problem: RidgeComparisonProblem) -> pd.DataFrame:
    """Return the terms of Theorem 3.6 over lambda, for the levels of the first draw."""
    data, learner = _load(problem, 0), problem.learner
    n_features = data.X_train.shape[1]
    epsilon = problem.privacy.draw(data.y_train.size, _generator(problem, 0, _LEVELS))
    weights, rows = epsilon / epsilon.sum(), []
    for alpha in LAMBDAS:
        kappa = ridge_sensitivity(alpha, n_features, None, learner.sensitivity)
        terms = ridge_error_bound(
            weights,
            noise_rate(weights, epsilon, kappa),
            float(alpha),
            n_features=n_features,
            coef_norm=learner.coef_norm,
            label_noise=learner.label_noise,
            failure_probability=learner.failure_probability,
            smallest_eigenvalue=learner.smallest_eigenvalue,
        )
        rows.append(
            {
                "regularization": float(alpha),
                "bias": terms.bias,
                "privacy": terms.privacy,
                "labels": terms.labels,
                "total": terms.total,
            }
        )
    return pd.DataFrame(rows)
