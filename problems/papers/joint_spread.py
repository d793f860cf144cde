"""Given guarantees: how much evenness to ask for.

Question: every seller has granted a guarantee and nobody is paid. What does the weight mu of the
spread do to the errors and to the loss?

Source: A, section X, Figure 4, and B, appendix B, Figure 3 (given guarantees: B, Eq. 3). The papers
do not give the numbers of rows and features, the guarantees, mu, sigma and Lambda. Here: 100 rows
of 5 features, guarantees uniform on [0.1, 10], sigma = 1, Lambda = 0.01. The noise counts as its
mean while model, weights and eta are chosen; the model is then trained again with noise.

Varied: mu, over seven orders of magnitude.
"""

import convexmarket as cm
from problems.papers.methods import begin
from problems.papers.methods.joint_draws import curve, pages, sweep
from problems.papers.methods.verdicts import falls_then_rises, rises

MU = [0.0001, 0.1, 1.0, 3.0, 10.0, 100.0, 1000.0]
PRIOR, GUARANTEES = cm.Uniform(0.02, 0.10), cm.Uniform(0.1, 10.0)
SOURCE = "A, section X, Figure 4, and B, appendix B, Figure 3"


def declare(mu, ranks, granted):
    """Declare the market of one draw."""
    given = cm.terms.GivenEpsilon(GUARANTEES.quantile(granted))
    sellers = cm.Sellers(PRIOR.quantile(ranks), PRIOR)
    return cm.Market(sellers, mu * cm.Spread() + 1.0 * cm.Noise(), [given])


def compute(quick=False):
    """Solve the joint problem at every mu."""
    frames = sweep(declare, MU, draws=2 if quick else 20, starts=2)
    points = frames["points"]
    points = points.assign(eta_fixed=False, **{"objective.spread.weight": points.x})
    return frames | {"points": points}


def claims(frames):
    """Check what the papers say of the curves."""
    for measure, check, text in (
        ("train_error", falls_then_rises, "The training error falls as mu grows, then rises"),
        ("test_error", falls_then_rises, "The test error falls as mu grows, then rises"),
        ("empirical_loss", rises, "The empirical loss rises with mu"),
    ):
        holds, detail = check(curve(frames, measure))
        yield text, holds, SOURCE, detail


def report(frames):
    """Write the sweep down."""
    points = frames["points"]
    least = points.loc[points.test_error.idxmin()]
    finding = (
        f"The test error is smallest at mu = {least.x:g} ({least.test_error:.1%}); it is "
        f"{points.test_error.iloc[0]:.1%} at the smallest mu and {points.test_error.iloc[-1]:.1%} "
        "at the largest."
    )
    page = begin("Given guarantees: how much evenness to ask for", __doc__, finding, claims(frames))
    page.add(
        "With a small mu the buyer takes the few rows that fit. A larger mu spreads the weights "
        "over more rows, which helps. Equal weights are possible only with a small eta, since no "
        "seller may carry more than it granted, and a small eta means much noise. The papers say "
        "that the errors rise slightly; how much depends on how far mu goes."
    )
    pages(page, frames, "mu")
    return page
