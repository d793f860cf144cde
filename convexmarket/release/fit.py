r"""Fit a public model to noisy predictions (K, Algorithm 2).

.. math:: \min_f\; \sum_{t} (f(z_t) - p_t)^2 \quad\text{s.t.}\quad \|f\|_{\mathcal H} \le C

By the representer theorem, f is a combination of kernels at the points. Let
:math:`U\,\mathrm{diag}(d)\,U^\top` be the kernel matrix, and
:math:`\beta = \mathrm{diag}(\sqrt d)\,U^\top c`. Then beta contains the coordinates of
:math:`f = \sum_s c_s k(z_s, \cdot)` in an orthonormal basis, and
:math:`\|f\|_{\mathcal H} = \|\beta\|`. (The paper minimises the mean instead of the sum.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

Floats = NDArray[np.float64]


class KernelBasis:
    """An orthonormal basis of the span of the kernels at T points.

    ``roots`` are the square roots of the eigenvalues that exceed rounding errors, shape (rank,),
    and ``vectors`` are the eigenvectors, shape (T, rank).
    """

    def __init__(self, gram: Floats) -> None:
        values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
        positive = values > values[-1] * (len(gram) * np.finfo(float).eps)
        self.roots: Floats = np.sqrt(values[positive])
        self.vectors: Floats = vectors[:, positive]

    def values(self, beta: Floats) -> Floats:
        """Evaluate a function with coordinates ``beta`` at the points, shape (T,)."""
        return self.vectors @ (self.roots * beta)

    def coefficients(self, beta: Floats) -> Floats:
        """Convert coordinates of a function to its kernel coefficients, shape (T,)."""
        return self.vectors @ (beta / self.roots)

    def fit(self, predictions: Floats, max_norm: float) -> Floats:
        r"""Compute the coordinates of the constrained least-squares fit.

        Let nu be the multiplier of the bound on the norm. The coordinates are
        :math:`\beta_i = \sqrt{d_i}\,u_i^\top p / (d_i + \nu)`. The norm decreases in nu, so nu is
        zero or the unique value at which the norm equals its bound.
        """
        turned = self.vectors.T @ predictions

        def beta(nu: float) -> Floats:
            return self.roots * turned / (self.roots**2 + nu)

        def slack(nu: float) -> float:  # a function that is nearly linear in nu
            return 1.0 / float(np.linalg.norm(beta(nu))) - 1.0 / max_norm

        solution = beta(0.0)
        if np.linalg.norm(solution) > max_norm:
            high = 2.0 * float(np.linalg.norm(self.roots * turned)) / max_norm
            solution = beta(float(brentq(slack, 0.0, high, xtol=1e-300, rtol=1e-15)))
        return solution
