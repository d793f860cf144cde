"""Predictions instead of a model: breast-cancer records.

Question: on real records there are 341 patients at most, each with 30 features and a constant. How
good are predictions of a kernel model, released in the ways of K, next to a linear model by
objective perturbation?

Source: K, Algorithms 1 to 3. K has no experiments. gamma = 2 and lambda = 0.01 are the best without
noise in ten folds of the public validation rows (95.6%). In 31 dimensions a net of the ball has
more points than a computer holds, so that the non-interactive release is refused.

Varied: the number of rows, epsilon, and the release.
"""

from dataclasses import replace

from convexmarket.data.datasets import wdbc
from problems.papers.methods import begin, release_draws
from problems.papers.methods.release_draws import Study, finding, pages, run

ROWS = wdbc(0, (0.6, 0.2, 0.2))
RELEASES = {
    "interactive, paper": ("interactive", {"max_updates": 10, "accounting": "paper"}),
    "interactive": ("interactive", {"max_updates": 10}),
    "interactive, low threshold": ("interactive", {"max_updates": 10, "threshold": 5.0}),
    "semi-interactive, paper": ("semi-interactive", {"noise": "laplace", "accounting": "paper"}),
    "semi-interactive, Laplace": ("semi-interactive", {"noise": "laplace"}),
    "semi-interactive": ("semi-interactive", {}),
    "non-interactive": ("non-interactive", {"rounds": 10}),
    "function": ("function", {}),
    "linear model": ("objective-perturbation", {}),
}


def training(size, rng):
    """Draw training rows without repeats."""
    chosen = rng.permutation(ROWS.y_train.size)[:size]
    return ROWS.X_train[chosen], ROWS.y_train[chosen]


STUDY = Study(
    training=training,
    test=(ROWS.X_test, ROWS.y_test),
    points=lambda _: ROWS.X_validation,  # all validation rows; their labels are not used
    most_points=len(ROWS.y_validation),
    gamma=2.0,
    sizes=[100, 200, 341],
    epsilons=[0.1, 0.5, 1.0, 5.0, 10.0],
    fits=3,
    draws=3,
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
        "Predictions instead of a model: breast-cancer records",
        __doc__,
        finding(STUDY, frames),
        claims(frames),
    )
    pages(page, STUDY, frames)
    page.add(
        "An interactive release whose noise hides every prediction never corrects its public "
        "model, which answers zero everywhere, that is benign: its accuracy is the share of benign "
        "rows. The linear model is no release of the kernel model's predictions, and has delta 0."
    )
    return page
