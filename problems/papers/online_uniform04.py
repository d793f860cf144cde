"""Sellers who come one by one: both rules on U[0, 4].

Question: for a prior with density at zero, as A's Algorithm 3 needs, how do the closed form of the
paper and the general rule compare with hindsight, and does the loss fall as fast as A says?

Source: A, section VI.B, Figure 3, and Lemma IX.2. The paper's figure uses U[1, 5], for which
Algorithm 3 is not defined; this prior has the same width and satisfies Assumption IV.3. For U[0, q]
Algorithm 3 and the general rule are the same.

Varied: the number of sellers m, and the policy.
"""

import convexmarket as cm
from problems.papers.methods import begin
from problems.papers.methods.online_draws import SIZES, claim, pages, run
from problems.papers.methods.verdicts import approaches_one, falls, falls_as_power

PRIOR, POLICIES = cm.Uniform(0.0, 4.0), ["algorithm-3", "expectation", "replanned"]


def compute(quick=False):
    """Let all policies buy from the same streams."""
    return run(PRIOR, POLICIES, SIZES[:4] if quick else SIZES, draws=3 if quick else 20)


def claims(frames):
    """Check what A says of its Figure 3 and its rate."""
    source, rule = "A, section VI.B, Fig. 3", "algorithm-3"
    text = "The loss of Algorithm 3 falls as m grows"
    yield claim(frames, text, source, falls, "loss", rule)
    text = "The competitive ratio of Algorithm 3 approaches 1"
    yield claim(frames, text, source, approaches_one, "ratio", rule)
    text = "The competitive ratio of the general rule approaches 1"
    yield claim(frames, text, source, approaches_one, "ratio", "expectation")
    text, source = "The loss of Algorithm 3 is O(m^(-1/4))", "A, Lemma IX.2"
    yield claim(frames, text, source, falls_as_power, "loss", rule)


def report(frames):
    """Write the study down."""
    last = frames["points"].groupby("policy", sort=False).ratio.last()
    finding = "Ratio to the optimum in hindsight at the largest m: " + ", ".join(
        f"{name} {ratio:.4f}" for name, ratio in last.items()
    )
    page = begin(
        "Sellers who come one by one: both rules on U[0, 4]", __doc__, finding, claims(frames)
    )
    page.add(
        "In the limit the loss falls like m^(-1/4) exactly, so that the interval of a fitted "
        "exponent may end on either side of -1/4. "
        '"replanned" is not in the paper: it plans for the rest of the sellers anew.'
    )
    pages(page, frames)
    return page
