r"""What the allocation's objective tends to for many sellers, whose virtual costs reach down to 0.

Let psi have the density ``h*x**n`` next to 0. Then with ``v = (lambda - gamma*psi)_+`` the
expectations E[v] and E[v^2] are powers of lambda, and A's Eq. (14) in expectation has the solution

.. math:: \lambda^{n+2} = \frac{\mu^2 \gamma^{n+1} (n+1)^2 (n+2)}{2 h \sigma m}, \qquad
    \frac{\sigma}{\eta} = \gamma\eta\psi^\top a = N = \sqrt{\frac{n+1}{n+3} \sigma\lambda}, \qquad
    \mu\|a\| = \frac{2N}{n+1}.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from convexmarket.checks import check_count, check_positive, check_positives
from convexmarket.errors import ParameterError

__all__ = ["LossLimit", "loss_limit"]


class LossLimit(NamedTuple):
    """Leading orders of the three parts of A's Eq. (11): mu*||a||, sigma/eta, gamma*psi'eps."""

    spread: float
    noise: float
    payments: float

    @property
    def total(self) -> float:
        """The sum of the three."""
        return sum(self)


def loss_limit(
    n_sellers: int,
    mu: float,
    sigma: float,
    gamma: float,
    *,
    density: float,
    order: int = 0,
    share: float = 1.0,
) -> LossLimit:
    r"""Return the leading order of the smallest loss of m sellers (A, Lemma IX.2; Theorem V.1).

    Parameters
    ----------
    n_sellers : int
        m, those who were expected.
    mu, sigma, gamma : float
        Of the buyer.
    density, order : float, int
        h and n: the virtual cost x has the density ``h*x**n`` next to 0. A's Assumption IV.3 is
        ``order=0``, where h is half the density of the sensitivity; its footnote allows others.
    share : float, default 1
        xi, the part of the expected sellers who come to an online market planned for m.

    Returns
    -------
    LossLimit
        Of order :math:`m^{-1/(2(n+2))}`: :math:`m^{-1/4}` under the assumption only.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    At order 0 the total is :math:`\frac{4}{\sqrt3} h^{-1/4} \sigma^{1/4}\mu^{1/2}\gamma^{1/4}
    m^{-1/4}`: the constant :math:`E_2 = 4h^{-1/4}` of A's Eq. (46) where both densities are h.
    Eq. (46) as printed bounds nothing at finite m: a quotient :math:`3 - 2f(l)/f(l')` is replaced
    by one that may be larger. The last term of :math:`E_4` in Eq. (48) is printed three times too
    large: :math:`E_4 = h^{-1/4}(2\xi^{-1/2} + \xi^{-1} + \xi)`, not :math:`3\xi`.

    Examples
    --------
    >>> loss = loss_limit(10**6, 1.0, 1.0, 1.0, density=1 / 8)  # sensitivities U[0, 4]
    >>> round(loss.total, 4), round(loss.spread / loss.noise, 6)
    (0.1228, 2.0)
    """
    check_count("n_sellers", n_sellers)
    check_positives(mu=mu, sigma=sigma, gamma=gamma, density=density)
    check_count("order", order, 0)
    if check_positive("share", share) > 1:
        raise ParameterError(f"share must be a number above 0, at most 1, got {share!r}")
    n = order
    power = mu**2 * gamma ** (n + 1) * (n + 1) ** 2 * (n + 2) / (2.0 * density * sigma * n_sellers)
    noise = np.sqrt((n + 1) / (n + 3) * sigma * power ** (1.0 / (n + 2)))
    spread = 2.0 * noise / (n + 1)
    return LossLimit(float(spread / np.sqrt(share)), float(noise / share), float(noise * share))
