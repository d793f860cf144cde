r"""Bounds on the error and the norm of a perturbed logistic model (A, Theorem II.4)."""

from typing import NamedTuple

import numpy as np
from scipy.special import gammainccinv, lambertw

from convexmarket.checks import as_float, check_positives, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.learners import logistic_risk_constants

#: The largest value of z / (1 + e^z): by how much a row can lengthen a model.
LARGEST_PULL = float(lambertw(np.exp(-1.0)).real)


class LogisticErrorBound(NamedTuple):
    """Shares of wrong predictions by the training objective, the spread and the noise."""

    training: float
    spread: float
    noise: float

    @property
    def total(self):
        """The sum of the three."""
        return self.training + self.spread + self.noise

    @property
    def vacuous(self):
        """Whether the bound has no content: no model errs on more than all rows."""
        return not self.total < 1.0

    def statement(self):
        """Return what is bounded, and what makes the bound vacuous where it is."""
        terms = (
            f"{self.training:.3g} of training, {self.spread:.3g} of the weights' spread and"
            f" {self.noise:.3g} of the noise"
        )
        if not self.vacuous:
            return f"At most {self.total:.1%} of predictions are wrong: {terms}."
        room = 1.0 - self.training - self.noise
        rows = "no number of rows would do: it takes a larger eta, or a model that fits better"
        if room > 0:
            rows = f"an effective size {(self.spread / room) ** 2:.3g} times as large would do"
        return f"Vacuous, {terms} add up to {self.total:.3g}: {rows}."


def logistic_error_bound(
    weights,
    eta,
    *,
    objective,
    n_features,
    max_norm=1.0,
    failure_probability=0.05,
    noise_failure_probability=0.05,
    constants="proven",
):
    r"""Bound the share of wrong predictions of a model that was trained on what was bought.

    ``objective`` is :math:`\sum_i a_i \ln(1 + e^{-z_i}) + b^\top w` at the model. It is private, so
    it is an argument and never read from the rows. ``max_norm`` bounds the norm of the model times
    that of the rows, and is fixed before training; the chances and constants are those of
    ``logistic_risk_constants``. The bound is true for independent rows of one distribution with
    probability at least 1 minus both chances.
    """
    shares = checked_numbers("weights", weights)
    if not (np.all(shares >= 0) and abs(shares.sum() - 1.0) <= 1e-6):
        raise ParameterError(
            "weights must be nonnegative and sum to one; divide what was granted by its sum"
        )
    _check_eta(eta)
    if not np.isfinite(as_float(objective)):
        raise ParameterError(f"objective must be finite, got {objective!r}")
    chances = failure_probability, noise_failure_probability
    mu, sigma = logistic_risk_constants(*chances, max_norm, n_features, constants=constants)
    training = float(objective) / float(np.log(2.0))
    return LogisticErrorBound(training, mu * float(np.linalg.norm(shares)), sigma / float(eta))


def logistic_norm_bound(
    regularization, eta, n_features, *, noise_failure_probability=0.05, data_norm=1.0
):
    r"""Bound the norm of the perturbed model before any row is seen.

    Where the gradient vanishes, :math:`\Lambda\|w\|^2 = -b^\top w + \sum a_i z_i/(1 + e^{z_i})`,
    and :math:`z/(1 + e^z)` is at most 0.2785; and :math:`\Lambda\|w\| \le \|b\| + R`.
    """
    check_positives(regularization=regularization, data_norm=data_norm, n_features=n_features)
    _check_eta(eta)
    noise = data_norm * 2.0 * float(gammainccinv(n_features, noise_failure_probability)) / eta
    pulled = noise + np.sqrt(noise**2 + 4.0 * regularization * LARGEST_PULL)
    return float(min(pulled / 2.0, noise + data_norm) / regularization)


def _check_eta(eta):
    if not as_float(eta) > 0:
        raise ParameterError(f"eta must be positive (infinity means no noise), got {eta!r}")
