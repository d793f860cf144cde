"""What a promise of privacy costs: error, payments and the largest epsilon.

Question: a buyer weighs payments by gamma, and promises that no seller loses more than some
epsilon. How much error does a promise cost, and how much money?

Source: the mechanism of A, section III, with a bound on every epsilon; the paper has no such
figure.

Varied: gamma, and the promised epsilon, over the same 200 sellers. The error of a point is its
objective without payments: what spread and noise stand for. There is no learner here.
"""

from itertools import product

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket.report.figures import lines
from problems.papers.methods import begin

GAMMA = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1]
PROMISE = [0.1, 0.2, 0.5, 1, 2, 5]
CRITERIA = ["error", "expected_payments", "epsilon_max"]
KEYS = ["objective.payments.weight", "constraints.max_epsilon"]


def compute(quick=False):
    """Solve the market at every gamma and promise, and mark the points that no other dominates."""
    prior = cm.Uniform(0.02, 0.10)
    sellers = cm.Sellers(prior.sample(200, np.random.default_rng(np.random.SeedSequence(1))), prior)
    rows = []
    for gamma, promise in product(GAMMA[::3] if quick else GAMMA, PROMISE):
        objective = 1.0 * cm.Spread() + 10.0 * cm.Noise() + gamma * cm.Payments()
        market = cm.Market(sellers, objective, [cm.Cap(5), cm.MaxEpsilon(promise)])
        found = cm.allocate(market, gap=1e-9)
        payments = float(sellers.virtual_costs @ found.epsilon)
        row = dict(zip(KEYS, (gamma, promise), strict=True))
        row |= {"error": found.objective - gamma * payments, "expected_payments": payments}
        row |= {"epsilon_max": found.epsilon.max(), "objective": found.objective}
        row |= {"lower_bound": found.lower_bound, "gap": found.gap, "eta": found.eta}
        rows.append(row | {"n_bought": found.n_bought})
    points = pd.DataFrame(rows)
    return {"points": points.assign(efficient=efficient(points[CRITERIA].to_numpy()))}


def efficient(values):
    """Mark the rows that no other row dominates: as small everywhere and smaller somewhere."""
    no_larger = (values[:, None] <= values).all(axis=2)  # entry i, j: row i is no larger than j
    smaller = (values[:, None] < values).any(axis=2)
    return ~(no_larger & smaller).any(axis=0)


def claims(frames):
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
    text = "Every allocation is the global optimum up to a relative gap of 1e-6"
    detail = f"largest gap {points.gap.max():.2g}"
    yield text, bool((points.gap <= 1e-6).all()), "certificate of each allocation", detail


def report(frames):
    """Write the frontier down."""
    points = frames["points"]
    best = points.loc[points.error.idxmin()]
    finding = (
        f"Of {len(points)} markets {points.efficient.sum()} are efficient. The smallest error, "
        f"{best.error:.3g}, takes payments of {best.expected_payments:.3g} and a largest epsilon "
        f"of {best.epsilon_max:.3g}."
    )
    page = begin("What a promise of privacy costs", __doc__, finding, claims(frames))
    shown = points.assign(promise=points[KEYS[1]])
    figure = lines(shown, "expected_payments", "error", hue="promise", log="xy")
    page.add(figure, caption="Error over payments, a curve for each promised epsilon.")
    figure = lines(shown, "epsilon_max", "error", hue=KEYS[0], log="xy")
    page.add(figure, caption="Error over the largest epsilon, a curve for each gamma.")
    frontier = points[points.efficient][[*KEYS, *CRITERIA, "n_bought", "eta"]]
    page.add(frontier, caption="The efficient points.", name="frontier")
    page.add(points, caption="Every point, with its certificate.", name="points", appendix=True)
    page.add(
        "The sellers are one draw from the prior. A point is efficient among those that were "
        "computed; between them there may be better ones."
    )
    return page
