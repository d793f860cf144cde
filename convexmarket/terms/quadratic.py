"""A spread for sellers whose rows are alike: a quadratic form of the weights."""

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

    With Sigma the covariance of the sellers' rows it is what :class:`SquaredSpread` is for
    independent rows: two members of a household, whose rows say the same, count as little more than
    one. It is the risk of a portfolio (Markowitz, 1952).

    Parameters
    ----------
    Sigma : array_like or scipy sparse matrix, shape (m, m)
        Public, symmetric and positive semidefinite, either up to 1e-9 of its largest entry or
        eigenvalue. Blocks (households) are factored one by one, so that a sparse matrix may be
        large.

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.4, 0.9], prior=cm.Uniform(0, 1))
    >>> objective = cm.terms.QuadraticSpread(np.eye(3)) + cm.Noise() + 0.1 * cm.Payments()
    >>> cm.allocate(cm.Market(sellers, objective)).weights.round(3)
    array([0.474, 0.359, 0.168])
    """

    formula = "a'Sigma a"
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
    """Return F with ``F'F = Sigma``, whose rows are scaled eigenvectors of the blocks of Sigma."""
    m, largest = Sigma.shape[0], float(abs(Sigma).max())
    skew = float(abs(Sigma - Sigma.T).max())
    if largest == 0:
        raise ParameterError("Sigma is zero; leave the term out")
    if skew > _ROUNDING * largest:
        raise ParameterError(
            f"Sigma and its transpose differ by {skew:g}; give a symmetric matrix, such as "
            "(Sigma + Sigma.T)/2"
        )
    entries = sparse.coo_array((Sigma + Sigma.T) / 2)
    _, label = connected_components(entries, directed=False)
    order = np.argsort(label, kind="stable")  # sellers, block by block
    sizes = np.bincount(label)
    starts = np.cumsum(sizes) - sizes
    place = np.empty(m, dtype=int)  # of a seller within its block
    place[order] = np.arange(m) - np.repeat(starts, sizes)
    row, column = entries.coords
    found, values = [], []
    for size in np.unique(sizes):  # blocks of one size are factored together
        blocks = np.flatnonzero(sizes == size)
        dense = np.zeros((blocks.size, size, size))
        of_size = sizes[label[row]] == size
        i, j = row[of_size], column[of_size]
        dense[np.searchsorted(blocks, label[i]), place[i], place[j]] = entries.data[of_size]
        lengths, vectors = np.linalg.eigh(dense)
        values.append(lengths.ravel())
        members = order[starts[blocks][:, None] + np.arange(size)]
        found.append((lengths, vectors, members))
    eigenvalues = np.concatenate(values)
    if eigenvalues.min() < -_ROUNDING * eigenvalues.max():
        raise ParameterError(
            f"Sigma has the eigenvalue {eigenvalues.min():g} beside {eigenvalues.max():g}; give a "
            "positive semidefinite matrix, such as a covariance"
        )
    least = _ZERO * eigenvalues.max()
    rows, columns, scaled, n_rows = [], [], [], 0
    for lengths, vectors, members in found:
        block, which = np.nonzero(lengths > least)
        size = members.shape[1]
        rows.append(np.repeat(n_rows + np.arange(block.size), size))
        columns.append(members[block].ravel())
        root = np.sqrt(lengths[block, which])
        scaled.append((root[:, None] * vectors[block, :, which]).ravel())
        n_rows += block.size
    data = (np.concatenate(scaled), (np.concatenate(rows), np.concatenate(columns)))
    return sparse.csr_array(data, shape=(n_rows, m))
