"""Sweeps of a joint problem over paired draws (A, section X; B, appendix B).

A draw consists of the sellers' ranks in the prior, the ranks of their guarantees, and a noise
vector. Every point of a sweep uses the same draws, so points differ only in the swept value. All
draws use the same Gaussian rows with a linear boundary through the origin.
"""

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket.data.datasets import synthetic
from convexmarket.privacy.random_sources import gamma_sphere_noise
from convexmarket.report.figures import lines
from problems.papers.methods.verdicts import curves, mean_interval

LAMBDA = 0.01
MEASURES = ["objective", "eta", "two_step_eta", "n_bought", "weight_variance"]
MEASURES += ["two_step_weight_variance", "expected_payments", "train_error", "test_error"]
MEASURES += ["noiseless_train_error", "noiseless_test_error", "empirical_loss", "mean_loss"]
MEASURES += ["residual"]
WARNING = (
    "The joint problem uses the data to choose the weights, eta and the model, so neither the "
    "model nor the payments have a privacy guarantee. Averages are taken over sensitivities, "
    "given guarantees and noise. All draws use the same rows, and different rows would change the "
    "numbers."
)


def random(purpose, draw):
    """Create a generator for sensitivities (0), guarantees (1), noise (2) or starts (3)."""
    return np.random.default_rng(np.random.SeedSequence(0, spawn_key=(purpose, draw)))


def sweep(declare, values, draws, m, noise, starts):
    """Solve a joint problem for every value and draw, and average over the draws.

    ``declare`` maps a value, the ranks of sensitivities and the ranks of guarantees to a Market.
    The ranks are arrays of shape (m,). If a value is a pair, the axis shows its first entry. Return
    the DataFrames "draws" and "points", with means and standard errors over the solved draws.
    """
    rows = synthetic(m, 5, 0, 500, 2000)
    places = [(point, draw) for point in range(len(values)) for draw in range(draws)]
    measured = [_solve(declare, values[p], draw, rows, noise, starts) for p, draw in places]
    keys = [{"point": p, "x": float(np.atleast_1d(values[p])[0]), "draw": d} for p, d in places]
    frame = pd.DataFrame([key | row for key, row in zip(keys, measured, strict=True)])
    frame = frame.reindex(columns=["point", "x", "draw", "status", "message", "binding", *MEASURES])
    return {"points": _average(frame), "draws": frame}


def _solve(declare, value, draw, rows, noise, starts):
    """Solve one point for one draw and measure the result, or record the error message."""
    m, n = rows.X_train.shape
    vector = gamma_sphere_noise(n, random(2, draw))
    market = declare(value, random(0, draw).random(m), random(1, draw).random(m))
    data = (market, rows.X_train, rows.y_train)
    plain = cm.JointMarket(*data, regularization=LAMBDA)
    noisy = cm.JointMarket(*data, regularization=LAMBDA, noise="realised", noise_vector=vector)
    joint = noisy if noise == "realised" else plain
    try:
        result = cm.allocate_jointly(joint, starts=starts, random_state=random(3, draw))
    except cm.ConvexMarketError as error:
        return {"status": type(error).__name__, "message": str(error)}
    noiseless = cm.joint.best_model(plain, result.weights, result.eta)
    released = cm.joint.best_model(noisy, result.weights, result.eta)
    losses = joint.losses(released)
    paid = market.sellers.virtual_costs * market.privacy_cost(result.epsilon)
    row = {"status": result.status, "message": "", "binding": ", ".join(result.binding)}
    row |= {"objective": result.objective, "eta": result.eta, "n_bought": result.n_bought}
    row |= {"weight_variance": _variance(result.weights), "residual": result.residual}
    row |= {"expected_payments": paid[result.weights > 0].sum(), "mean_loss": losses.mean()}
    row |= {"empirical_loss": result.weights @ losses}
    for name, model in (("", released), ("noiseless_", noiseless)):
        row[f"{name}train_error"] = np.mean((rows.X_train @ model > 0) != (rows.y_train > 0))
        row[f"{name}test_error"] = np.mean((rows.X_test @ model > 0) != (rows.y_test > 0))
    two_step = cm.allocate(market)  # weights and eta are chosen without the data
    row |= {"two_step_eta": two_step.eta, "two_step_weight_variance": _variance(two_step.weights)}
    return row


def _variance(weights):
    """Return the variance of the weights, or 0 if they differ only by rounding errors."""
    off = np.abs(weights - weights.mean()).max()
    return 0.0 if off <= 1e-12 * weights.mean() else weights.var()


def _average(draws):
    """Average every point over its solved draws."""
    table = []
    for (point, x), rows in draws.groupby(["point", "x"], sort=False):
        solved = rows[rows.message == ""]
        values = solved[MEASURES].astype(float)
        table.append(
            {"point": point, "x": x, "draws": len(rows), "solved": len(solved)}
            | {"eta_decided": int((solved.binding != "").sum())}
            | values.mean().to_dict()
            | values.sem().add_suffix("_se").to_dict()
        )
    return pd.DataFrame(table)


def curve(frames, measure):
    """Return the curve of a measure for each draw that is solved at every point."""
    return curves(frames["draws"], measure, "point")


def pages(page, frames, axis, log="x"):
    """Add the figures and tables of a report on a sweep."""
    long = [
        {axis: x, "measure": name} | mean_interval(rows[name], "mean")
        for name in MEASURES
        for x, rows in frames["draws"].groupby("x", sort=False)
    ]
    long, ends = pd.DataFrame(long), {"low": "mean_low", "high": "mean_high"}
    for caption, names in {
        "Training and test errors, and test errors without noise": [*MEASURES[7:9], MEASURES[10]],
        "Logistic loss with purchased weights and with equal weights": MEASURES[11:13],
        "Total privacy with and without access to the data": MEASURES[1:3],
        "Variance of the weights with and without access to the data": MEASURES[4:6],
    }.items():
        shown = long[long.measure.isin(names)]
        figure = lines(shown, axis, "mean", hue="measure", log=log, ylabel="error", **ends)
        page.add(figure, caption=f"{caption}. The bands are 95% intervals over draws.")
    page.add(frames["points"], caption="Means and standard errors over the draws.", name="points")
    page.add(frames["draws"], caption="Results of every draw.", name="draws", appendix=True)
    page.add(WARNING)
