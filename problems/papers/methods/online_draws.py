"""Policies for sellers who arrive one by one, and the optimum in hindsight (A, Fig. 3).

A draw is a stream of sellers. A shorter stream is the beginning of a longer stream. All policies,
and a buyer who knows all reports in advance, use the same streams. The loss is A, Eq. (11), with
the virtual costs of the prior and mu = sigma = gamma = 1. A policy that buys nothing has an
infinite loss. Such draws are counted and excluded from the averages.
"""

from itertools import product

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket.online import AdaptivePolicy
from convexmarket.report.figures import lines
from problems.papers.methods.verdicts import curves, falls_as_power, mean_interval

BUYER = {"mu": 1.0, "sigma": 1.0, "gamma": 1.0}
SIZES = [100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000]
MEASURES = ["loss", "paid_loss", "ratio", "regret", "eta", "n_bought", "largest_weight", "payments"]
KEY = ["policy", "fraction", "size"]
#: Policies that start from a guess, and the corresponding policies with the true prior.
KNOWING = {"learnt": "replanned", "guess": "expectation"}


def policy(name, size, prior, guess=None):
    """Return a policy for an expected number of sellers.

    "expectation" and "algorithm-3" are the rules of A. "replanned" repeatedly computes a new plan
    for the remaining sellers. "learnt" computes these plans with a prior that it learns from the
    guess and the reports. "guess" uses the guess as prior for all sellers.
    """
    rule = {"rule": "algorithm-3"} if name == "algorithm-3" else {}
    start = cm.OnlinePolicy(guess if name in KNOWING else prior, size, **BUYER, **rule)
    if name in ("replanned", "learnt"):
        return AdaptivePolicy(start, learn=name == "learnt")
    return start


def run(prior, policies, sizes, draws, fractions=(1.0,), guess=None):
    """Run every policy on the same streams of sellers.

    Returns
    -------
    dict of DataFrame
        "draws", and "points" (means, 95% intervals, and the number of draws without a purchase).
    """
    rows = []
    for fraction, size, draw in product(fractions, sizes, range(draws)):
        stream = np.random.default_rng(np.random.SeedSequence(0, spawn_key=(0, draw)))
        came = prior.quantile(stream.random(max(1, round(fraction * size))))
        offline = cm.allocate(cm.Market.standard(cm.Sellers(came, prior), **BUYER)).objective
        losses = {}
        for name in policies:
            outcome = cm.run_online(policy(name, size, prior, guess), came)
            losses[name] = outcome.loss(prior)
            known = losses.get(KNOWING.get(name), np.nan)
            row = {"policy": name, "fraction": fraction, "size": size, "draw": draw}
            row |= {"arrived": came.size, "offline": offline, "loss": losses[name]}
            row |= {"paid_loss": outcome.paid_loss(), "ratio": losses[name] / offline}
            row |= {"regret": losses[name] / known - 1 if np.isfinite(known) else np.nan}
            row |= {"eta": outcome.eta, "n_bought": outcome.n_bought}
            row |= {"largest_weight": outcome.weights.max(), "payments": outcome.payments.sum()}
            rows.append(row)
    frame = pd.DataFrame(rows)
    return {"draws": frame, "points": average(frame)}


def floor(prior):
    """Compute a lower bound on all losses, from noise and payments at the lowest virtual cost."""
    cheapest = float(np.asarray(prior.ironed_virtual_cost(prior.support[0])))
    return 2.0 * np.sqrt(BUYER["sigma"] * BUYER["gamma"] * max(cheapest, 0.0))


def average(draws):
    """Average the measures of every policy, fraction and size over the draws with a purchase."""
    table = []
    for key, rows in draws.groupby(KEY, sort=False):
        bought = rows[np.isfinite(rows.loss)]
        row = dict(zip(KEY, key, strict=True)) | {"arrived": rows.arrived.iloc[0]}
        row |= {"draws": len(rows), "empty": len(rows) - len(bought)}
        row |= mean_interval(rows.offline, "offline") | {"ratio_median": rows.ratio.median()}
        for name in MEASURES:
            row |= mean_interval(bought[name], name)
        table.append(row)
    return pd.DataFrame(table)


def claim(frames, text, source, check, measure, policy, along="size"):
    """Check a claim on a policy at each fraction or size. Describe the first and last result."""
    subset = frames["draws"][frames["draws"].policy == policy]
    at = "fraction" if along == "size" else "size"
    result = {}
    for place, rows in subset.groupby(at):
        if check is falls_as_power:
            bought = rows.groupby("size").loss.transform(lambda losses: np.isfinite(losses).all())
            values = curves(rows[bought], measure, "size")
            result[place] = falls_as_power(rows[bought]["size"].unique(), values, -0.25)
        else:
            result[place] = check(curves(rows, measure, along))
    details = [f"{at} {place:g}: {words}" for place, (_, words) in result.items()]
    detail = "; ".join([details[0], details[-1]]) if len(details) > 1 else result[place][1]
    holds = [part for parts, _ in result.values() for part in parts]
    return text, holds, source, detail


def pages(page, frames, x="size", by="policy"):
    """Add the figures and tables of an online report."""
    points, look = frames["points"], {"hue": by, "xlabel": {"size": "expected sellers"}.get(x, x)}
    figure = lines(points, x, "ratio", log="x", low="ratio_low", high="ratio_high", **look)
    page.add(figure, caption="Loss relative to the optimum in hindsight, with 95% intervals.")
    figure = lines(points, x, "loss", log="xy", low="loss_low", high="loss_high", **look)
    page.add(figure, caption="Loss with 95% intervals.")
    page.add(lines(points, x, "payments", log="x", **look), caption="Payments.")
    page.add(points, caption="Means and 95% intervals.", name="points", appendix=True)
    page.add(
        "No model is trained here, and sellers accept every offer. With few sellers, draws with "
        "almost no purchase have large losses and dominate the mean, so compare medians as well. "
        "The intervals of exponents are computed from the residuals of a fitted line."
    )
    page.add(frames["draws"], caption="Results of every draw.", name="draws", appendix=True)
