r"""The fit to noisy predictions as an instance of a solver study (K, Theorems 4 and 5).

A model that must stay private predicts at T public points without labels; its predictions p are
released with noise, and their holder fits a public model f to them, no larger than the
private one may be:

.. math:: \min_f\; \sum_{t} (f(z_t) - p_t)^2 \quad\text{s.t.}\quad \|f\|_{\mathcal H} \le C

By the representer theorem f is a combination of kernels at the points. (K has the mean where this
has the sum.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self, cast

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import rbf_kernel

from convexmarket.allocation.views import numbers
from convexmarket.checks import check_nonnegative, check_positive, check_positives
from convexmarket.errors import NotSupportedError
from convexmarket.release import ConstrainedFit, FitFormulation, KernelBasis, declare_fit
from convexmarket.studies.subproblems.base import Floats, Instance
from convexmarket.studies.subproblems.learning import draw_rows, unknown_formulation

__all__ = ["SemiInteractiveInstance"]

#: Most points whose kernel matrix, dense, is decomposed.
LARGEST = 2000


@dataclass(frozen=True, eq=False)
class SemiInteractiveInstance(Instance):
    r"""The largest that a public model may be, and the noisy predictions it is fitted to.

    With the kernel matrix :math:`K = U\,\mathrm{diag}(d)\,U^\top` and
    :math:`f = \sum_s c_s k(z_s, \cdot)`, ``quadratic`` is the problem in c, under
    :math:`c^\top K c \le C^2`. ``primal`` takes the coefficients
    :math:`\beta = \mathrm{diag}(\sqrt d)\,U^\top c` of f in an orthonormal basis, so that
    :math:`\|f\|_{\mathcal H} = \|\beta\|`; ``diagonal`` turns the predictions into the same basis.

    An answer is f at the points, followed by its norm.

    Parameters
    ----------
    kernel : ndarray, shape (T, T)
        K, positive semidefinite.
    predictions, changed_predictions : ndarray, shape (T,)
        Both values of p.
    max_norm : float
        C, > 0.
    """

    problem_class = "semi-interactive fit"
    formulations = ("primal", "diagonal", "quadratic")

    kernel: Floats
    predictions: Floats
    changed_predictions: Floats
    max_norm: float

    def __post_init__(self) -> None:
        check_positive("max_norm", self.max_norm)
        _check_size(len(self.kernel))

    @classmethod
    def draw(
        cls,
        points: ArrayLike,
        X: ArrayLike,
        y: ArrayLike,
        bandwidth: float,
        regularization: float,
        noise_scale: float,
        size: int,
        rng: np.random.Generator,
    ) -> Self:
        """Fit the private model, whose norm is the bound, and draw the noise.

        Parameters
        ----------
        points : array_like, shape (n_points, n_features)
            Public rows to draw ``size`` from, see :func:`draw_rows`.
        X, y : array_like, shape (n_rows, n_features) and (n_rows,)
            Private rows, that kernel ridge regression is trained on.
        bandwidth : float
            s of the kernel ``exp(-||x - z||^2 / (2*s^2))``.
        regularization : float
            What multiplies the squared norm of the private model, its mean squared error beside it.
        noise_scale : float
            Of the Laplace noise in a prediction, >= 0.
        size : int
            T, 2,000 at most.
        rng : numpy.random.Generator

        Raises
        ------
        NotSupportedError
            If there are more points, or private rows, than dense kernels serve.
        ParameterError
            If a number is out of its range.
        """
        check_positives(bandwidth=bandwidth, regularization=regularization)
        check_nonnegative("noise_scale", noise_scale)
        private_rows, public_rows = np.asarray(X, dtype=float), np.asarray(points, dtype=float)
        _check_size(size)
        _check_size(len(private_rows))
        gamma = 1.0 / (2.0 * bandwidth**2)
        model = KernelRidge(alpha=regularization * len(private_rows), kernel="rbf", gamma=gamma)
        dual = model.fit(private_rows, y).dual_coef_
        norm = np.sqrt(dual @ rbf_kernel(private_rows, gamma=gamma) @ dual)
        drawn = draw_rows(public_rows, np.zeros(len(public_rows)), size, rng)[0]
        noisy = model.predict(drawn) + rng.laplace(scale=noise_scale, size=(2, size))
        return cls(rbf_kernel(drawn, gamma=gamma), noisy[0], noisy[1], float(norm))

    def declare(self, formulation: str) -> cp.Problem:
        """Return the problem with the first predictions; decomposing the kernel is part of it."""
        if formulation not in self.formulations:
            raise unknown_formulation(self, formulation)
        # Not from the cached basis: who declares this has to decompose the kernel first.
        problem = declare_fit(self.kernel, self.max_norm, cast(FitFormulation, formulation))
        problem.fit_to(self.predictions)
        return problem

    def change(self, problem: cp.Problem) -> None:
        """Take predictions with other noise."""
        assert isinstance(problem, ConstrainedFit)
        problem.fit_to(self.changed_predictions)

    def answer(self, problem: cp.Problem) -> Floats:
        """Return f at the points, followed by its norm, shape (T + 1,)."""
        assert isinstance(problem, ConstrainedFit)
        return np.append(numbers(problem.values), numbers(problem.norm))

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the squared distance to the predictions."""
        predictions = self.changed_predictions if changed else self.predictions
        return float(np.sum((answer[:-1] - predictions) ** 2))

    def scale(self, changed: bool) -> float:
        """Return the objective of f = 0; that of the best f is zero if it may pass all points."""
        predictions = self.changed_predictions if changed else self.predictions
        return float(predictions @ predictions)

    def violation(self, answer: Floats) -> float:
        """Return by how much the norm exceeds its bound."""
        return max(0.0, float(answer[-1]) / self.max_norm - 1.0)

    def exact(self, changed: bool) -> Floats:
        """Return the fit by its multiplier."""
        predictions = self.changed_predictions if changed else self.predictions
        beta = self._basis.fit(predictions, self.max_norm)
        return np.append(self._basis.values(beta), np.linalg.norm(beta))

    @cached_property
    def _basis(self) -> KernelBasis:
        return KernelBasis(self.kernel)


def _check_size(size: int) -> None:
    if size > LARGEST:
        raise NotSupportedError(
            f"size is {size}: the dense kernel of so many points would have {size**2:,} entries; "
            f"take {LARGEST:,} points at most"
        )
