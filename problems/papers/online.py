"""Losses of online policies relative to the optimum in hindsight (A, Fig. 3; B, Theorem 3.4)."""

import convexmarket as cm
from convexmarket.report import compare
from problems.papers.methods import Experiment, Together
from problems.papers.methods.online_draws import SIZES, claim, floor, pages, run
from problems.papers.methods.verdicts import approaches_one, curves, falls, falls_as_power

FIGURE, ABOVE = "A, section VI.B, Fig. 3", "A, Lemma IX.2, for a prior with support above 0"
RATE = "For every fraction, the loss is O(m^(-1/4))"
LARGER = "The loss relative to the optimum of the arrived sellers decreases with the fraction"
ENOUGH = "Payments decrease to their limit, so a bounded budget is sufficient"


class Online(Experiment):
    """An experiment with policies that buy from the same streams of sellers.

    A claim is (text, source, check, measure, *pairs of further arguments of :func:`claim`).
    """

    prior, policies, rule, stated = None, ("expectation",), "expectation", ()

    def compute(self, quick=False):
        return run(self.prior, self.policies, SIZES[:3] if quick else SIZES, 1 if quick else 20)

    def claims(self, frames):
        for text, source, check, measure, *more in self.stated:
            yield claim(frames, text, source, check, measure, **{"policy": self.rule} | dict(more))

    def finding(self, frames, share=1.0):
        draws = frames["draws"].query("policy == @self.rule and fraction == @share")
        last = draws[draws["size"] == draws["size"].max()]
        came = "" if share == 1 else f", of whom only {share:.0%} arrive,"
        size = last["size"].iloc[0]
        words = f"The loss of “{self.rule}” for {size:,} sellers with prior {self.prior}{came}"
        gap = compare(last.loss, last.offline)
        return gap.sentence(words, "the loss of the optimum in hindsight")

    def pages(self, page, frames):
        pages(page, frames)


class Uniform15(Online):
    """A's Figure 3 on U[1, 5].

    Source: A, section VI.B, Figure 3. The paper does not state mu, sigma, gamma and the number of
    draws. Here mu = sigma = gamma = 1, with 20 draws. The prior of the paper violates Assumption
    IV.3, which requires sellers with sensitivities near zero, so Algorithm 3 is not defined. The
    rule "expectation", A's Eq. (14) with expectations instead of sums, does not need this
    assumption. Algorithm 3 approximates this rule.
    """

    prior, policies = cm.Uniform(1.0, 5.0), ["expectation", "replanned"]
    stated = (
        ("The loss decreases with m", FIGURE, falls, "loss"),
        ("The competitive ratio approaches 1", FIGURE, approaches_one, "ratio"),
        ("The loss is O(m^(-1/4)) and vanishes", "A, Lemma IX.2", falls_as_power, "loss"),
    )
    note = (
        "All sensitivities are at least 1, so the loss tends to 2 sqrt(sigma gamma psi) = 2, "
        "where psi is the lowest virtual cost. The loss exceeds this limit by an amount of order "
        "m^(-1/3), because purchases up to a virtual cost of psi + delta add a cost of order delta "
        "and a spread of order 1/sqrt(m delta). The lemma assumes a prior with positive density at "
        "zero, such as the prior of online-uniform04."
    )


class Uniform04(Online):
    """The rules "algorithm-3" and "expectation" on U[0, 4].

    Source: A, section VI.B, Figure 3, and Lemma IX.2. The paper's figure uses U[1, 5], for which
    Algorithm 3 is not defined. The prior U[0, 4] has the same width and satisfies Assumption IV.3.
    For U[0, q], Algorithm 3 and the general rule are equal. The experiment varies m and the policy.
    """

    prior, rule = cm.Uniform(0.0, 4.0), "algorithm-3"
    policies = (rule, "expectation", "replanned")
    stated = (
        ("The loss of Algorithm 3 decreases with m", FIGURE, falls, "loss"),
        ("The competitive ratio of Algorithm 3 approaches 1", FIGURE, approaches_one, "ratio"),
        (
            "The competitive ratio of the general rule approaches 1",
            *(FIGURE, approaches_one, "ratio", ("policy", "expectation")),
        ),
        ("The loss of Algorithm 3 is O(m^(-1/4))", "A, Lemma IX.2", falls_as_power, "loss"),
    )
    note = (
        "For large m the loss is proportional to m^(-1/4), so the upper end of the interval of the "
        'exponent can be above or below -1/4. The policy "replanned", which is not in the paper, '
        "repeatedly computes a new plan for the remaining sellers."
    )


class NearZero(Online):
    """Sensitivities that are close to zero, with the prior U[0.01, 4.01].

    Source: B, Theorem 3.4. The lowest virtual cost is p = 0.01. The loss tends to 2 sqrt(sigma
    gamma p) = 0.2, and noise and payments contribute 0.1 each. Payments of sqrt(sigma p/gamma) =
    0.1 are therefore sufficient for any number of sellers.
    """

    prior = cm.Uniform(0.01, 4.01)
    stated = (
        ("The loss decreases to its limit as m increases", "B, Theorem 3.4", falls, "loss"),
        (ENOUGH, "B, Theorem 3.4", falls, "payments"),
        ("The loss is O(m^(-1/4))", ABOVE, falls_as_power, "loss"),
    )
    note = (
        "The limit is 10 times smaller than for p = 1, and the loss approaches this limit only "
        "with many more sellers. With fewer sellers, the loss decreases at the rate for p = 0."
    )

    def finding(self, frames):
        last = frames["points"].iloc[-1]
        limit = f"The loss is {last.loss:.3g}, and its limit is {floor(self.prior):g}."
        return f"{super().finding(frames)} {limit}"


class Fraction(Online):
    """The arrival of only a fraction xi of the m expected sellers.

    Question: a buyer plans for m sellers, but only a fraction xi of these sellers arrives. Earlier
    offers remain valid, so the buyer buys less privacy than planned. How large is the loss relative
    to the loss of a buyer who knows all reports and the number of sellers?

    Source: A, Theorem V.1, which bounds an objective with a trained model and states no constants.
    The loss here is the bound of A, Eq. (11), after xi*m sellers. For U[0, 4], the general rule is
    Algorithm 3. The policies do not use the fraction. The experiment varies the fraction and m.
    """

    title, prior, rule = "Fewer sellers than expected", cm.Uniform(0.0, 4.0), "algorithm-3"
    stated = (
        ("For every fraction, the loss decreases with m", "A, Theorem V.1", falls, "loss"),
        (RATE, "A, Theorem V.1 and its proof", falls_as_power, "loss"),
        (LARGER, "A, Theorem V.1", falls, "ratio", ("along", "fraction")),
    )
    note = (
        "If a rule buys nothing, its loss is infinite. Such draws are counted and excluded from "
        "the averages. The limit of the ratio is not stated in A, but follows from A, Eqs. (36) "
        "and (37). Half of the planned loss is spread, a quarter is noise and a quarter is "
        "payments. For a fraction xi, these parts are multiplied by xi^(-1/2), 1/xi and xi. The "
        "optimum of the arrived sellers is multiplied by xi^(-1/4)."
    )

    def compute(self, quick=False):
        sizes, draws = ([1000, 10_000], 4) if quick else ([1000, 10_000, 100_000, 1_000_000], 100)
        frames = run(self.prior, ["algorithm-3"], sizes, draws, [0.1, 0.2, 0.35, 0.5, 0.7, 1.0])
        xi = frames["points"].fraction
        limit = (0.5 * xi**-0.5 + 0.25 / xi + 0.25 * xi) * xi**0.25
        return frames | {"points": frames["points"].assign(ratio_limit=limit)}

    def finding(self, frames):
        return super().finding(frames, 0.1)

    def pages(self, page, frames):
        pages(page, frames, x="fraction", by="size")


class Learning(Online):
    """A comparison of a prior that is learnt during arrivals with a known prior.

    Question: the buyer does not know the prior, starts from a guess, and uses the reports of
    earlier sellers in plans for later sellers. How much larger is the loss than the loss of the
    same policy with the true prior?

    Source: the papers assume a known prior (A, section V). The prior is U[0, 4] and the guess is
    U[0, 10], so sellers are cheaper than the buyer expects. The policy "learnt" is compared with
    "replanned", and the policy "guess", which keeps the guess, is compared with "expectation".
    """

    title, prior = "Learning the prior while sellers arrive", cm.Uniform(0.0, 4.0)
    policies, sizes = ["replanned", "expectation", "learnt", "guess"], [10**k for k in range(2, 7)]
    note = (
        "The learning policy combines the earlier reports and 20 quantiles of the guess into a "
        "prior. It computes a new plan whenever the number of arrived sellers has increased by a "
        "factor of 1.5, or the number of remaining sellers has decreased by this factor. It buys "
        "nothing from the first 10 sellers. A quote depends only on earlier reports, so the true "
        "report remains the best report of each seller. A guess that is too low increases the loss "
        "more than a guess that is too high, because the policy waits for nonexistent sellers."
    )

    def compute(self, quick=False):
        sizes, draws = (self.sizes[:2], 3) if quick else (self.sizes, 20)
        return run(self.prior, self.policies, sizes, draws, guess=cm.Uniform(0.0, 10.0))

    def claims(self, frames):
        draws = frames["draws"]
        last = draws[draws["size"] == draws["size"].max()]
        loss = last.pivot_table(index="draw", columns="policy", values="loss").dropna()
        gain = compare(loss["learnt"], loss["guess"])
        text = "With many sellers, learning the prior has a smaller loss than using the guess"
        detail = gain.sentence("The loss of learning the prior", "the loss of using the guess")
        yield text, gain.verdict == "lower", "our design", detail
        holds, detail = falls(curves(draws[draws.policy == "learnt"], "regret", "size"))
        yield "The regret of learning decreases with m", holds, "our design", detail

    def finding(self, frames):
        *_, detail = next(iter(self.claims(frames)))
        return f"With {self.sizes[-1]:,} sellers, {detail[0].lower()}{detail[1:]}"


class Uniform(Together):
    """The online experiments with three priors.

    Question: each arriving seller receives an offer that depends only on the report of this seller
    and the prior. How large is the loss relative to the loss of a buyer who knows all reports?
    """

    title = "Sellers who arrive one by one: the value of hindsight"


EXPERIMENTS = {
    "online_uniform": Uniform,
    "online_uniform15": Uniform15,
    "online_uniform04": Uniform04,
    "online_near_zero": NearZero,
    "online_fraction": Fraction,
    "online_learning": Learning,
}
