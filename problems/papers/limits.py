"""The cost of a small epsilon: limits on guarantees and on weights."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket.report.figures import lines
from convexmarket.studies.files import load_file
from convexmarket.studies.files.market_page import change_at_equal
from problems.papers.methods import Experiment, Together

GAMMA, PROMISE = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1], [0.1, 0.2, 0.5, 1, 2, 5]
CRITERIA = ["error", "expected_payments", "epsilon_max"]
KEYS = ["objective.payments.weight", "constraints.max_epsilon"]
CAP, LIMIT = "cap on weights", "largest guarantee"


def efficient(values):
    """Mark the rows that no other row dominates: as small everywhere and smaller somewhere."""
    no_larger = (values[:, None] <= values).all(axis=2)  # entry i, j: row i <= row j
    smaller = (values[:, None] < values).any(axis=2)
    return ~(no_larger & smaller).any(axis=0)


def distinct(points):
    """Return the efficient points once each: a promise that binds nothing repeats another."""
    return points[points.efficient & ~points[CRITERIA].round(9).duplicated()]


class Promise(Experiment):
    """The cost of a promise of privacy: error, payments and the largest epsilon.

    A, section III, with a bound on every epsilon. Varied: gamma, and the promise, over the same 200
    sellers. The error of a point is its objective without payments. No learner is involved.
    """

    note = (
        "The sellers are one draw from the prior. Efficiency is relative to the computed points; "
        "better points may lie between them."
    )

    def compute(self, quick=False):
        """Solve the market at every gamma and promise, and mark what no other point dominates."""
        prior = cm.Uniform(0.02, 0.10)
        sellers = cm.Sellers(
            prior.sample(200, np.random.default_rng(np.random.SeedSequence(1))), prior
        )
        rows = []
        for gamma, promise in product(GAMMA[::3] if quick else GAMMA, PROMISE):
            objective = 1.0 * cm.Spread() + 10.0 * cm.Noise() + gamma * cm.Payments()
            market = cm.Market(sellers, objective, [cm.Cap(5), cm.MaxEpsilon(promise)])
            bought = cm.allocate(market, gap=1e-9)
            payments = float(sellers.virtual_costs @ bought.epsilon)
            row = dict(zip(KEYS, (gamma, promise), strict=True))
            row |= {"error": bought.objective - gamma * payments, "expected_payments": payments}
            row |= {"epsilon_max": bought.epsilon.max(), "objective": bought.objective}
            row |= {"lower_bound": bought.lower_bound, "gap": bought.gap, "eta": bought.eta}
            rows.append(row | {"n_bought": bought.n_bought})
        points = pd.DataFrame(rows)
        return {"points": points.assign(efficient=efficient(points[CRITERIA].to_numpy()))}

    def claims(self, frames):
        """Check what the design of the mechanism implies for the frontier."""
        points = frames["points"]
        gamma, promise = KEYS
        by_promise = points.sort_values(promise).groupby(gamma).objective
        tighter = by_promise.apply(lambda values: values.diff().dropna().max())
        text = "A looser promise never costs more"
        holds = bool((tighter <= 1e-9 * points.objective.abs().max()).all())
        source = "A, Eq. (11): a larger bound leaves a larger feasible set"
        detail = f"largest rise of the objective: {tighter.max():.2g}"
        yield text, holds, source, detail
        by_gamma = points.sort_values(gamma).groupby(promise).expected_payments
        rise = by_gamma.apply(lambda values: values.diff().dropna().max())
        text = "Payments fall as money weighs more, whatever was promised"
        holds = bool((rise <= 1e-6 * points.expected_payments.max()).all())
        source = "A, section VI (the trade-off of Fig. 2a)"
        detail = f"largest rise of the payments: {rise.max():.2g}"
        yield text, holds, source, detail

    def finding(self, frames):
        points = frames["points"]
        gamma, promise = KEYS
        error = points[points[gamma] == points[gamma].min()].set_index(promise).error
        strict, loose = error.index.min(), error.index.max()
        unlike = len(points[CRITERIA].round(9).drop_duplicates())
        return (
            f"A promise of epsilon = {strict:g} instead of {loose:g} multiplies the error by "
            f"{error[strict] / error[loose]:.3g} at gamma = {points[gamma].min():g}; "
            f"{len(distinct(points))} of the {unlike} distinct points of {len(points)} markets are "
            "efficient."
        )

    def pages(self, page, frames):
        points = frames["points"]
        shown = points.assign(promise=points[KEYS[1]])
        figure = lines(shown, "expected_payments", "error", hue="promise", log="xy")
        page.add(figure, caption="Error over payments, a curve for each promised epsilon.")
        figure = lines(shown, "epsilon_max", "error", hue=KEYS[0], log="xy")
        page.add(figure, caption="Error over the largest epsilon, a curve for each gamma.")
        frontier = distinct(points)[[*KEYS, *CRITERIA, "n_bought", "eta"]]
        page.add(frontier, caption="The distinct efficient points.", name="frontier")
        page.add(points, caption="Every market, with its certificate.", name="points")


class Variants(Experiment):
    """A cap on weights against a limit on guarantees.

    Varied: the cap, or the limit, at one gamma; and gamma without limits.
    """

    def compute(self, quick=False):
        """Run the problem file limits.toml."""
        problem = load_file(Path(__file__).with_name("limits.toml"), ["run.jobs=1"])
        return problem.perform(progress=False).tables

    def change(self, frames):
        """Compute the increase of the objective by a cap, at the largest epsilon of a limit."""
        runs = frames["runs"][frames["runs"].status == "solved"]
        base, other = (runs[runs.market == name] for name in (LIMIT, CAP))
        return change_at_equal(base, other, "epsilon_max", "objective").dropna()

    def claims(self, frames):
        runs, audits = frames["runs"], frames["audits"].dropna(subset=["max_gain"])
        gain = f"The largest gain is {audits.max_gain.max():.1e}."
        honest = audits.set_index("market").incentive_compatible.astype(bool)
        yield "No seller gains from any misreport", honest, "A, Theorem III.3", gain
        free = runs[runs.market == "no limits"].epsilon_max
        within = runs[runs.market == LIMIT]
        holds = bool((within.epsilon_max <= within.value * (1 + 1e-9)).all())
        detail = f"without limits the largest is {free.max():.3g}"
        yield "No guarantee exceeds the limit", holds, "our design", detail

    def finding(self, frames):
        change = self.change(frames)
        return (
            f"At equal largest epsilon a cap on weights changes the objective by "
            f"{change.min():+.1%} to {change.max():+.1%} against a limit on guarantees "
            f"({len(change)} points; the curve of limits is interpolated)."
        )

    def pages(self, page, frames):
        runs = frames["runs"][frames["runs"].status == "solved"]
        figure = lines(runs, "expected_payments", "error", hue="market", log="x")
        page.add(figure, caption="Error over expected payments, a point for each swept value.")
        figure = lines(runs, "epsilon_max", "objective", hue="market", log="x")
        page.add(figure, caption="Objective over the largest epsilon sold.")
        for name, frame in frames.items():
            if len(frame):
                name = name.replace("_", "-")
                page.add(frame, caption=name.capitalize(), name=name, appendix=True)


class Limits(Together):
    """Both experiments.

    Question: a buyer limits the epsilon of every seller, or caps the weight of every seller. How
    much does each limit cost in error and in payments, and is a cap cheaper?
    """

    title = "The cost of a small epsilon"


EXPERIMENTS = {
    "limits": Limits,
    "limits_promise": Promise,
    "limits_variants": Variants,
}
