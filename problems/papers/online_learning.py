"""A prior that is learnt on the way, against one that is known.

Question: the buyer does not know the prior, starts from a guess, and takes the reports of earlier
sellers into account when it plans for the rest. How much larger is its loss than that of the same
policy when it knows the prior?

Source: beyond the papers, which take the prior for known (A, section V). The prior is U[0, 4] and
the guess U[0, 10]: sellers are cheaper than the buyer expects. "learnt" is measured against
"replanned", and "guess", which keeps its guess to the end, against "expectation".

Varied: the number of sellers m, and the policy.
"""

import convexmarket as cm
from convexmarket.report import compare
from problems.papers.methods import begin
from problems.papers.methods.online_draws import pages, run
from problems.papers.methods.verdicts import curves, falls

PRIOR, GUESS = cm.Uniform(0.0, 4.0), cm.Uniform(0.0, 10.0)
SIZES, POLICIES = [100, 1000, 10_000, 100_000, 1_000_000], ["replanned", "expectation"]


def compute(quick=False):
    """Let policies with and without the prior buy from the same streams."""
    sizes, draws = (SIZES[:2], 3) if quick else (SIZES, 20)
    return run(PRIOR, [*POLICIES, "learnt", "guess"], sizes, draws, guess=GUESS)


def claims(frames):
    """Check that learning pays, and that its regret falls."""
    draws = frames["draws"]
    last = draws[draws["size"] == draws["size"].max()]
    loss = last.pivot_table(index="draw", columns="policy", values="loss").dropna()
    gain = compare(loss["learnt"], loss["guess"])
    text = "With many sellers learning the prior loses less than keeping the guess"
    detail = gain.sentence("The loss of learning", "that of keeping the guess")
    yield text, gain.verdict == "lower", "our design", detail
    regret = curves(draws[draws.policy == "learnt"], "regret", "size")
    holds, detail = falls(regret)
    text = "The regret of learning falls as m grows"
    yield text, holds, "our design", detail


def report(frames):
    """Write the study down."""
    regret = frames["points"].groupby("policy", sort=False).regret.last()
    finding = (
        f"With {SIZES[-1]:,} sellers the regret of learning is {regret['learnt']:.2%}, that of "
        f"keeping the guess {regret['guess']:.2%}."
    )
    page = begin("A prior that is learnt on the way", __doc__, finding, claims(frames))
    page.add(
        "The learning policy takes the reports so far, and 20 quantiles of the guess, for the "
        "prior, and plans anew whenever the number of sellers has grown by half, or the number to "
        "come has shrunk as much. For the first 10 sellers it only listens and buys nothing. A "
        "quote uses earlier reports only, so that the truth stays each seller's best reply. A "
        "guess that is too cheap is worse than one that is too expensive: it waits for sellers who "
        "do not exist."
    )
    pages(page, frames)
    return page
