"""Release of predictions of a kernel model (K, Algorithms 1 to 3; K has no experiments).

The comparison includes a function with the noise of a Gaussian process (Hall, Rinaldo and
Wasserman) and a linear model by objective perturbation. Each release of K uses the accounting of
the paper or a tight accounting.
"""

import numpy as np

from convexmarket.data.datasets import circles, wdbc
from problems.papers.methods import Experiment, Together, release_draws
from problems.papers.methods.release_draws import MOST_POINTS, Study, stream


def releases(updates, low, rounds):
    """Return the kind and the options of each release by its label."""
    laplace = {"noise": "laplace"}
    return {
        "interactive, paper": ("interactive", {"max_updates": updates, "accounting": "paper"}),
        "interactive": ("interactive", {"max_updates": updates}),
        # Any threshold is private. The threshold of K is 4 log(2T/beta), or 39.6 noise scales.
        "interactive, low threshold": ("interactive", {"max_updates": low, "threshold": 5.0}),
        "semi-interactive, paper": ("semi-interactive", laplace | {"accounting": "paper"}),
        "semi-interactive, Laplace": ("semi-interactive", laplace),
        "semi-interactive": ("semi-interactive", {}),
        "non-interactive, paper": ("non-interactive", {"rounds": rounds, "accounting": "paper"}),
        "non-interactive": ("non-interactive", {"rounds": rounds}),
        "function": ("function", {}),
        "linear model": ("objective-perturbation", {}),
    }


class Predictions(Study, Experiment):
    """An experiment on releases of the same models for several sizes and epsilons."""

    claims, finding, pages = release_draws.claims, release_draws.finding, release_draws.pages

    def compute(self, quick=False):
        if quick:
            self.sizes, self.fits = self.sizes[:2], 1
        return release_draws.run(self)


class Circles(Predictions):
    """Releases on two circles.

    Of the values 0.01, 0.03 and 0.1, lambda = 0.01 has the highest accuracy without noise at gamma
    = 4 on other draws. A release accepts at most ``most_points`` public points.
    """

    shape = (0.15, 0.4)
    where, gamma, most_points, fits, draws = "two circles", 4.0, MOST_POINTS, 4, 2
    sizes, epsilons = [300, 1000, 3000, 10_000, 30_000, 100_000], [0.1, 0.5, 1.0, 2.0, 10.0]
    releases = releases(updates=20, low=40, rounds=20)

    def __init__(self):
        self.test = circles(500, *self.shape, np.random.default_rng(stream(1)))

    def training(self, size, rng):
        return circles(size, *self.shape, rng)

    def points(self, rng):
        return circles(300, *self.shape, rng)[0]


class Wdbc(Predictions):
    """Releases on breast-cancer records.

    Without noise, gamma = 2 and lambda = 0.01 have the highest accuracy in ten folds of the public
    validation rows (95.6%). In 31 dimensions, a net of the ball has too many points for memory, so
    the non-interactive release is refused. The public points are the unlabelled validation rows.
    """

    where, gamma, fits, draws = "breast-cancer records", 2.0, 3, 3
    sizes, epsilons = [100, 200, 341], [0.1, 0.5, 1.0, 5.0, 10.0]
    releases = releases(updates=10, low=10, rounds=10)
    del releases["non-interactive, paper"]
    note = (
        "If the noise of an interactive release is larger than every prediction, the public model "
        "is never updated and predicts zero. All rows are then classified as benign, and the "
        "accuracy is the share of benign rows. The linear model has delta = 0 and does not release "
        "predictions of the kernel model."
    )

    def __init__(self):
        self.rows = wdbc(0, (0.6, 0.2, 0.2))
        self.test = self.rows.X_test, self.rows.y_test
        self.most_points = len(self.rows.y_validation)

    def training(self, size, rng):
        chosen = rng.permutation(self.rows.y_train.size)[:size]  # without repeats
        return self.rows.X_train[chosen], self.rows.y_train[chosen]

    def points(self, _rng):
        return self.rows.X_validation


class Releases(Together):
    """The releases on both data sets.

    Question: the three methods of K and a Gaussian process release predictions of a kernel model.
    How accurate are these predictions, compared with the predictions of a private linear model?
    """

    title = "Predictions instead of a model"


EXPERIMENTS = {
    "release": Releases,
    "release_circles": Circles,
    "release_wdbc": Wdbc,
}
