"""The joint problem as published: the end of the line search is the answer.

Question: the papers draw the noise vector b first, and then choose model, weights and eta with
2b'w/eta in the objective, by a line search over a range of eta. Does the range decide the answer?

Source: A, Algorithm 4, and B, section 4.2, which search eta = m eps over a grid of eps in [0, L].
The papers do not give m, n, mu, sigma, Lambda and gamma. Here: 100 rows of 5 features, c uniform on
[0.02, 0.10], mu = 3, sigma = 100, gamma = 1, Lambda = 0.01; with them the mechanism that does not
look at the data has an eta inside every range that is tried.

Varied: the lower end of the range; its upper end stays at 1000. The best point of the range is
computed; the best point of a grid cannot have a smaller objective.
"""

import convexmarket as cm
from problems.papers.methods import begin
from problems.papers.methods.joint_draws import curve, pages, sweep
from problems.papers.methods.verdicts import stays

LOW, HIGH = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0], 1000.0
PRIOR = cm.Uniform(0.02, 0.10)


def declare(low, ranks, _granted):
    """Declare the market of one draw."""
    sellers = cm.Sellers(PRIOR.quantile(ranks), PRIOR)
    objective = 3.0 * cm.Spread() + 100.0 * cm.Noise() + 1.0 * cm.Payments()
    return cm.Market(sellers, objective, [cm.EtaRange(low, HIGH)])


def compute(quick=False):
    """Solve the joint problem as published over every range."""
    frames = sweep(declare, LOW, draws=2 if quick else 40, noise="realised")
    return frames | {"points": frames["points"].assign(eta_fixed=False)}


def claims(frames):
    """Check whether the range decides, and whether the package refuses the problem without one."""
    holds, detail = stays(curve(frames, "eta"))
    text = "A line search over a range of eta returns the eta to buy, whatever its lower end"
    source = "A, Algorithm 4, and B, section 4.2"
    yield text, holds, source, detail
    decided = frames["points"].eta_decided / frames["points"].solved
    text = "Where the lower end is below 10 it is the answer in every draw"
    holds = bool((decided[frames["points"].x < 10] == 1).all())
    source = "the objective falls like -2||b||^2/(Lambda eta^2) along w = -2b/(Lambda eta)"
    detail = ", ".join(f"{share:.0%}" for share in decided)
    yield text, holds, source, detail


def report(frames):
    """Write the sweep down."""
    points = frames["points"]
    finding = (
        f"The end of the range decided {points.eta_decided.sum()} of {points.solved.sum()} "
        f"answers: the mean eta goes from {points.eta.iloc[0]:.3g} to {points.eta.iloc[-1]:.3g} "
        "with the lower end."
    )
    page = begin("The joint problem as published", __doc__, finding, claims(frames))
    page.add(
        "The objective as published has no minimum over eta: a model that points against the noise "
        "vector gains more from a smaller eta than sigma/eta takes away. The smallest eta of the "
        "range is then the answer, and the model is the noise vector scaled up. Without a range "
        "the "
        'package refuses the problem; with noise="expected" or noise="worst-case" it has an answer.'
    )
    pages(page, frames, "lower_end")
    return page
