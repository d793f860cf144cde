"""Do equal sellers get equal weights? The variance of c, and of the weights.

Question: sensitivities are uniform with the same mean and less and less variance. Does the variance
of the weights vanish with it, in the joint problem and in the mechanism that ignores the rows?

Source: B, appendix B, Figure 4: c uniform on [p, q], gamma = 1. The papers do not give the sizes,
p, q, mu, sigma and Lambda. Here: 100 rows of 5 features, a mean of 0.06, mu = 3, sigma = 100,
Lambda = 0.01; with them the purchase begins with few sellers and ends with many.

Varied: the prior, whose width goes from 0.12 to 0.0002. A seller has the same quantile of each.
"""

import numpy as np

import convexmarket as cm
from problems.papers.methods import begin
from problems.papers.methods.joint_draws import curve, pages, sweep
from problems.papers.methods.verdicts import falls, vanishes

RANGES = [(0.0, 0.12), (0.03, 0.09), (0.05, 0.07), (0.057, 0.063), (0.059, 0.061), (0.0599, 0.0601)]
#: Variances under the prior, by its quantiles at 20,000 levels.
VARIANCE = [
    float(np.var(cm.Uniform(*ends).quantile((np.arange(20_000) + 0.5) / 20_000))) for ends in RANGES
]


def declare(ends, ranks, _granted):
    """Declare the market of one draw."""
    prior = cm.Uniform(*ends)
    objective = 3.0 * cm.Spread() + 100.0 * cm.Noise() + 1.0 * cm.Payments()
    return cm.Market(cm.Sellers(prior.quantile(ranks), prior), objective)


def compute(quick=False):
    """Solve the joint problem under every prior."""
    frames = sweep(declare, RANGES, draws=2 if quick else 24)
    x = frames["points"].point.map(dict(enumerate(VARIANCE)))
    low, high = zip(*RANGES, strict=True)
    points = frames["points"].assign(eta_fixed=False, x=x)
    points = points.assign(**{"prior.low": low, "prior.high": high})
    return {"points": points, "draws": frames["draws"].assign(x=frames["draws"].point.map(x))}


def claims(frames):
    """Check what B says of the variance of the weights."""
    for measure, check, text in (
        ("weight_variance", falls, "The variance of the weights falls as that of c falls"),
        ("weight_variance", vanishes, "The variance of the weights vanishes with that of c"),
        (
            "two_step_weight_variance",
            vanishes,
            "The same, where weights and eta are chosen from prices alone",
        ),
    ):
        holds, detail = check(curve(frames, measure))
        yield text, holds, "B, appendix B, Figure 4", detail


def report(frames):
    """Write the sweep down."""
    last, first = frames["points"].iloc[-1], frames["points"].iloc[0]
    finding = (
        f"Among all but equal sellers the joint problem keeps "
        f"{last.weight_variance / first.weight_variance:.1%} of the variance of its weights; the "
        f"mechanism that ignores the rows keeps "
        f"{last.two_step_weight_variance / first.two_step_weight_variance:.1e} of it."
    )
    page = begin("Do equal sellers get equal weights?", __doc__, finding, claims(frames))
    page.add(
        "In the joint problem the weight of a row falls with its loss as well as with its price "
        "(B, Theorem 3.3). The rows differ in their losses whatever sellers charge, so that equal "
        "sellers do not get equal weights. Where weights are chosen without the rows they do."
    )
    pages(page, frames, "variance_of_c")
    return page
