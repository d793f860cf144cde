r"""The fit of a public model to noisy predictions (K, Algorithm 2).

.. math:: \min_f\; \sum_{t} (f(z_t) - p_t)^2 \quad\text{s.t.}\quad \|f\|_{\mathcal H} \le C

By the representer theorem f is a combination of kernels at the points. With the kernel matrix
:math:`K = U\,\mathrm{diag}(d)\,U^\top`, :math:`\beta = \mathrm{diag}(\sqrt d)\,U^\top c` are the
coordinates of :math:`f = \sum_s c_s k(z_s, \cdot)` in an orthonormal basis, so that
:math:`\|f\|_{\mathcal H} = \|\beta\|`. (K has the mean where this has the sum.)
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.checks import check_choice

__all__ = ["ConstrainedFit", "FitFormulation", "KernelBasis", "declare_fit"]

Floats = NDArray[np.float64]

FitFormulation: TypeAlias = Literal["primal", "diagonal", "quadratic"]


class KernelBasis:
    """An orthonormal basis of the span of the kernels at some points.

    Parameters
    ----------
    gram : ndarray of shape (T, T)
        Kernel matrix K of the points, positive semidefinite.

    Attributes
    ----------
    roots : ndarray of shape (rank,)
        Square roots of the eigenvalues above rounding.
    vectors : ndarray of shape (T, rank)
        Their eigenvectors.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.release import KernelBasis
    >>> basis = KernelBasis(np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> basis.values(np.array([1.0, 0.0]))
    array([-0.5,  0.5])
    """

    def __init__(self, gram: Floats) -> None:
        values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
        positive = values > values[-1] * (len(gram) * np.finfo(float).eps)
        self.roots: Floats = np.sqrt(values[positive])
        self.vectors: Floats = vectors[:, positive]

    def values(self, beta: Floats) -> Floats:
        """Return the values of a function at the points, shape (T,)."""
        return np.asarray(self.vectors @ (self.roots * beta))

    def coefficients(self, beta: Floats) -> Floats:
        """Return the coefficients of a function in the kernels at the points, shape (T,)."""
        return np.asarray(self.vectors @ (beta / self.roots))

    def fit(self, predictions: Floats, max_norm: float) -> Floats:
        r"""Return the coordinates of the best function.

        With a multiplier nu of the bound on the norm they are
        :math:`\beta_i = \sqrt{d_i}\,u_i^\top p / (d_i + \nu)`. The norm decreases in nu, so nu is
        zero or the unique root.
        """
        turned = self.vectors.T @ predictions

        def beta(nu: float) -> Floats:
            return np.asarray(self.roots * turned / (self.roots**2 + nu))

        def slack(nu: float) -> float:  # nearly linear in nu
            return 1.0 / float(np.linalg.norm(beta(nu))) - 1.0 / max_norm

        solution = beta(0.0)
        if np.linalg.norm(solution) > max_norm:
            high = 2.0 * float(np.linalg.norm(self.roots * turned)) / max_norm
            solution = beta(float(brentq(slack, 0.0, high, xtol=1e-300, rtol=1e-15)))
        return solution


class ConstrainedFit(cp.Problem):
    """The fit as a CVXPY problem, with expressions of its function.

    Attributes
    ----------
    values, norm : cvxpy.Expression
        Values of the function at the points, and its norm.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.release import declare_fit
    >>> fit = declare_fit(np.eye(2), 1.0)
    >>> fit.fit_to(np.array([0.5, -0.2]))
    >>> float(fit.solve(solver='CLARABEL')) < 1e-6
    True
    """

    def __init__(
        self,
        residuals: cp.Expression,
        bound: cp.Constraint,
        values: cp.Expression,
        norm: cp.Expression,
        vectors: Floats | None = None,
    ) -> None:
        super().__init__(cp.Minimize(cp.sum_squares(residuals)), [bound])
        self.values, self.norm, self._vectors = values, norm, vectors

    def fit_to(self, predictions: Floats) -> None:
        """Set the predictions without recompilation."""
        (parameter,) = self.parameters()
        if self._vectors is None:
            parameter.value = predictions
        else:  # coordinates in the basis, and the norm of the rest
            inside = self._vectors.T @ predictions
            outside = np.linalg.norm(predictions - self._vectors @ inside)
            parameter.value = np.append(inside, outside)


def declare_fit(
    gram: Floats, max_norm: float, formulation: FitFormulation = "primal"
) -> ConstrainedFit:
    """Declare the fit in CVXPY, with the predictions as a parameter.

    Parameters
    ----------
    gram : ndarray of shape (T, T)
        Kernel matrix of the points.
    max_norm : float
        C, positive.
    formulation : {"primal", "diagonal", "quadratic"}, default "primal"
        ``"primal"`` uses the coordinates beta, ``"diagonal"`` also transforms the predictions to
        that basis, and ``"quadratic"`` uses the coefficients c, with :math:`c^T K c <= C^2`.

    Returns
    -------
    ConstrainedFit
        Call its ``fit_to(predictions)``, then ``solve``.

    Raises
    ------
    ParameterError
        If formulation has another value.

    Examples
    --------
    >>> import numpy as np
    >>> from convexmarket.release import declare_fit
    >>> fit = declare_fit(np.eye(2), 1.0)
    >>> type(fit).__name__
    'ConstrainedFit'
    """
    check_choice("formulation", formulation, FitFormulation)
    predictions = cp.Parameter(len(gram), name="predictions")
    if formulation == "quadratic":
        c = cp.Variable(len(gram), name="c")
        values, square = gram @ c, cp.quad_form(c, cp.psd_wrap(gram))
        bound = square <= max_norm**2
        return ConstrainedFit(values - predictions, bound, values, cp.sqrt(square))
    basis = KernelBasis(gram)
    beta = cp.Variable(basis.roots.size, name="beta")
    values, norm = (basis.vectors * basis.roots) @ beta, cp.norm(beta, 2)
    bound = norm <= max_norm
    if formulation == "primal":
        return ConstrainedFit(values - predictions, bound, values, norm)
    turned = cp.Parameter(basis.roots.size + 1, name="turned predictions")
    residuals = cp.hstack([cp.multiply(basis.roots, beta), 0.0]) - turned
    return ConstrainedFit(residuals, bound, values, norm, basis.vectors)
