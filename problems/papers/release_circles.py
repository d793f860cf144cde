"""Predictions instead of a model: two circles.

Question: no line separates two circles, so that a linear model is of no use, and a kernel model is
a combination of everyone's rows, which cannot be released as it is. How good are its predictions,
released in the three ways of K, by a Gaussian process, and those of a linear model?

Source: K, Algorithms 1 to 3; Hall, Rinaldo and Wasserman for the function. K has no experiments.
lambda = 0.01 is the best of 0.01, 0.03 and 0.1 without noise at gamma = 4, on draws that are not
used here. Each way has the paper's accounting and a tight one.

Varied: the number of rows, epsilon, and the release.
"""

from dataclasses import replace

import numpy as np

from convexmarket.data.datasets import circles
from problems.papers.methods import begin, release_draws
from problems.papers.methods.release_draws import MOST_POINTS, Study, finding, pages, run, stream

NOISE, FACTOR = 0.15, 0.4
RELEASES = {
    "interactive, paper": ("interactive", {"max_updates": 20, "accounting": "paper"}),
    "interactive": ("interactive", {"max_updates": 20}),
    # Theory's threshold, 4 log(2T/beta) = 39.6 scales, is for the worst case. The guarantee does
    # not depend on it.
    "interactive, low threshold": ("interactive", {"max_updates": 40, "threshold": 5.0}),
    "semi-interactive, paper": ("semi-interactive", {"noise": "laplace", "accounting": "paper"}),
    "semi-interactive, Laplace": ("semi-interactive", {"noise": "laplace"}),
    "semi-interactive": ("semi-interactive", {}),
    "non-interactive, paper": ("non-interactive", {"rounds": 20, "accounting": "paper"}),
    "non-interactive": ("non-interactive", {"rounds": 20}),
    "function": ("function", {}),
    "linear model": ("objective-perturbation", {}),
}
STUDY = Study(
    training=lambda size, rng: circles(size, NOISE, FACTOR, rng),
    test=circles(500, NOISE, FACTOR, np.random.default_rng(stream(1))),
    points=lambda rng: circles(300, NOISE, FACTOR, rng)[0],
    most_points=MOST_POINTS,  # there are as many public points as a release takes
    gamma=4.0,
    sizes=[300, 1000, 3000, 10_000, 30_000, 100_000],
    epsilons=[0.1, 0.5, 1.0, 2.0, 10.0],
    fits=4,
    draws=2,
    releases=RELEASES,
)


def compute(quick=False):
    """Make every release of every model."""
    return run(replace(STUDY, sizes=STUDY.sizes[:2], fits=1) if quick else STUDY)


def claims(frames):
    """Check the accounting, the bounds and the rates."""
    return release_draws.claims(STUDY, frames)


def report(frames):
    """Write the comparison down."""
    page = begin(
        "Predictions instead of a model: two circles",
        __doc__,
        finding(STUDY, frames),
        claims(frames),
    )
    pages(page, STUDY, frames)
    return page
