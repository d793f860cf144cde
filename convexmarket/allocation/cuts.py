r"""Lower bounds on the objective at every eta, computed from a solve at one eta.

Write the market as ``min F(a, eps, s)`` over the simplex with ``eps = eta*a`` and ``s = 1/eta``,
and its constraints as ``h(a, eps, s) <= 0``. For any multipliers ``y >= 0`` the Lagrangian
``L = F + y'h`` is convex in ``(a, eps, s)`` as three separate unknowns. A cut keeps one spread term
R and replaces all other terms by affine minorants (:mod:`convexmarket.allocation.minorants`),

.. math:: D(\eta) = \mathrm{const} + \min_{a \in \Delta}\{R(a) + (g_a + \eta g_\epsilon)^\top a\}
          + g_s/\eta .

The minimum over the simplex is concave in eta, so a chord bounds D on an interval. D is a lower
bound whatever the solver returns. If the solver is exact, D equals the optimal value at its eta. If
D is unbounded below for large eta, the solve gives a second cut (docs/theory.md, section 9.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import newton_krylov

from convexmarket.allocation.minorants import Hints, Minorants
from convexmarket.allocation.simplex import embed
from convexmarket.allocation.views import MarketExpressions
from convexmarket.terms.pieces import value_of

__all__ = ["KeptSpreadCut", "Linearizer"]

Floats = NDArray[np.float64]

#: Share of equal weights in tangent points, because an entropy has no gradient at weight zero.
_INWARDS = 1e-9
#: Weights are refined if the relative gap between the objective and the cut is in this interval.
_SHORT = 1e-7, 1e-2
#: Smaller fractions of the average weight are refined only if their marginal costs are low.
_SELLS = 1e-6
#: Relative step of finite differences, and number of iterations of the conjugate residual method.
_STEP, _RESIDUALS = 1e-5, 20
#: Bound on the relative rounding error of the sums in a cut.
_ROUNDING = 4e-15


@dataclass(eq=False)
class KeptSpreadCut:
    """A lower bound ``const + W(eta) + noise/eta`` on the objective for every eta.

    W is the minimum of a spread term plus linear costs, ``costs + eta*slopes`` (g_a and g_eps of
    the active sellers). ``spread`` maps linear costs to that minimum, or to a lower bound on it;
    chords of lower bounds on a concave function are lower bounds. ``price`` is the multiplier of
    ``sum a = 1`` at the point of the tangent. ``tail`` is the eta of the solve, and another cut
    that is valid above this eta. ``least`` is the absolute minimum of the spread. All values are
    reduced by a bound on rounding errors.
    """

    const: float
    noise: float
    costs: Floats
    slopes: Floats
    spread: Callable[[Floats], Floats | float]
    price: float
    tail: tuple[float, KeptSpreadCut] | None = None
    least: float | None = None
    _values: dict[float, float] = field(default_factory=dict, init=False)

    @cached_property
    def _sizes(self) -> tuple[float, float]:
        """The sizes of rounding errors, excluding those of large costs, at eta = 0 and per eta."""
        costs, slopes = (2.0 * max(-float(part.min()), 0.0) for part in (self.costs, self.slopes))
        if self.least is None:
            self.least = abs(float(self.spread(0.0 * self.costs)))
        return abs(self.const) + self.least + costs, slopes

    def _concave(self, eta: float) -> float:
        """Compute ``const + W(eta)`` minus a bound on its rounding error.

        The costs of positive weights are at most the minimum minus the minimum of the spread, up to
        negative parts, so relative errors of larger costs have no effect.
        """
        if eta not in self._values:
            value = float(self.spread(self.costs + eta * self.slopes))
            size = abs(value) + self._sizes[0] + eta * self._sizes[1]
            self._values[eta] = _proven(self.const + value - _ROUNDING * size)
        return self._values[eta]

    def __call__(self, eta: float) -> float:
        """Return the lower bound at an eta."""
        noise = self.noise / eta
        return _proven(self._concave(eta) + noise - _ROUNDING * abs(noise))

    def minimum(self, low: float, high: float) -> tuple[float, float]:
        """Return the eta in [low, high] that minimises a lower bound, and the minimum."""
        if low == high:
            return low, self(low)
        eta, value = KeptSpreadCut.interval_bound(self, self, low, high)
        if self.tail is not None and self.tail[0] <= low:
            value = max(value, self.tail[1].minimum(low, high)[1])
        return eta, value

    def blend(self, other: KeptSpreadCut, share: float) -> KeptSpreadCut:
        """Return the cut for averages of the multipliers, where ``other`` has weight ``share``."""
        mixed = {
            name: (1 - share) * getattr(self, name) + share * getattr(other, name)
            for name in ("const", "noise", "costs", "slopes")
        }
        return replace(self, **mixed, tail=None)

    def interval_bound(self, other: KeptSpreadCut, low: float, high: float) -> tuple[float, float]:
        """Minimise the bound that moves from this cut at low to another at high (eta, value).

        The costs of averaged multipliers are quadratic in eta. They are below their chord by at
        most ``(high - low)/4`` times the increase of the slopes. So is the concave minimum.
        """
        start, width, more, dip = self._concave(low), high - low, 0.0, 0.0
        if high < np.inf:
            slope, more = (other._concave(high) - start) / width, (other.noise - self.noise) / width
            if other is not self:
                dip = max(float((other.slopes - self.slopes).max()), 0.0) * width / 4
        else:  # the slope of the concave part as eta tends to infinity
            slope = float(self.slopes.min())
        curved = self.noise - more * low  # the noise changes by ``more`` for each unit of eta

        def value(t: float) -> float:
            rise = slope * (t - low) if slope else 0.0
            rest = curved / t if t > 0 else float(np.copysign(np.inf, curved)) if curved else 0.0
            size = abs(start - dip) + abs(more) + abs(rise) + abs(rest)
            error = _ROUNDING * size if size < np.inf else 0.0
            return _proven(start - dip + more + rise + rest - error)

        points = [low, high]
        if slope > 0 and curved > 0:
            points.append(min(max(float(np.sqrt(curved / slope)), low), high))
        return min(((t, value(t)) for t in points), key=lambda point: point[1])


def _proven(bound: float) -> float:
    """Return the bound, or -inf if it is NaN because the multipliers overflow."""
    return bound if bound == bound else -np.inf


class Linearizer:
    """Builder of cuts from points and multipliers. Cuts keep one spread term of the market.

    An affine function is a vector of its constant, its slope in 1/eta, and its slopes in the
    weights and in the guarantees of the active sellers.
    """

    def __init__(self, view: MarketExpressions) -> None:
        self.view = view
        self._minorants = Minorants(view.unknowns)
        even = np.zeros(view.active.size)
        able = [part for part in view.terms if part[1].simplex_minimum(1.0, even) is not None]
        # Keep a strictly convex spread term if there is one, not a piecewise linear term.
        self._spread = next(iter([part for part in able if not part[2].is_pwl()] or able), None)

    def cut(
        self, weights: Floats, eta: float, multipliers: Sequence[Floats | None], hints: Hints
    ) -> KeptSpreadCut:
        """Return the cut at a point, which touches the objective if the multipliers are optimal.

        Each constraint of the view has a multiplier; None stands for zero. ``hints`` are the
        multipliers at the atoms with kinks. A point whose cut is not tight is refined.
        """
        view, point = self.view, weights[self.view.active]
        point = (1 - _INWARDS) * point + _INWARDS / point.size
        parts = view.parts(embed(point, view.active), eta)
        value, scale = sum(parts), sum(map(abs, parts)) or 1.0

        def bounds_at(point: Floats) -> Floats:
            return self.bounds(point, eta, multipliers, hints, view.terms)

        def marginal(point: Floats) -> Floats:
            costs, slopes = np.split(bounds_at(point).sum(axis=0)[2:], 2)
            return costs + eta * slopes

        cut = self._cut(point, eta, bounds_at(point))
        if not _SHORT[0] < (value - cut(eta)) / scale < _SHORT[1]:
            return cut
        point = _polished(point, marginal)
        return max(cut, self._cut(point, eta, bounds_at(point)), key=lambda each: each(eta))

    def bounds(
        self,
        point: Floats,
        eta: float,
        multipliers: Sequence[Floats | None],
        hints: Hints,
        terms: Any,
    ) -> Floats:
        """Return three minorants at a point, whose sum is a lower bound on the Lagrangian.

        The second minorant bounds the terms that depend only on the guarantees, minus their least
        values, which are part of the first minorant. Multiplied by any factor in [0, 1], the second
        minorant remains valid. The third minorant bounds the kept term.
        """
        view = self.view
        view.place(embed(point, view.active), eta)
        bounds = np.zeros((3, 2 + 2 * point.size))
        for part in terms:
            least = self._least(part[2])
            kind = 2 if part is self._spread else 1 if np.isfinite(least) else 0
            bounds[kind] += self.minorant(part[2], 1.0, hints)
            if kind == 1:
                bounds[:2, 0] += least, -least
        for item, dual in zip(view.flat_constraints(), multipliers, strict=True):
            if dual is not None and np.all(np.isfinite(dual)):
                unequal = isinstance(item, cp.constraints.Inequality)
                dual = np.maximum(dual, 0.0) if unequal else dual
                bounds[int(view.bounds_epsilon(item))] += self.minorant(item.expr, dual, hints)
        return bounds

    def _least(self, expression: cp.Expression) -> float:
        """Return a lower bound on a term that depends only on the guarantees, -inf if unknown."""
        if not all(variable is self.view.epsilon for variable in expression.variables()):
            return -np.inf
        if expression.is_nonneg():
            return 0.0
        const, _, *slopes = self.minorant(expression, 1.0, {})
        return const if min(slopes) >= 0 else -np.inf

    def _cut(self, point: Floats, eta: float, bounds: Floats) -> KeptSpreadCut:
        """Build a cut from three minorants at a point, and a cut for large eta if possible."""
        rest, total = bounds[0], bounds[0] + bounds[1]
        costs, slopes = np.split(total[2:] + bounds[2, 2:], 2)
        price, tail = float((costs + eta * slopes) @ point), None
        costs, slopes = np.split(total[2:], 2)
        if np.all(rest[2 + point.size :] >= 0):
            # A term with the minorant ``c + v'eps`` and the smallest value b is above
            # ``(1 - k)*b + k*(c + v'eps)`` for k = eta_0/eta, which is ``b + k*c + eta_0*v'a``.
            noise, flat = rest[1] + eta * bounds[1, 0], rest[2 : 2 + point.size] + eta * slopes
            parts = float(rest[0]), float(noise), flat, 0.0 * slopes
            tail = eta, KeptSpreadCut(*parts, self._minimum, price)
        numbers = float(total[0]), float(total[1])
        return KeptSpreadCut(*numbers, costs, slopes, self._minimum, price, tail)

    def _minimum(self, costs: Floats) -> Floats | float:
        """Return the minimum over the simplex of the kept spread plus linear costs."""
        if self._spread is None:
            return float(costs.min())
        weight, term, _ = self._spread
        everyone = np.full(self.view.active.size, np.inf)
        everyone[self.view.active] = costs
        least = term.simplex_minimum(value_of(weight), everyone)
        assert least is not None  # checked in __init__
        return least

    def minorant(self, expression: cp.Expression, dual: Floats | float, hints: Hints) -> Floats:
        """Return the affine minorant of ``dual'expression`` as a vector."""
        const, (weights, epsilon, inverse) = self._minorants(expression, dual, hints)
        active, unit = self.view.active, self.view.inverse_scale
        return np.concatenate(([const], inverse / unit, active.size * weights, epsilon[active]))


def _polished(a: Floats, marginal: Callable[[Floats], Floats]) -> Floats:
    """Return weights near ``a`` at which the marginal costs of the sellers are closer to equal.

    A solver's weights, and the tangents at them, have half as many correct digits as the objective.
    One Newton step for the Lagrangian restores these digits. The lower bound is valid at any
    weights.
    """
    here = marginal(a)
    sells = (a.size * a > _SELLS) | (here < here @ a)
    unit = np.where(sells, np.sqrt(a), 0.0)
    sum_ = unit / np.linalg.norm(unit)

    def level(u: Floats) -> Floats:  # project on changes that preserve the sum of the weights
        return u - sum_ * (sum_ @ u)

    def excess(u: Floats) -> Any:
        return level(unit * marginal(a + unit * level(u)))

    with suppress(ValueError):  # a marginal cost is not finite
        how: Any = {"method": "minres", "line_search": None, "iter": 1}
        how |= {"rdiff": _STEP, "inner_maxiter": _RESIDUALS}
        step = unit * level(np.asarray(newton_krylov(excess, 0.0 * a, **how)))
        return a + step / max(1.0, 2.0 * np.max(-step[sells] / a[sells], initial=0.0))
    return a
