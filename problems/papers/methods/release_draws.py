"""A comparison of releases of predictions of a kernel model (K).

For every size, data sets are drawn and a model is fitted to each data set. All releases use the
same models and answer the test rows in order. The loss relative to the model without noise is
compared with the bound of the theory. The noise of a release does not depend on the other releases.
Every row has the same guarantee (epsilon, delta), with delta = 0 for the linear model.
"""

import math
import zlib
from dataclasses import replace
from functools import cache, partial
from itertools import product

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket.errors import ConvexMarketError, ParameterError, UpdatesExhaustedError
from convexmarket.privacy import Simulation
from convexmarket.release import (
    ErrorBounds,
    FunctionRelease,
    InteractiveRelease,
    PublicRelease,
    TestSetRelease,
)
from convexmarket.release.non_interactive import net_size
from convexmarket.report import compare
from convexmarket.report.figures import lines
from problems.papers.methods.verdicts import mean_interval, power_fit

DELTA, FAILURE = 1e-6, 0.05
#: Largest bound on the error and largest loss of accuracy of a useful release.
USEFUL_ERROR, USEFUL_LOSS = 0.3, 0.02
LARGEST_N, MOST_POINTS, MOST_BYTES, MOST_UPDATES = 10**12, 5000, 8e9, 10**12
KEY = ["size", "epsilon", "release"]


class Study:
    """Data, a kernel model, and the releases of its predictions, as defined by a subclass.

    ``training`` maps a size and a generator to rows and labels, ``test`` contains rows and labels,
    and ``points`` maps a generator to at most ``most_points`` public points. ``releases`` maps a
    label to a kind and its options. Each release is drawn ``draws`` times for each of ``fits``
    models of every size in ``sizes``, at every epsilon in ``epsilons``.
    """

    def model(self):
        """Return the unfitted kernel model."""
        return cm.KernelERM(
            loss="logistic", kernel="rbf", regularization=0.01, gamma=self.gamma, data_norm=1.0
        )


def stream(*key):
    """Return the seed of training rows (0), test rows (1), public points (2) or noise (3)."""
    return np.random.SeedSequence(0, spawn_key=key)


def linear():
    """Return the unfitted linear model, which uses objective perturbation."""
    return cm.PrivateLogisticRegression(0.01, data_norm=1.0, accounting="sharp")


def run(study):
    """Fit every model, draw all of its releases, and average over the draws."""
    models, draws, stated, erm = [], [], [], None
    for size, fit in product(study.sizes, range(study.fits)):
        X, y = study.training(size, np.random.default_rng(stream(0, size, fit)))
        erm = study.model().fit(X, y)
        truth = erm.decision_function(study.test[0])
        plain = linear().fit(X, y, epsilon=math.inf).decision_function(study.test[0])
        row = {"size": size, "fit": fit, "accuracy": accuracy(study, truth)}
        row |= {"linear_accuracy": accuracy(study, plain), "sensitivity": erm.sensitivity_}
        row |= {"norm_bound": erm.norm_bound_, "norm": erm.norm_}
        models.append(row | {"typical": np.median(np.abs(truth))})
        for (place, epsilon), label in product(enumerate(study.epsilons), study.releases):
            key = {"size": size, "epsilon": epsilon, "release": label}
            written = {"scale": math.nan, "bound": math.nan, "refused": ""}
            for draw in range(study.draws):
                seed = stream(3, size, fit, place, zlib.crc32(label.encode()), draw)
                try:
                    result = release(study, erm, (X, y, fit), label, epsilon, seed)
                except ConvexMarketError as error:
                    written["refused"] = str(error)
                    break
                written |= {"scale": result["scale"], "bound": result["bound"]}
                draws.append(key | {"fit": fit, "draw": draw} | measured(study, truth, result))
            stated.append(key | written)
    models, draws, stated = pd.DataFrame(models), pd.DataFrame(draws), pd.DataFrame(stated)
    points = average(models, draws, stated)
    frames = {"models": models, "draws": draws, "points": points}
    return frames | {"useful": useful(study, erm, points)}


def accuracy(study, predictions):
    """Return the share of test rows whose label is the sign of the prediction."""
    return np.mean((predictions > 0) == (study.test[1] > 0))


def measured(study, truth, result):
    """Measure the accuracy of the answers and their distance from predictions without noise."""
    n_answers = result.get("answered", len(truth))
    distance = np.abs(result["predictions"] - truth)
    if result.get("other_model"):
        distance = np.full(len(truth), math.nan)
    row = {"accuracy": accuracy(study, result["predictions"]), "error": distance.mean()}
    row |= {"worst": distance[:n_answers].max(), "updates": result.get("updates", math.nan)}
    return row | {"answered": n_answers}


def release(study, erm, data, label, epsilon, seed):
    """Draw a release once, and query the test rows."""
    (kind, options), (X, y, fit) = study.releases[label], data
    X_test, source, sold = study.test[0], Simulation(seed), (epsilon, DELTA)
    terms = (erm.norm_bound_, erm.feature_bound_, FAILURE, options.get("accounting", "tight"))
    bounds = ErrorBounds(float(erm.row_sensitivities_.max()), *sold, *terms)
    if kind == "interactive":
        return interactive(study, erm, epsilon, seed, **options)
    if kind == "semi-interactive":
        points = study.points(np.random.default_rng(stream(2, len(y), fit)))
        result = TestSetRelease(erm, points, *sold, **options, random_state=source)
        worst = bounds.semi_interactive(len(points), options.get("noise")).total
    elif kind == "non-interactive":
        result = PublicRelease(
            erm, *sold, failure_probability=FAILURE, random_state=source, **options
        )
        worst = result.error_bound
    elif kind == "function":
        result = FunctionRelease(erm, *sold, random_state=source)
        worst = bounds.function(len(X_test))
    else:
        model = linear().fit(X, y, epsilon=epsilon, random_state=source)
        answers = {"predictions": model.decision_function(X_test), "other_model": True}
        return answers | {"scale": math.nan, "bound": math.nan}
    return {"predictions": result.predict(X_test), "scale": result.scale, "bound": worst}


def interactive(study, erm, epsilon, seed, max_updates, threshold=None, accounting="tight"):
    """Query the test rows in order. The public model answers the rows after the last update.

    The threshold is given in units of the noise scale, which is computed before the draw.
    """
    X_test = study.test[0]
    terms = {"max_queries": len(X_test), "max_updates": max_updates, "accounting": accounting}
    terms |= {"failure_probability": FAILURE}
    if threshold is not None:
        planned = InteractiveRelease(erm, epsilon, DELTA, **terms, random_state=Simulation(seed))
        terms["threshold"] = threshold * planned.scale
    made = InteractiveRelease(erm, epsilon, DELTA, **terms, random_state=Simulation(seed))
    try:
        answers = np.asarray(made.predict(X_test))
    except UpdatesExhaustedError as error:
        answers = np.asarray(error.answers)
    predictions = made.predictor.predict(X_test)
    predictions[: len(answers)] = answers
    result = {"predictions": predictions, "scale": made.scale, "bound": made.error_bound}
    return result | {"updates": made.spent.updates, "answered": len(answers)}


def average(models, draws, stated):
    """Average over fits and draws, with NaN for a release that is refused in any fit."""
    without, table = models.groupby("size").accuracy.mean(), []
    groups = dict(list(draws.groupby(KEY)))
    for key, written in stated.groupby(KEY, sort=False):
        refused = next((text for text in written.refused if text), "")
        rows = draws.iloc[:0] if refused else groups[key]
        row = dict(zip(KEY, key, strict=True)) | mean_interval(rows.accuracy, "accuracy")
        row |= rows[["error", "worst", "updates", "answered"]].mean().to_dict()
        row |= {name: math.nan if refused else written[name].mean() for name in ("scale", "bound")}
        table.append(row | {"lost": without[key[0]] - row["accuracy"], "refused": refused})
    return pd.DataFrame(table)


# ------------------------------------------------------------- rows needed for a useful release


def useful(study, erm, points):
    """Compute the number of rows that a useful release needs, in theory and as measured.

    ``n_bound`` is the smallest size for which the bound of the theory is at most USEFUL_ERROR, with
    the best numbers of updates, points and rounds. ``least`` is the bound at 10^12 rows.
    ``n_measured`` is the size from which the loss of accuracy is at most USEFUL_LOSS.
    """
    table = []
    for epsilon, (label, (kind, options)) in product(study.epsilons, study.releases.items()):
        rows = points[(points.epsilon == epsilon) & (points.release == label)]
        small = (rows.lost <= USEFUL_LOSS).to_numpy()
        since = np.logical_and.accumulate(small[::-1])[::-1]
        row = {"epsilon": epsilon, "release": label, "n_bound": math.nan, "least": math.nan}
        row["n_measured"] = float(rows["size"].to_numpy()[since].min()) if since.any() else math.nan
        try:
            promised = best_bound(study, Theory(erm), kind, epsilon, **options)
            row["least"] = promised(LARGEST_N)
            if row["least"] <= USEFUL_ERROR:
                enough = smallest(partial(_suffices, promised), LARGEST_N)
                row["n_bound"] = float(enough)
        except ParameterError:  # no noise gives this epsilon
            pass
        table.append(row)
    return pd.DataFrame(table)


def _suffices(promised, n):
    return promised(n) <= USEFUL_ERROR


class Theory:
    """Public bounds on a model, computed only from the problem and the number of rows."""

    def __init__(self, erm):
        self.kernel, self.n_features, self.tol = erm.kernel_, erm.n_features_in_, erm.tol
        reach, weight = self.kernel.feature_bound, erm.regularization
        self.change = 2.0 * reach**2 / weight  # the logistic loss is 1-Lipschitz, and log 2 at 0
        self.limit = min(reach / weight, np.sqrt(np.log(2.0) / weight))

    def sensitivity(self, n):
        """Bound the change of a prediction by one row, including the errors of the fits."""
        return self.change / n * (1.0 + 2.0 * self.tol)

    def norm(self, n):
        """Bound the norm of a fitted model."""
        return self.limit + self.tol * self.change / n / self.kernel.feature_bound


def best_bound(study, theory, kind, epsilon, **options):
    """Return the smallest error bound of the theory as a function of the number of rows.

    Every number of updates, points or rounds is calibrated once. A missing bound is NaN.
    """
    reach, n_answers = theory.kernel.feature_bound, len(study.test[1])
    terms = (reach, FAILURE, options.get("accounting", "tight"))
    bounds = ErrorBounds(1.0, epsilon, DELTA, 1.0, *terms)
    if kind == "function":
        return lambda n: bounds.function(n_answers) * theory.sensitivity(n)
    if kind == "interactive" and "threshold" not in options:
        of = cache(partial(bounds.interactive, n_answers))

        def bound(n):
            change, height = theory.sensitivity(n), 1.25 * reach * theory.norm(n)
            last = smallest(lambda k: change * of(k) > height * math.sqrt(2 / k), MOST_UPDATES)
            return max(change * of(last), height * math.sqrt(2.0 / last))

        return bound
    if kind == "semi-interactive":
        return _semi_interactive(study, theory, bounds, options.get("noise"))
    if kind == "non-interactive":
        return _non_interactive(theory, bounds)
    return lambda _: math.nan


def _semi_interactive(study, theory, bounds, noise):
    """Return an error bound as a function of n, from a linear and a square-root bound."""
    laplace = noise == "laplace"
    counts = tried(study.most_points) if laplace else [study.most_points]

    def of(change):
        scaled = replace(bounds, sensitivity=change)
        result = [scaled.semi_interactive(int(count), noise) for count in counts]
        return np.array([(each.fit, each.generalization) for each in result]).T

    steep, apart = of(1e-60)
    steep, slow = steep / 1e-60, of(1e60)[0] / 1e30 if laplace else math.inf

    def bound(n):
        change, norm = theory.sensitivity(n), theory.norm(n)
        fit = np.minimum(steep * change, slow * math.sqrt(norm * change))
        return float(np.min(fit + norm * apart))

    return bound


def _non_interactive(theory, bounds):
    """Return an error bound as a function of n, with the best net and rounds within memory."""
    lipschitz = theory.kernel.feature_lipschitz
    widest, nets = USEFUL_ERROR / (2.0 * theory.limit * lipschitz), []
    for radius in np.geomspace(0.05 * widest, widest, 12):
        size = net_size(theory.n_features, 1.0, radius)
        if size <= 1_000_000:
            most = min(1_000_000, int(MOST_BYTES / (8.0 * size)))
            counts = [*(int(count) for count in tried(1_000_000) if count < most), most]
            nets += [(count, size, 2.0 * lipschitz * radius) for count in counts]

    @cache
    def scale(rounds):
        """Compute the noise scale per unit of sensitivity from a bound with only this term."""
        bare = replace(bounds, max_norm=1e-100)
        bound = bare.non_interactive(rounds, 1.0, 1e-200, 1.0)
        return bound / bare.on_net(1.0, rounds, 1.0, 0.0)

    def bound(n):
        change, norm = theory.sensitivity(n), theory.norm(n)
        of = replace(bounds, max_norm=norm).on_net
        errors = (of(change * scale(net[0]), *net[:2], norm * net[2]) for net in nets)
        return min(errors, default=math.nan)

    return bound


def tried(most):
    """Return numbers of points or rounds, one of which attains the best bound to within 0.1 %."""
    return np.unique(np.geomspace(1, most, 200).round().astype(int))


def smallest(enough, largest):
    """Find the smallest sufficient number, with a relative error of 1/1000 above 1,000."""
    low, high = 0, largest
    while high - low > max(1, low // 1000):
        middle = max(low + 1, math.isqrt(max(low, 1) * high))
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


# --------------------------------------------------------------------------------- the report


def claims(study, frames):
    """Check the accounting, the bounds and the rates."""
    points = frames["points"][frames["points"].refused == ""]
    wide = points.pivot_table(index=KEY[:2], columns="release", values="scale")
    for label in [name for name in study.releases if name.endswith(", paper")]:
        tight = label.removesuffix(", paper")
        tight = f"{tight}, Laplace" if f"{tight}, Laplace" in study.releases else tight
        if tight in wide and label in wide:
            ratio = (wide[label] / wide[tight]).dropna()
            text = f"The accounting of K requires at least ten times the noise of “{tight}”"
            source = "K, Theorems 2, 4 and 7 with their constants, and this package's accounting"
            detail = f"ratio of the scales {ratio.min():.3g} to {ratio.max():.3g}"
            yield text, (ratio >= 10).to_numpy(), source, detail
    for kind, source in (
        ("interactive", "K, Theorems 3 and 10"),
        ("semi-interactive", "K, Theorems 5 and 11"),
        ("non-interactive", "K, Theorem 8"),
        ("function", "Hall, Rinaldo and Wasserman"),
    ):
        subset = points[points.release.map(lambda name, kind=kind: study.releases[name][0] == kind)]
        reached = subset.error if kind == "semi-interactive" else subset.worst
        known = np.isfinite(subset.bound) & np.isfinite(reached)
        if known.any():
            share = (reached[known] / subset.bound[known]).max()
            text = f"Errors of the “{kind}” releases are within their bounds"
            detail = f"the largest of {known.sum()} ratios of error to bound is {share:.2g}"
            yield text, bool(share <= 1), source, detail
    subset = points[(points.release == "function") & (points.epsilon == middle(study))]
    fit = power_fit(subset["size"], subset.error)
    text = "The error of the released function decreases like 1/n"
    source = "the sensitivity of a prediction is 2 L R^2/(lambda n)"
    detail = f"exponent {fit.slope:.3f} over {fit.n_points:.0f} sizes"
    yield text, bool(-1.1 <= fit.slope <= -0.9), source, detail


def middle(study):
    """Return the middle epsilon of a study."""
    return study.epsilons[(len(study.epsilons) - 1) // 2]


def finding(study, frames):
    """Compare the two most accurate releases at the largest size."""
    draws = frames["draws"].query("epsilon == @middle(@study)")
    last = draws[draws["size"] == study.sizes[-1]]
    wide = last.pivot_table(index=["fit", "draw"], columns="release", values="accuracy")
    first, second = wide.mean().sort_values(ascending=False).index[:2]
    gap = compare(*wide[[first, second]].dropna().T.to_numpy())
    words = f"the accuracy of “{first}” ({wide[first].mean():.1%})", f"the accuracy of “{second}”"
    place = f"On {study.where} with {study.sizes[-1]:,} rows and epsilon = {middle(study):g}"
    return f"{place}, {gap.sentence(*words)}"


def pages(study, page, frames):
    """Add the figures and the tables."""
    points, epsilon = frames["points"], middle(study)
    without = frames["models"].groupby("size").accuracy.mean().iloc[-1]
    subset = points[(points.epsilon == epsilon) & (points.refused == "")]
    subset = subset[~subset.release.str.endswith("paper")]
    figure = lines(subset, "size", "accuracy", hue="release", log="x", levels={"no noise": without})
    page.add(figure, caption=f"Accuracy at epsilon = {epsilon:g}.", name="accuracy-size")
    figure = lines(subset[np.isfinite(subset.error)], "size", "error", hue="release", log="xy")
    page.add(figure, caption=f"Mean distance from noiseless predictions at epsilon = {epsilon:g}.")
    page.add(frames["useful"], caption="Number of rows for a useful release.", name="useful")
    refused = points[points.refused != ""][[*KEY, "refused"]]
    if len(refused):
        page.add(refused, caption="Refused releases and reasons.", name="refused", appendix=True)
    page.add(
        "K has no experiments, so rows, sizes and constants were chosen for this report. Each "
        "guarantee covers one release, and the privacy losses of all compared releases add up. The "
        "intervals include the variation over fits and draws, but not over test rows. After the "
        "last update of an interactive release, its public model answers the remaining rows, and "
        "the bound does not cover these answers. If the threshold is below the threshold of the "
        "theory, the number of updates can be insufficient."
    )
    for name in ("models", "points", "draws"):
        page.add(frames[name], caption=name.capitalize(), name=name, appendix=True)
