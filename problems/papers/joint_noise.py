"""What the noise costs: equal weights, and more and more privacy bought.

Question: every seller has the same weight and eta is given, so that logistic regression with noise
of size 2/eta is left. How do the errors fall as more privacy is bought?

Source: A, section X, and B, appendix B, Figure 5: a_i = 1/m, which a cap of 1 forces, and eta = m
eps for an average guarantee eps. The papers do not give the sizes, Lambda and eta. Here: 200 rows
of 5 features, Lambda = 0.01, average guarantees from 0.01 to 10. Payments and spread decide
nothing.

Varied: eta. Each draw has one noise vector, the same at every eta.
"""

import convexmarket as cm
from problems.papers.methods import begin
from problems.papers.methods.joint_draws import curve, pages, sweep
from problems.papers.methods.verdicts import falls

ETA = [2.0, 6.0, 20.0, 60.0, 200.0, 600.0, 2000.0]
PRIOR = cm.Uniform(0.02, 0.10)


def declare(eta, ranks, _granted):
    """Declare the market of one draw: equal weights at a given eta."""
    sellers = cm.Sellers(PRIOR.quantile(ranks), PRIOR)
    objective = 1.0 * cm.Spread() + 1.0 * cm.Noise() + 1.0 * cm.Payments()
    return cm.Market(sellers, objective, [cm.Cap(1), cm.EtaRange(eta, eta)])


def compute(quick=False):
    """Train at every eta."""
    frames = sweep(declare, ETA, 3 if quick else 200, m=200, noise="realised", starts=1)
    return frames | {"points": frames["points"].assign(eta_fixed=True)}


def claims(frames):
    """Check what the papers say of the curves."""
    for measure, name in (("train_error", "training"), ("test_error", "test")):
        holds, detail = falls(curve(frames, measure))
        text = f"The {name} error falls as eta grows"
        source = "A, section X, and B, appendix B, Figure 5"
        yield text, holds, source, detail


def report(frames):
    """Write the sweep down."""
    points = frames["points"]
    finding = (
        f"The test error falls from {points.test_error.iloc[0]:.1%} at eta = {points.x.iloc[0]:g} "
        f"to {points.test_error.iloc[-1]:.1%} at eta = {points.x.iloc[-1]:g}; without noise it is "
        f"{points.noiseless_test_error.iloc[-1]:.1%}."
    )
    page = begin("What the noise costs", __doc__, finding, claims(frames))
    page.add(
        "Weights and eta are given here and not chosen by looking at the data, so that a model of "
        "this experiment, by itself, keeps the guarantee of objective perturbation for its eta."
    )
    pages(page, frames, "eta")
    return page
