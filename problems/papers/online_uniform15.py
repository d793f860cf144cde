"""Sellers who come one by one: A's Figure 3 on U[1, 5].

Question: every seller is quoted on arrival, from its own report and the prior alone. What is lost
against a buyer who knows all reports beforehand, and where does the loss go as more are expected?

Source: A, section VI.B, Figure 3. The paper does not give mu, sigma, gamma and the number of draws;
here 1, 1, 1 and 20. Its prior violates its own Assumption IV.3, which asks for sellers whose
privacy is nearly free: Algorithm 3 has no cut-off here. "expectation" is the rule that Algorithm 3
approximates, A's Eq. (14) with its sums replaced by expectations, and needs no such assumption.

Varied: the number of sellers m.
"""

import convexmarket as cm
from problems.papers.methods import begin
from problems.papers.methods.online_draws import SIZES, claim, floor, pages, run
from problems.papers.methods.verdicts import approaches_one, falls, falls_as_power

PRIOR, POLICIES = cm.Uniform(1.0, 5.0), ["expectation", "replanned"]


def compute(quick=False):
    """Let both policies buy from the same streams."""
    return run(PRIOR, POLICIES, SIZES[:4] if quick else SIZES, draws=3 if quick else 20)


def claims(frames):
    """Check what A says of its Figure 3."""
    source, rule = "A, section VI.B, Fig. 3", "expectation"
    yield claim(frames, "The loss falls as m grows", source, falls, "loss", rule)
    text = "The competitive ratio approaches 1"
    yield claim(frames, text, source, approaches_one, "ratio", rule)
    text, source = "The loss is O(m^(-1/4)), so that it vanishes", "A, Lemma IX.2"
    yield claim(frames, text, source, falls_as_power, "loss", rule)


def report(frames):
    """Write the study down."""
    rows = frames["points"].query("policy == 'expectation'")
    finding = (
        f"The ratio to the optimum in hindsight falls from {rows.ratio.iloc[0]:.4f} to "
        f"{rows.ratio.iloc[-1]:.4f}. The loss falls to {rows.loss.iloc[-1]:.4g}; it cannot fall "
        f"below {floor(PRIOR):g}."
    )
    page = begin(
        "Sellers who come one by one: Figure 3 on U[1, 5]", __doc__, finding, claims(frames)
    )
    page.add(
        "Privacy is never nearly free here, so the loss tends to 2 sqrt(sigma gamma psi) = 2 with "
        "psi the lowest virtual cost. What lies above falls like m^(-1/3): buying up to psi + "
        "delta costs of the order of delta, and leaves a spread of the order of 1/sqrt(m delta). "
        "The lemma assumes a prior with density at zero; report online-uniform04 tests it with one."
    )
    pages(page, frames)
    return page
