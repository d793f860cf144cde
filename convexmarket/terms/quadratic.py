"""A quadratic form of the weights, for correlated rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cvxpy as cp
import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from convexmarket.errors import ParameterError
from convexmarket.terms.base import Quantities, Term
from convexmarket.terms.values import ByValue, checked_matrix

__all__ = ["QuadraticSpread"]

#: Relative to the largest entry, or eigenvalue: how far from symmetric, and how negative.
_ROUNDING = 1e-9
#: Eigenvalues this small, relatively, are zeros.
_ZERO = 1e-15

#: Dense or sparse.
Matrix = Any


@dataclass(frozen=True, eq=False, repr=False)
class QuadraticSpread(ByValue, Term):
    """A quadratic form of the weights, ``a' Sigma a``: the variance of the weighted average.

    With the covariance of the sellers' rows as Sigma, it generalises :class:`SquaredSpread` to
    dependent rows, such as those of a household. It is the risk of a portfolio (Markowitz, 1952).

    Parameters
    ----------
    Sigma : array_like or scipy sparse matrix, shape (m, m)
        Public, symmetric and positive semidefinite, up to 1e-9 of its largest entry or eigenvalue.
        Blocks (households) are factored separately, so that a sparse matrix may be large.

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.terms.QuadraticSpread(np.eye(3)) + cm.Noise() + 0.1 * cm.Payments()
    >>> cm.allocate(cm.Market(sellers, objective)).weights.round(3)
    array([0.474, 0.359, 0.168])
    """

    formula_template = "a'Sigma a"
    each_seller = ("Sigma", "Sigma")
    Sigma: Matrix
    _factor: sparse.csr_array = field(init=False)

    def __post_init__(self) -> None:
        Sigma = checked_matrix("Sigma", self.Sigma, "a row and a column for each seller")
        if Sigma.shape[0] != Sigma.shape[1]:
            raise ParameterError(f"Sigma has shape {Sigma.shape}; give a square matrix")
        object.__setattr__(self, "Sigma", Sigma)
        object.__setattr__(self, "_factor", _factor(sparse.csr_array(Sigma)))

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return ``||F a||^2`` with ``F'F = Sigma``."""
        return cp.sum_squares(self._factor @ quantities.weights)

    def __repr__(self) -> str:
        return f"QuadraticSpread({self.Sigma.shape[0]} sellers)"


def _factor(Sigma: sparse.csr_array) -> sparse.csr_array:
    """Factor Sigma as ``F'F``; the rows of F are scaled eigenvectors of the blocks."""
    m, largest = Sigma.shape[0], float(abs(Sigma).max())
    skew = float(abs(Sigma - Sigma.T).max())
    if largest == 0:
        raise ParameterError("Sigma is zero; leave the term out")
    if skew > _ROUNDING * largest:
        raise ParameterError(
            f"Sigma and its transpose differ by {skew:g}; give a symmetric matrix, such as "
            "(Sigma + Sigma.T)/2"
        )
    whole = sparse.csr_array((Sigma + Sigma.T) / 2)
    _, label = connected_components(whole, directed=False)
    order = np.argsort(label, kind="stable")  # sellers, block by block
    ends = np.cumsum(np.bincount(label))
    sorted_ = whole[order][:, order].tocsr()
    blocks = [
        (order[i:j], *np.linalg.eigh(sorted_[i:j, i:j].toarray()))
        for i, j in zip(np.append(0, ends[:-1]), ends, strict=True)
    ]
    eigenvalues = np.concatenate([lengths for _, lengths, _ in blocks])
    if eigenvalues.min() < -_ROUNDING * eigenvalues.max():
        raise ParameterError(
            f"Sigma has the eigenvalue {eigenvalues.min():g} beside {eigenvalues.max():g}; give a "
            "positive semidefinite matrix, such as a covariance"
        )
    least = _ZERO * eigenvalues.max()
    factors = []
    for members, lengths, vectors in blocks:
        rows = np.sqrt(lengths[lengths > least])[:, None] * vectors.T[lengths > least]
        entries = np.nonzero(np.ones_like(rows))
        placed = sparse.csr_array((rows.ravel(), (entries[0], members[entries[1]])), (len(rows), m))
        factors.append(placed)
    return sparse.csr_array(sparse.vstack(factors))
