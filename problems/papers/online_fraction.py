"""Fewer sellers than expected: what a fraction xi of m leads to.

Question: a buyer plans for m sellers and only a fraction xi of them comes. What was promised stays
as it is, so that less privacy is bought and more noise is needed. What is lost against a buyer who
knows all reports, and that no more sellers come?

Source: A, Theorem V.1, a bound whose constants the paper does not give, on an objective with a
trained model. Measured is the loss that the bound is made of (A, Eq. 11) after xi*m sellers. For
U[0, 4] the general rule is Algorithm 3, and no policy is told that fewer come.

Varied: the fraction, and m.
"""

import convexmarket as cm
from problems.papers.methods import begin
from problems.papers.methods.online_draws import claim, pages, run
from problems.papers.methods.verdicts import falls, falls_as_power

PRIOR, SIZES = cm.Uniform(0.0, 4.0), [1000, 10_000, 100_000, 1_000_000]
FRACTIONS = [0.1, 0.2, 0.35, 0.5, 0.7, 1.0]


def limit_of_ratio(fraction):
    """Ratio for many sellers, of whom a fraction comes.

    Half of the planned loss is spread, a quarter noise and a quarter payments. With xi*m sellers
    they change by xi^(-1/2), 1/xi and xi, and the optimum of those who came by xi^(-1/4).
    """
    return (0.5 * fraction**-0.5 + 0.25 / fraction + 0.25 * fraction) * fraction**0.25


def compute(quick=False):
    """Let Algorithm 3 buy from the first part of every stream."""
    sizes = SIZES[:2] if quick else SIZES
    frames = run(PRIOR, ["algorithm-3"], sizes, 4 if quick else 100, FRACTIONS)
    limit = frames["points"].fraction.map(limit_of_ratio)
    return frames | {"points": frames["points"].assign(ratio_limit=limit)}


def claims(frames):
    """Check what Theorem V.1 says of the loss."""
    source, rule = "A, Theorem V.1", "algorithm-3"
    text = "Whatever fraction comes, the loss falls as m grows"
    yield claim(frames, text, source, falls, "loss", rule)
    text = "Whatever fraction comes, the loss is O(m^(-1/4))"
    yield claim(frames, text, f"{source} and its proof", falls_as_power, "loss", rule)
    text = "The larger the fraction, the less is lost against the optimum of those who came"
    yield claim(frames, text, source, falls, "ratio", rule, along="fraction")


def report(frames):
    """Write the study down."""
    points = frames["points"]
    last = points[points["size"] == points["size"].max()].set_index("fraction")
    finding = (
        f"If a tenth of the expected sellers comes, the loss is {last.ratio[0.1]:.3f} times that "
        f"of the optimum of those who came (in the limit {last.ratio_limit[0.1]:.3f}); with half "
        f"of them {last.ratio[0.5]:.3f} ({last.ratio_limit[0.5]:.3f})."
    )
    page = begin("Fewer sellers than expected", __doc__, finding, claims(frames))
    page.add(
        "With few sellers a rule may buy nothing at all: the loss is infinite then. Such draws are "
        "counted, and averages are over the others. The limit of the ratio is not in the paper; it "
        "follows from A, Eqs. (36) and (37)."
    )
    pages(page, frames, x="fraction", by="size")
    return page
