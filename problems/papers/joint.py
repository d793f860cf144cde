"""Effects of single parameters on the joint problem (A, section X; B, appendix B).

The papers state neither the numbers of rows and features nor mu, sigma and Lambda. The experiments
use 100 rows of 5 features and Lambda = 0.01, unless they state other values.
"""

import numpy as np

import convexmarket as cm
from convexmarket.report import compare
from problems.papers.methods import Experiment, Together
from problems.papers.methods.joint_draws import curve, pages, sweep
from problems.papers.methods.verdicts import falls, falls_then_rises, rises, stays, vanishes

PRIOR = cm.Uniform(0.02, 0.10)
ALONE = "Without access to the rows, the variance of the weights tends to 0 with the variance of c"
NARROW = ((0.057, 0.063), (0.059, 0.061), (0.0599, 0.0601))


class Joint(Experiment):
    """A sweep over the values of one parameter. A claim is a tuple (measure, check, text)."""

    values, draws, quick_draws, eta_fixed, source, stated, axis = (), 20, 1, False, "", (), ""
    m, noise, starts = 100, "expected", 3
    measure, words = "test_error", "The test error"

    def compute(self, quick=False):
        draws = self.quick_draws if quick else self.draws
        frames = sweep(self.declare, self.values, draws, self.m, self.noise, self.starts)
        return frames | {"points": frames["points"].assign(eta_fixed=self.eta_fixed)}

    def claims(self, frames):
        for measure, check, text in self.stated:
            holds, detail = check(curve(frames, measure))
            yield text, holds, self.source, detail

    def ends(self, values):
        """Return the indices of the two points that the finding compares."""
        return values.shape[1] - 1, 0

    def finding(self, frames):
        values, x = curve(frames, self.measure), frames["points"].x
        a, b = self.ends(values)
        here, there = (f"{self.axis.replace('_', ' ')} = {x[k]:g}" for k in (a, b))
        gap = compare(values[:, a], values[:, b])
        return gap.sentence(f"{self.words} at {here}", f"the{self.words[3:]} at {there}")

    def pages(self, page, frames):
        pages(page, frames, self.axis)


class Noise(Joint):
    """The training and test errors for equal weights and an increasing total privacy.

    Source: A, section X, and B, appendix B, Figure 5. A cap of 1 enforces equal weights a_i = 1/m,
    and eta = m eps for an average guarantee eps. The data have 200 rows, and
    eps is 0.01 to 10. Payments and spread do not affect the result. A draw has one noise vector.
    """

    axis, eta_fixed = "eta", True
    values, draws, quick_draws = (2.0, 6.0, 20.0, 60.0, 200.0, 600.0, 2000.0), 200, 1
    m, noise, starts = 200, "realised", 1
    source = "A, section X, and B, appendix B, Figure 5"
    stated = (
        ("train_error", falls, "The training error decreases with eta"),
        ("test_error", falls, "The test error decreases with eta"),
    )
    note = (
        "In this experiment, the weights and eta are given and do not depend on the data. Each "
        "model therefore has the guarantee of objective perturbation for its eta."
    )

    def declare(self, eta, ranks, _granted):
        """Declare the market of one draw, with equal weights at a given eta."""
        objective = 1.0 * cm.Spread() + 1.0 * cm.Noise() + 1.0 * cm.Payments()
        sellers = cm.Sellers(PRIOR.quantile(ranks), PRIOR)
        return cm.Market(sellers, objective, [cm.Cap(1), cm.EtaRange(eta, eta)])


class Spread(Joint):
    """The effect of mu, the weight of the spread, under given guarantees.

    Source: A, section X, Figure 4, and B, appendix B, Figure 3 (given guarantees: B, Eq. 3).
    Guarantees are uniform on [0.1, 10], and sigma is 1. The weights and eta are computed with the
    mean of the noise, and the model is then trained with noise. The experiment varies mu.
    """

    axis = "mu"
    values, starts = (0.0001, 0.1, 1.0, 3.0, 10.0, 100.0, 1000.0), 2
    source = "A, section X, Figure 4, and B, appendix B, Figure 3"
    stated = (
        ("train_error", falls_then_rises, "The training error decreases and then increases in mu"),
        ("test_error", falls_then_rises, "The test error decreases and then increases in mu"),
        ("empirical_loss", rises, "The empirical loss increases with mu"),
    )
    note = (
        "With a small mu, the buyer gives weight only to the few rows that the model fits well. A "
        "larger mu distributes the weights over more rows and reduces the errors. Equal weights "
        "require a small eta, because the guarantee of each row must not exceed the granted "
        "guarantee. With a small eta, the noise is large. The papers state that the errors "
        "increase slightly with mu. The size of this increase depends on the range of mu."
    )

    def declare(self, mu, ranks, granted):
        """Declare the market of one draw."""
        given = cm.terms.GivenEpsilon(cm.Uniform(0.1, 10.0).quantile(granted))
        sellers = cm.Sellers(PRIOR.quantile(ranks), PRIOR)
        return cm.Market(sellers, mu * cm.Spread() + 1.0 * cm.Noise(), [given])

    def compute(self, quick=False):
        frames = super().compute(quick)
        points = frames["points"]
        return frames | {"points": points.assign(**{"objective.spread.weight": points.x})}

    def ends(self, values):
        return values.mean(axis=0).argmin(), 0


class Variance(Joint):
    """The variance of the weights as a function of the variance of c.

    Source: B, appendix B, Figure 4, with c uniform on [p, q] and gamma = 1. The mean of c is 0.06,
    mu = 3 and sigma = 100. With these values, the number of purchases increases from 6 to 78. The
    experiment varies the prior. Each seller has the same quantile in every prior.
    """

    axis = "variance_of_c"
    draws, values = 24, ((0.0, 0.12), (0.03, 0.09), (0.05, 0.07), *NARROW)
    source = "B, appendix B, Figure 4"
    stated = (
        ("weight_variance", falls, "The variance of the weights decreases with the variance of c"),
        ("weight_variance", vanishes, "The weights become equal as the variance of c tends to 0"),
        ("two_step_weight_variance", vanishes, ALONE),
    )
    note = (
        "In the joint problem, the weight of a row decreases with its loss and with its price (B, "
        "Theorem 3.3). The losses of the rows differ, so sellers with equal prices have different "
        "weights. In a mechanism that ignores the rows, sellers with equal prices have equal "
        "weights."
    )

    def declare(self, ends, ranks, _granted):
        """Declare the market of one draw."""
        prior = cm.Uniform(*ends)
        objective = 3.0 * cm.Spread() + 100.0 * cm.Noise() + 1.0 * cm.Payments()
        return cm.Market(cm.Sellers(prior.quantile(ranks), prior), objective)

    def compute(self, quick=False):
        """Solve the joint problem for every prior, with x as the variance of its quantiles."""
        levels = (np.arange(20_000) + 0.5) / 20_000
        variance = [float(np.var(cm.Uniform(*ends).quantile(levels))) for ends in self.values]
        low, high = zip(*self.values, strict=True)
        frames = {
            name: frame.assign(x=frame.point.map(dict(enumerate(variance))))
            for name, frame in super().compute(quick).items()
        }
        points = frames["points"].assign(**{"prior.low": low, "prior.high": high})
        return frames | {"points": points}

    def finding(self, frames):
        pair = (
            curve(frames, name)[:, -1] for name in ("weight_variance", "two_step_weight_variance")
        )
        return compare(*pair).sentence(
            "For almost equal prices, the variance of the weights in the joint problem",
            "the variance in the mechanism that ignores the rows",
        )


class Published(Joint):
    """The published joint problem, for which the line search returns an end of its range.

    Source: A, Algorithm 4, and B, section 4.2, which search eta = m eps over a grid of eps in
    [0, L]. Here c is uniform on [0.02, 0.10], mu = 3, sigma = 100 and gamma = 1. With these values,
    the mechanism without access to the data chooses an eta inside every range. The experiment
    varies the lower end of the range, with an upper end of 1000, and computes the best point of the
    range. No grid contains a better point.
    """

    axis = "lower_end"
    values, draws, noise = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0), 40, "realised"
    measure, words = "eta", "The mean eta of the joint problem"
    note = (
        "The published objective has no minimum over eta. As eta tends to zero and the model moves "
        "opposite to the noise vector, the noise term decreases faster than sigma/eta increases. "
        "The line search therefore returns the smallest eta of the range, and the model is a large "
        "multiple of the negative noise vector. Without a range, the package raises an error. A "
        "minimum "
        'exists with noise="expected" or noise="worst-case".'
    )

    def declare(self, low, ranks, _granted):
        """Declare the market of one draw."""
        sellers = cm.Sellers(PRIOR.quantile(ranks), PRIOR)
        objective = 3.0 * cm.Spread() + 100.0 * cm.Noise() + 1.0 * cm.Payments()
        return cm.Market(sellers, objective, [cm.EtaRange(low, 1000.0)])

    def claims(self, frames):
        holds, detail = stays(curve(frames, "eta"))
        text = "A line search over a range of eta returns the same eta for every lower end"
        yield text, holds, "A, Algorithm 4, and B, section 4.2", detail
        decided = frames["points"].eta_decided / frames["points"].solved
        text = "If the lower end is below 10, the line search returns the lower end in every draw"
        holds = bool((decided[frames["points"].x < 10] == 1).all())
        source = "the objective decreases like -2||b||^2/(Lambda eta^2) along w = -2b/(Lambda eta)"
        yield text, holds, source, f"{', '.join(f'{share:.0%}' for share in decided)} of the draws"

    def finding(self, frames):
        points = frames["points"]
        share = f"{points.eta_decided.sum()} of {points.solved.sum()}"
        text = f"The line search returns an end of its range for {share} solved draws."
        return f"{text} {super().finding(frames)}"


class Parameters(Together):
    """The experiments on single parameters of the joint problem.

    Question: the joint problem chooses the model, the weights and the total privacy. How do the
    range of eta, the noise, the weight of the spread and the differences between sellers affect
    this choice?
    """

    title = "Effects of the parameters of the joint problem"


EXPERIMENTS = {
    "joint": Parameters,
    "joint_noise": Noise,
    "joint_published": Published,
    "joint_spread": Spread,
    "joint_variance": Variance,
}
