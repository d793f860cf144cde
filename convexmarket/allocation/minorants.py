r"""Affine minorants of convex CVXPY expressions, including at kinks.

The subgradient that CVXPY returns at a kink rarely proves a tight bound. Every atom with a kink (a
maximum, a norm, a sum of largest entries) is the support function of a set V,
``f(x) = max over v in V of v'x``, so **any** v in V proves ``f(x) >= v'x``. :class:`Lifted`
replaces each argument of such an atom by a variable. The multiplier of their equation approximates
the best v, and :class:`Minorants` projects it on V (docs/theory.md, section 9.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.wraps import nonneg_wrap, nonpos_wrap
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.cvxcore.python.canonInterface import get_problem_matrix
from cvxpy.expressions.leaf import Leaf
from cvxpy.lin_ops.lin_op import CONSTANT_ID
from cvxpy.reductions.inverse_data import InverseData
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import isotonic_regression

from convexmarket.allocation.solver_calls import run_solver
from convexmarket.errors import SolverError

__all__ = ["ROUNDED", "Computed", "Hints", "Lifted", "Minorants"]

Floats = NDArray[np.float64]
#: Multipliers of the link of each atom with a kink, indexed by the id of the atom.
Hints = Mapping[int, Floats]

#: Number that replaces zeros in the arguments of atoms without a gradient at zero.
_TINY = 1e-200
#: Absolute value of a number with a wrong sign that is attributed to rounding errors.
ROUNDED = 1e-10


# ------------------------------------------------- atoms that are support functions: f(x) = max v'x


def _some(atom: Any, v: Floats) -> Floats:
    """Map each row to a v with ``0 <= v <= 1, sum v = k``, for sums of the k largest entries."""
    k = min(float(getattr(atom, "k", 1.0)), v.shape[1])
    v = np.clip(v, 0.0, 1.0)
    total = v.sum(axis=1, keepdims=True)
    span = np.maximum(v.shape[1] - total, k - total)
    raised = v + (1.0 - v) * np.divide(k - total, span, out=np.zeros_like(total), where=span > 0)
    return np.where(total > k, v * (k / np.maximum(total, k)), raised)


def _box(_: Any, v: Floats) -> Floats:
    """Clip each entry to [-1, 1], the set of the absolute value."""
    return np.clip(v, -1.0, 1.0)


def _ball(atom: Any, v: Floats) -> Floats:
    """Scale rows to lie in the unit ball of the dual norm, for a p-norm or the maximum norm."""
    p = float(getattr(atom, "p", np.inf))
    size = np.linalg.norm(v, 1 if p == np.inf else p / (p - 1), axis=1, keepdims=True)
    return v / np.maximum(size, 1.0)


def _rearrangements(atom: Any, v: Floats) -> Floats:
    """Project a row on the convex hull of the permutations of the weights, padded with zeros."""
    given = _flat(atom.args[1].value)
    weights = np.sort(np.append(given, np.zeros(v.size - given.size)))
    v = np.clip(v, weights[0], weights[-1])  # avoids cancellation far from the hull
    order = np.argsort(-v[0])
    v[0, order] -= isotonic_regression(v[0][order] - weights[::-1], increasing=False).x
    return v


def _spectrum(project: Callable[[Any, Floats], Floats]) -> Callable[[Any, Floats], Floats]:
    """Return a function that projects the eigenvalues or the singular values of a matrix."""

    def apply(atom: Any, v: Floats) -> Floats:
        matrix = v.reshape(atom.args[0].shape, order="F")
        if type(atom).__name__.startswith("lambda"):
            values, left = np.linalg.eigh((matrix + matrix.T) / 2)
            right = left.T
        else:
            left, values, right = np.linalg.svd(matrix, full_matrices=False)
        values = project(atom, values[None])[0]
        return ((left * values) @ right).reshape(1, -1, order="F")

    return apply


def _member(atom: Any, v: Floats) -> Floats:
    """Project a row on the set of a support function by a convex program."""
    x, items = atom._parent.x, atom._parent.constraints
    off = cp.norm(cp.vec(x, order="F") - v[0])  # a squared norm would halve the digits
    run_solver(cp.Problem(cp.Minimize(off), items), "CLARABEL")
    return _flat(x.value)[None]


#: Functions that project rows of multipliers on V, by the name of the atom.
_SUPPORT: dict[str, Callable[[Any, Floats], Floats]] = {
    **dict.fromkeys(["abs", "norm1"], _box),
    **dict.fromkeys(["max", "min", "SumLargest", "sum_largest"], _some),
    **dict.fromkeys(["norm_inf", "Pnorm", "PnormApprox"], _ball),
    **dict.fromkeys(["lambda_max", "lambda_sum_largest"], _spectrum(_some)),
    "sigma_max": _spectrum(_ball),
    "normNuc": _spectrum(_box),
    "dotsort": _rearrangements,
    "SuppFuncAtom": _member,
}


def _has_kink(expression: Any) -> bool:
    """Whether an expression is a support function with a known set."""
    known = type(expression).__name__ in _SUPPORT and not expression.is_constant()
    return known and float(getattr(expression, "p", np.inf)) > 1


def _rows(atom: Any) -> NDArray[np.intp]:
    """Return the positions of the argument's entries on which each entry of the atom depends."""
    shape, axis = atom.args[0].shape, getattr(atom, "axis", None)
    place = np.arange(atom.args[0].size).reshape(shape, order="F")
    if isinstance(atom, cp.abs):
        return place.reshape(-1, 1, order="F")
    axes = np.arange(len(shape)) if axis is None else np.atleast_1d(axis)
    return np.moveaxis(place, axes, range(-axes.size, 0)).reshape(atom.size, -1, order="F")


def _plain(atom: Any) -> cp.Expression:
    """Replace an atom that has a wrong gradient in CVXPY by equivalent atoms."""
    name = type(atom).__name__
    if isinstance(atom, cp.quad_over_lin) and atom.axis is not None:
        x = cp.vec(atom.args[0], order="F")
        squares = [cp.quad_over_lin(x[row], atom.args[1]) for row in _rows(atom)]
        return cp.reshape(cp.hstack(squares), atom.shape, order="F")
    if name == "cummax":
        x = atom.args[0] if atom.ndim < 2 or atom.axis == 0 else atom.args[0].T
        parts = [cp.max(x[: i + 1], axis=0) for i in range(x.shape[0])]
        running = cp.vstack(parts) if x.ndim == 2 else cp.hstack(parts)
        return running if x is atom.args[0] else running.T
    if not isinstance(atom, Elementwise):
        return atom
    ones = np.ones(atom.shape)  # CVXPY's gradients require arguments of equal shape
    whole = [x if x.shape == atom.shape else cp.multiply(ones, x) for x in atom.args]
    if name not in ("maximum", "minimum"):
        return atom if all(x.shape == atom.shape for x in atom.args) else atom.copy(whole)
    rows = cp.vstack([cp.vec(x, order="F") for x in whole])
    largest = (cp.max if name == "maximum" else cp.min)(rows, axis=0)
    extreme: cp.Expression = cp.reshape(largest, atom.shape, order="F")
    wrap = nonneg_wrap if atom.is_nonneg() else nonpos_wrap if atom.is_nonpos() else None
    return extreme if wrap is None else wrap(extreme)


class Computed(cp.CallbackParam):
    """A parameter with a computed value."""

    def _validate_value(self, val: Any, sparse_path: bool = False) -> Any:
        """Check that a value is not NaN and has the right sign, much faster than CVXPY."""
        if not isinstance(val, np.ndarray | float):
            return super()._validate_value(val, sparse_path)
        sign = int(self.is_nonneg()) - int(self.is_nonpos())
        if not np.all(-sign * val <= ROUNDED if sign else val == val):
            raise ValueError(f"the value of {self.name()} is NaN or has a wrong sign")
        return val


class Lifted:
    """Copier of expressions that replaces leaves and the arguments of atoms with kinks.

    ``leaves`` maps ids of variables and parameters to their replacements. With ``kinks``, the
    arguments of atoms with kinks become variables, defined by :attr:`links`. An expression in only
    parameters becomes one parameter with the same value, so that the problem is compiled once.
    Without ``kinks``, atoms with a wrong gradient in CVXPY are replaced.
    """

    def __init__(self, leaves: Mapping[int, cp.Expression], kinks: bool = True) -> None:
        self._leaves, self._kinks = leaves, kinks
        self._links: dict[int, tuple[cp.Constraint, float]] = {}

    @property
    def links(self) -> list[cp.Constraint]:
        """The constraints between the new variables and the arguments that they replace."""
        return [link for link, _ in self._links.values()]

    def hints(self, scale: float) -> Hints:
        """Return the multipliers of the links after a solve, multiplied by a scale."""
        return {
            key: sign * scale * _flat(link.dual_value) for key, (link, sign) in self._links.items()
        }

    def constraint(self, item: cp.Constraint) -> cp.Constraint:
        """Return a copy of an equality or inequality."""
        return type(item)(*map(self, item.args))

    def __call__(self, expression: Any) -> cp.Expression:
        """Return a copy of an expression."""
        if isinstance(expression, Leaf):
            return self._leaves.get(id(expression), expression)
        args = [self(argument) for argument in expression.args]
        if self._kinks and _has_kink(expression):
            args[0] = self._variable(expression, args[0])
        if any(new is not old for new, old in zip(args, expression.args, strict=True)):
            parent = getattr(expression, "_parent", None)  # the set of a support function
            copy = expression.copy(args) if parent is None else type(expression)(*args, parent)
            expression = copy
        if not expression.is_constant():
            return expression if self._kinks else _plain(expression)
        if not (self._kinks and expression.parameters()):
            return expression
        nonneg = expression.is_nonneg()
        sign = {"nonneg": nonneg, "nonpos": expression.is_nonpos() and not nonneg}
        return Computed(expression._value_impl, expression.shape, **sign)

    def _variable(self, atom: Any, argument: cp.Expression) -> cp.Variable:
        """Return a variable that replaces the first argument of an atom, and store their link."""
        old = atom.args[0]
        square = len(old.shape) == 2 and old.is_symmetric()
        variable = cp.Variable(old.shape, symmetric=square)
        if old.is_affine():
            self._links[id(atom)] = variable == argument, -1.0
        elif old.is_convex():
            self._links[id(atom)] = argument <= variable, 1.0
        else:
            self._links[id(atom)] = variable <= argument, -1.0
        return variable


class Minorants:
    """Affine minorants of convex expressions, tight at the current values of the unknowns."""

    def __init__(self, unknowns: Sequence[cp.Variable]) -> None:
        _, self._columns, self._size, _ = InverseData.get_var_offsets(unknowns)
        self._tables: dict[int, tuple[Any, Any]] = {}  # of affine expressions
        self._tangents: dict[int, tuple[Any, ...]] = {}  # of affine atoms

    def __call__(
        self, expression: cp.Expression, dual: Floats | float, hints: Hints
    ) -> tuple[float, list[Floats]]:
        """Return the constant and slopes of an affine minorant of the convex ``dual'expression``.

        At an atom with a kink, the slope is near its hint or, without a hint, the centre of its
        set.
        """
        slopes = np.zeros(self._size)
        weights = np.broadcast_to(dual, expression.shape).ravel(order="F")
        const = self._add(expression, weights, hints, slopes)
        return const, np.split(slopes, [*self._columns.values()][1:])

    def _add(self, expression: Any, dual: Floats, hints: Hints, slopes: Floats) -> float:
        """Add the slopes of a minorant of ``dual'expression``; return the minorant's constant."""
        if not dual.any():
            return 0.0
        if expression.is_constant():
            return float(dual @ _flat(expression._value_impl()))
        if expression.is_affine() and (table := self._table(expression)) is not None:
            sums = table @ dual
            slopes += sums[:-1]
            return float(sums[-1])
        if _has_kink(expression):
            part = _by_conjugate(expression, dual, hints.get(id(expression)))
            return self._add(expression.args[0], part, hints, slopes)
        _, value, values, jacobians = self._tangents.get(id(expression)) or _tangent(expression)
        if isinstance(expression, AffAtom):
            self._tangents[id(expression)] = expression, value, values, jacobians
        const, parts = float(dual @ _flat(value)), []
        for argument, given, jacobian in zip(expression.args, values, jacobians, strict=False):
            if not argument.is_constant():
                part = jacobian * dual if np.ndim(jacobian) == 0 else jacobian @ dual
                parts.append((argument, np.ravel(part)))
                const -= float(parts[-1][1] @ _flat(given))
        return const + math.fsum(self._add(x, part, hints, slopes) for x, part in parts)

    def _table(self, expression: Any) -> Any:
        """Return the coefficients of an affine expression and, in the last row, its constants."""
        if id(expression) not in self._tables:
            plain = expression._max_ndim() <= 2 and expression._all_support_cpp()
            table, backend = None, None if plain else "SCIPY"
            with suppress(NotImplementedError):  # by nonlinear atoms, such as a power of one
                given = [expression.canonical_form[0]], self._size, self._columns
                one = {CONSTANT_ID: 1}, {CONSTANT_ID: 0}  # the size and column of the constant 1
                table = get_problem_matrix(*given, *one, expression.size, backend)
                table = table.reshape((self._size + 1, expression.size)).tocsr()
            self._tables[id(expression)] = expression, table
        return self._tables[id(expression)][1]


def _flat(value: Any) -> Floats:
    """Return a value as a vector in CVXPY's column order."""
    if value is None:
        raise SolverError("an expression has no value at the solver's point")
    if sparse.issparse(value):
        value = value.todense()  # type: ignore[attr-defined]
    return np.asarray(value, dtype=float).ravel(order="F")


def _tangent(atom: Any) -> tuple[Any, Any, list[Any], list[Any]]:
    """Return an atom, its value, the values of its arguments, and the Jacobians of CVXPY.

    An affine atom has the same Jacobians everywhere, and its tangent is returned at zero.
    """
    values, value, jacobians = [x._value_impl() for x in atom.args], atom._value_impl(), [None]
    if isinstance(atom, AffAtom):
        values = [x._value_impl() if x.is_constant() else np.zeros(x.shape) for x in atom.args]
        value = atom.numeric(values)  # type: ignore[attr-defined]
    with suppress(NotImplementedError):
        jacobians = list(atom._grad(values))
        if any(matrix is None for matrix in jacobians):  # for example, of an entropy at zero
            values = [np.where(np.equal(given, 0), _TINY, given) for given in values]
            value, jacobians = atom.numeric(values), list(atom._grad(values))
    if any(matrix is None for matrix in jacobians):
        raise SolverError(f"{atom} has no gradient at the solver's point")
    return atom, value, values, jacobians


def _by_conjugate(atom: Any, dual: Floats, hint: Floats | None) -> Floats:
    """Return the slopes of ``dual'(v'x)``, where v in V is near the multipliers or the centre."""
    rows, argument, slopes = _rows(atom), atom.args[0], np.zeros(atom.args[0].size)
    given = slopes if hint is None else hint
    v = np.divide(given[rows], dual[:, None], out=np.zeros(rows.shape), where=dual[:, None] != 0)
    if not argument.is_affine():  # the sign of v follows from CVXPY's rules
        positive = (dual[:, None] > 0) == argument.is_convex()
        v = np.where(positive, np.maximum(v, 0.0), np.minimum(v, 0.0))
    slopes[rows] = dual[:, None] * _SUPPORT[type(atom).__name__](atom, v)
    return slopes
