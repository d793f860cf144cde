r"""A second noise for a minimiser that is only approached.

Objective perturbation guarantees something about the exact minimiser :math:`w^*` of a
:math:`\Lambda`-strongly convex objective. A solver stops at a point :math:`\tilde w` with
:math:`\|\nabla F(\tilde w)\| \le g`, hence :math:`\|\tilde w - w^*\| \le g/\Lambda`. Which point of
that ball it returns may depend on every row, so that without more the guarantee is that of the
ball, not of the point.

The repair (approximate minima perturbation: Iyengar, Near, Song, Thakkar, Thakurta and Wang,
Towards Practical Differentially Private Convex Optimization, 2019) publishes
:math:`\tilde w + z`, where z is drawn last, from the density proportional to
:math:`e^{-\rho\|z\|}` with :math:`\rho = \epsilon_0\Lambda/(2g)`. Every row that is used then pays
:math:`\epsilon_0` besides what it pays for :math:`w^*`.

*Proof.* Let g be fixed beforehand. Condition on all that came before z: the data, the noise of the
objective and the solver's every step fix :math:`w^*` and :math:`r = \tilde w - w^*`, with
:math:`\|r\| \le g/\Lambda`. The density of what is published at v is proportional to
:math:`e^{-\rho\|v - w^* - r\|}`, which by the triangle inequality is within a factor
:math:`e^{\pm\rho g/\Lambda} = e^{\pm\epsilon_0/2}` of :math:`e^{-\rho\|v - w^*\|}`, the density of
:math:`w^* + z`. Average over what was conditioned on: the published point and :math:`w^* + z` have
densities within that factor of each other, on any data. But :math:`w^* + z` is computed from
:math:`w^*` without looking at the data again, so a row that pays :math:`\epsilon_i` for
:math:`w^*` pays :math:`\epsilon_i` for it. Going from the published point to :math:`w^* + z`, to
its neighbour, and back costs :math:`\epsilon_0/2 + \epsilon_i + \epsilon_0/2`. A row that is not
used has the same :math:`w^*` and the same r on either side, and pays nothing. ∎

Two words of the proof matter. The bound g is *fixed*: with the norm that was reached in place of
the norm that was promised, the scale of z would itself tell about the rows. And r may depend on
anything, so it may hold every error that can be written as an error of the gradient: that of the
solver, of the gradient's evaluation in floating point, of the first noise's draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.arguments import check_positives, checked_numbers
from convexmarket.errors import ParameterError

__all__ = ["approximate_minimum_rate", "default_minimum_epsilon"]

SMALLEST_RATE = 1e-280  # of the noise, which would overflow below it
LARGEST_SHARE = 0.5  # of what the smallest seller sold, that goes to the second noise by default


def default_minimum_epsilon(epsilon: ArrayLike, gradient_norm: float) -> float:
    r"""Return what every row pays for the second noise where nobody said how much.

    A share s of what the smallest seller sold leaves the first noise :math:`1/(1-s)` times as large
    as it was. The second is then :math:`g/(s\,a_{\min})` of the first, :math:`a_{\min}` being
    the smallest weight. Both cost the same at :math:`s = \sqrt{g/a_{\min}}`, which follows from
    what was sold, not from the rows: 0.1 per cent at a smallest weight of 0.001 and g = 1e-9.

    Parameters
    ----------
    epsilon : array_like of shape (n_rows,)
        What each row sold; rows that sold nothing are not used.
    gradient_norm : float
        g, as for :func:`approximate_minimum_rate`.

    Returns
    -------
    float
        In nats; at most half of the smallest positive epsilon.

    Raises
    ------
    ParameterError
        If an argument is out of its range, or nobody sold anything.

    Examples
    --------
    >>> round(default_minimum_epsilon([1.0, 1.0, 2.0, 0.0], 1e-9), 6)
    6.3e-05
    """
    check_positives(gradient_norm=gradient_norm)
    sold = checked_numbers("epsilon", epsilon)
    if sold.ndim != 1 or not np.all((sold >= 0) & (sold < np.inf)) or not np.any(sold > 0):
        raise ParameterError(
            "epsilon must hold finite numbers >= 0, one for each row, some of them positive: what"
            " each row sold."
        )
    smallest = float(sold[sold > 0].min())
    return smallest * min(LARGEST_SHARE, float(np.sqrt(gradient_norm * sold.sum() / smallest)))


def approximate_minimum_rate(
    minimum_epsilon: float, gradient_norm: float, regularization: float
) -> float:
    r"""Rate of the noise that hides how far a released point is from the minimiser.

    Divide :func:`gamma_sphere_noise` by it: the mean norm of the noise is ``n_features / rate``.

    Parameters
    ----------
    minimum_epsilon : float
        What every row that is used pays for it, in nats; positive.
    gradient_norm : float
        g, a bound on the norm of the objective's gradient at the point, fixed without looking at
        the data; positive. Not the norm that happened to be reached.
    regularization : float
        Lambda, the strong convexity of the objective; positive.

    Returns
    -------
    float
        ``minimum_epsilon * regularization / (2 * gradient_norm)``.

    Raises
    ------
    ParameterError
        If an argument is out of its range, or the noise would overflow.

    References
    ----------
    Iyengar, Near, Song, Thakkar, Thakurta and Wang, Towards Practical Differentially Private
    Convex Optimization, 2019.

    Examples
    --------
    >>> round(approximate_minimum_rate(0.01, 1e-9, 0.01))
    50000
    """
    check_positives(
        minimum_epsilon=minimum_epsilon,
        gradient_norm=gradient_norm,
        regularization=regularization,
    )
    rate = minimum_epsilon * regularization / (2.0 * gradient_norm)
    if not SMALLEST_RATE <= rate < np.inf:
        raise ParameterError(
            f"minimum_epsilon = {minimum_epsilon:g} at gradient_norm = {gradient_norm:g} and"
            f" regularization = {regularization:g} needs noise of rate {rate:g}, beyond the range"
            " of floating point: take gradient_norm and minimum_epsilon of a like size."
        )
    return rate
