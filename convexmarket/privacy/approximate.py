r"""A second noise for a minimiser that is only approached.

Objective perturbation guarantees something about the exact minimiser :math:`w^*` of a
:math:`\Lambda`-strongly convex objective. A solver stops at a point :math:`\tilde w` with
:math:`\|\nabla F(\tilde w)\| \le g`, hence :math:`\|\tilde w - w^*\| \le g/\Lambda`. Which point of
that ball it returns may depend on every row, so that without more the guarantee is that of the
ball, not of the point.

The repair (approximate minima perturbation: Iyengar, Near, Song, Thakkar, Thakurta and Wang,
Towards Practical Differentially Private Convex Optimization, 2019) adds a second noise, drawn last:
here on a lattice, where it is exact (:func:`~convexmarket.privacy.lattice_blur`, with the proof).
Every row that is used then pays :math:`\epsilon_0` besides what it pays for :math:`w^*`; a row that
is not used has the same :math:`w^*` and the same error on either side, and pays nothing.

Two words of that proof matter. The bound g is *fixed*: with the norm that was reached in place of
the norm that was promised, the scale of the noise would itself tell about the rows. And the error
may depend on anything, so it may hold all that can be written as an error of the gradient: that of
the solver, of the gradient's evaluation in floating point, of the first noise's draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import check_positives, checked_numbers
from convexmarket.errors import ParameterError

__all__ = ["default_minimum_epsilon"]

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
        g, a bound on the norm of the objective's gradient where the solver stops, fixed without
        looking at the data; positive.

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
            "epsilon must hold finite numbers >= 0, one for each row, some of them positive: what "
            "each row sold"
        )
    smallest = float(sold[sold > 0].min())
    return smallest * min(LARGEST_SHARE, float(np.sqrt(gradient_norm * sold.sum() / smallest)))
