"""The cost of a small epsilon under limits on guarantees and on weights."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

import convexmarket as cm
from convexmarket.report import compare
from convexmarket.report.figures import lines
from convexmarket.studies.files import load_file
from problems.papers.methods import Experiment, Together

GAMMA, PROMISE = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1], [0.1, 0.2, 0.5, 1, 2, 5]
CRITERIA = ["error", "expected_payments", "epsilon_max"]
KEYS = ["objective.payments.weight", "constraints.max_epsilon"]
CAP, LIMIT = "cap on weights", "largest guarantee"
LARGER = "A, Eq. (11): a larger bound gives a larger feasible set"
FALLING = ("expected_payments", KEYS[0], 1e-6, "A, section VI (the trade-off of Fig. 2a)")


def efficient(values):
    """Mark the Pareto-efficient rows, where smaller entries are better."""
    no_larger = (values[:, None] <= values).all(axis=2)  # entry i, j: row i <= row j
    smaller = (values[:, None] < values).any(axis=2)
    return ~(no_larger & smaller).any(axis=0)


def distinct(points):
    """Return the distinct efficient points. All non-binding promises give the same point."""
    return points[points.efficient & ~points[CRITERIA].round(9).duplicated()]


def solve(seed, gamma, promise):
    """Solve the market of one draw of 200 sellers."""
    prior, rng = cm.Uniform(0.02, 0.10), np.random.default_rng(np.random.SeedSequence(seed))
    sellers = cm.Sellers(prior.sample(200, rng), prior)
    objective = 1.0 * cm.Spread() + 10.0 * cm.Noise() + gamma * cm.Payments()
    bought = cm.allocate(
        cm.Market(sellers, objective, [cm.Cap(5), cm.MaxEpsilon(promise)]), gap=1e-9
    )
    payments = float(sellers.virtual_costs @ bought.epsilon)
    row = {"seed": seed} | dict(zip(KEYS, (gamma, promise), strict=True))
    row |= {"error": bought.objective - gamma * payments, "expected_payments": payments}
    row |= {name: getattr(bought, name) for name in ("objective", "lower_bound", "gap", "eta")}
    return row | {"epsilon_max": bought.epsilon.max(), "n_bought": bought.n_bought}


class Promise(Experiment):
    """Error, payments and the largest epsilon as functions of a promised epsilon.

    Source: A, section III, with an upper bound on every epsilon. The error is the objective without
    payments, and no model is trained. All markets of the grid have the same 200 sellers.
    """

    note = (
        "All points use the same draw of sellers. A point is efficient if no computed point "
        "reduces the error, the payments or the largest epsilon without increasing another of "
        "these quantities. Points between the computed points were not tested."
    )

    def compute(self, quick=False):
        """Solve all markets for one draw, and the two extreme promises for more draws."""
        grid = product([1], GAMMA[::3] if quick else GAMMA, PROMISE)
        points = pd.DataFrame([solve(*each) for each in grid]).drop(columns="seed")
        ends = product(range(1, 3 if quick else 21), GAMMA[:1], PROMISE[:: len(PROMISE) - 1])
        draws = pd.DataFrame([solve(*each) for each in ends])[["seed", *KEYS, "error"]]
        points = points.assign(efficient=efficient(points[CRITERIA].to_numpy()))
        return {"points": points, "draws": draws}

    def claims(self, frames):
        """Check that the objective and the payments are monotone along the grid."""
        for text, measure, along, slack, source in (
            ("The objective never increases with the promise", "objective", KEYS[1], 1e-9, LARGER),
            ("For every promise, payments decrease with gamma", *FALLING),
        ):
            points = frames["points"].sort_values(along)
            other = KEYS[0] if along == KEYS[1] else KEYS[1]
            rise = points.groupby(other)[measure].apply(lambda values: values.diff().max())
            holds = bool((rise <= slack * points[measure].abs().max()).all())
            yield text, holds, source, f"largest increase of the {measure}: {rise.max():.2g}"

    def finding(self, frames):
        points, (gamma, promise) = frames["points"], KEYS
        error = np.log(frames["draws"].pivot(index="seed", columns=promise, values="error"))
        (strict, loose), gap = error.columns, compare(*error.to_numpy().T)
        unlike = len(points[CRITERIA].round(9).drop_duplicates())
        ends = f"95 % interval {np.exp(gap.low):.3g} to {np.exp(gap.high):.3g}, n = {gap.n_pairs}"
        return (
            f"At gamma = {points[gamma].min():g}, a largest epsilon of {strict:g} instead of "
            f"{loose:g} multiplies the error by {np.exp(gap.estimate):.3g} ({ends}). The "
            f"{len(points)} markets have {unlike} distinct points, of which "
            f"{len(distinct(points))} are efficient."
        )

    def pages(self, page, frames):
        points, promise = frames["points"], KEYS[1]
        figure = lines(points, "expected_payments", "error", hue=promise, log="xy")
        page.add(figure, caption="Error and payments, with one curve for each promised epsilon.")
        figure = lines(points, "epsilon_max", "error", hue=KEYS[0], log="xy")
        page.add(figure, caption="Error and largest epsilon, with one curve for each gamma.")
        frontier = distinct(points)[[*KEYS, *CRITERIA, "n_bought", "eta"]]
        page.add(frontier, caption="The distinct efficient points.", name="frontier")
        page.add(points, caption="Results and certificates of all markets.", name="points")
        page.add(frames["draws"], caption="Errors of every draw.", name="draws", appendix=True)


class Variants(Experiment):
    """A comparison of a cap on weights with a limit on guarantees at one gamma."""

    def compute(self, quick=False):
        """Run the problem file limits.toml."""
        problem = load_file(Path(__file__).with_name("limits.toml"), ["run.jobs=1"])
        return problem.perform(progress=False).tables

    def change(self, frames):
        """Compute the relative change of the objective from a limit to a cap at equal epsilon."""
        runs = frames["runs"][frames["runs"].status == "solved"].sort_values("epsilon_max")
        base, other = (runs[runs.market == name] for name in (LIMIT, CAP))
        base = base.drop_duplicates("epsilon_max")
        curve = PchipInterpolator(np.log(base.epsilon_max), base.objective, extrapolate=False)
        return (other.objective / curve(np.log(other.epsilon_max)) - 1).dropna()

    def claims(self, frames):
        runs, audits = frames["runs"], frames["audits"].dropna(subset=["max_gain"])
        gain = f"The largest gain is {audits.max_gain.max():.1e}."
        honest = audits.set_index("market").incentive_compatible.astype(bool)
        yield "No seller gains from a misreport", honest, "A, Theorem III.3", gain
        free, within = (runs[runs.market == name] for name in ("no limits", LIMIT))
        holds = bool((within.epsilon_max <= within.value * (1 + 1e-9)).all())
        detail = f"without limits, the largest guarantee is {free.epsilon_max.max():.3g}"
        yield "No guarantee exceeds the limit", holds, "our design", detail

    def finding(self, frames):
        change = self.change(frames)
        return (
            "At an equal largest epsilon, a cap on weights changes the objective by "
            f"{change.min():+.1%} to {change.max():+.1%} relative to a limit on guarantees "
            f"({len(change)} points; the objectives with a limit are interpolated)."
        )

    def pages(self, page, frames):
        runs = frames["runs"][frames["runs"].status == "solved"]
        figure = lines(runs, "expected_payments", "error", hue="market", log="x")
        page.add(figure, caption="Error and expected payments for each gamma and limit.")
        figure = lines(runs, "epsilon_max", "objective", hue="market", log="x")
        page.add(figure, caption="Objective and largest epsilon for each gamma and limit.")
        for name, frame in frames.items():
            if len(frame):
                name = name.replace("_", "-")
                page.add(frame, caption=name.capitalize(), name=name, appendix=True)


class Limits(Together):
    """The experiments on limits on guarantees and on weights.

    Question: a buyer limits the epsilon of every seller, or caps the weight of every seller. How
    much does each limit increase the error and the payments, and which limit is less expensive?
    """

    title = "The cost of a small epsilon"


EXPERIMENTS = {
    "limits": Limits,
    "limits_promise": Promise,
    "limits_variants": Variants,
}
