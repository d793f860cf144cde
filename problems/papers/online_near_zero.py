"""Many sellers, none of them free: U[0.01, 4.01].

Question: the cheapest virtual cost p is 0.01, next to nothing. Where does the loss go as more
sellers are expected?

Source: B, Theorem 3.4: the loss tends to 2 sqrt(sigma gamma p), 0.2 here, half of it noise and half
payments, so that payments of sqrt(sigma p/gamma) = 0.1 are enough however many sellers there are.
The reports online-uniform15 (p = 1) and online-uniform04 (p = 0) are its two neighbours.

Varied: the number of sellers m.
"""

import convexmarket as cm
from problems.papers.methods import begin
from problems.papers.methods.online_draws import SIZES, claim, floor, pages, run
from problems.papers.methods.verdicts import falls, falls_as_power

PRIOR = cm.Uniform(0.01, 4.01)


def compute(quick=False):
    """Let the general rule buy from every stream."""
    return run(PRIOR, ["expectation"], SIZES[:4] if quick else SIZES, draws=3 if quick else 20)


def claims(frames):
    """Check B's theorem, and A's rate for a prior that starts above 0."""
    source, rule = "B, Theorem 3.4", "expectation"
    yield claim(frames, "As m grows, the loss falls to its limit", source, falls, "loss", rule)
    text = "Payments fall to theirs, so that a bounded budget is enough"
    yield claim(frames, text, source, falls, "payments", rule)
    text, source = "The loss is O(m^(-1/4))", "A, Lemma IX.2, for a prior that starts above 0"
    yield claim(frames, text, source, falls_as_power, "loss", rule)


def report(frames):
    """Write the study down."""
    last = frames["points"].iloc[-1]
    finding = (
        f"With {last['size']:,} sellers the loss is {last.loss:.3g} and payments are "
        f"{last.payments:.3g}; their limits are {floor(PRIOR):g} and {floor(PRIOR) / 2:g}."
    )
    page = begin("Many sellers, none of them free", __doc__, finding, claims(frames))
    page.add(
        "The limit is 10 times nearer to zero than with p = 1, and takes far more sellers to be "
        "seen: until then the loss falls as if p were 0. The rate does not hold for ever."
    )
    pages(page, frames)
    return page
