r"""Lower bounds on the objective for every eta at once, from one solve at one eta.

Write the market as ``min F(a, eps, s)`` over the simplex with ``eps = eta*a`` and ``s = 1/eta``,
its constraints ``h(a, eps, s) <= 0``. For any multipliers ``y >= 0`` the Lagrangian
``L = F + y'h`` is convex in ``(a, eps, s)`` as three separate unknowns. Keeping one spread term R
as it is and replacing all the rest by an affine minorant, which is its tangent where it is smooth
and chosen by multipliers at kinks (:mod:`convexmarket.allocation.minorants`),

.. math:: \mathrm{const} + (g_a + \eta\, g_\epsilon)^\top a + g_s/\eta

gives a bound on the objective at every eta,

.. math:: D(\eta) = \mathrm{const} + \min_{a \in \Delta}\{R(a) + (g_a + \eta g_\epsilon)^\top a\}
          + g_s/\eta .

The minimum over the simplex is concave in eta, and spread terms know it in closed form or by a
few Newton steps, so D is evaluated in O(m) and bounded on an interval by a chord. It is valid
whatever the solver returned; with its optimal weights and multipliers it touches the optimal
value at the eta of the solve, with the same slope (docs/theory.md, section 9).

Where there is a privacy cost u whose conjugate is known, a second cut keeps u instead, and the
higher of the two counts. With the multiplier tau of ``sum a = 1``,

.. math:: D = \mathrm{const} + \tau + g_s s - \sum_i \gamma\psi_i\,
          u^*\!\left(\frac{s(\tau - g_{a,i}) - g_{\epsilon,i}}{\gamma\psi_i}\right)

is concave in s, hence smallest at an end of every interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, minres

from convexmarket.allocation.minorants import Hints, Minorants, kinks_of
from convexmarket.allocation.views import JointView
from convexmarket.terms import Term
from convexmarket.terms.base import Number, value_of

__all__ = ["Cut", "KeptCostCut", "KeptSpreadCut", "Linearizer"]

Floats = NDArray[np.float64]
_Piece = tuple[Number, Term, cp.Expression]
Conjugate = Callable[[Floats], Floats]

#: Tangents are taken this far from the border, where an entropy has none.
_INWARDS = 1e-9
#: A cut below its point by between these, relatively, is taken at another, up to so many times.
_SHORT, _POLISHES = (1e-7, 1e-2), 2
#: Weights below this, relative to the average, stay as they are if nothing draws them up.
_SELLS = 1e-6
#: By which share of a weight a slope's change is measured, and how often.
_STEP, _RESIDUALS = 1e-5, 20


#: Bound on the relative error of a cut's sums in floating point.
_ROUNDING = 4e-15


class Cut:
    """A lower bound on the optimal objective for every eta, its own rounding included."""

    _affine: ClassVar[tuple[str, ...]]
    price: float

    def __call__(self, eta: float) -> float:
        """Return the bound at one eta."""
        raise NotImplementedError

    def minimum(self, low: float, high: float) -> tuple[float, float]:
        """Return (eta, value) of a lower bound over low <= eta <= high; ends may be 0 and inf."""
        raise NotImplementedError

    def blend(self, other: Cut, share: float) -> Cut:
        """Return the cut of the mean of two tangents, the other one with the given share.

        It is as valid as they are. Between the eta of two solves it comes close to the cut of a
        solve there, as multipliers change smoothly.
        """
        mixed = {
            name: (1 - share) * getattr(self, name) + share * getattr(other, name)
            for name in self._affine
        }
        return replace(self, **mixed)  # type: ignore[type-var]

    def bridge(self, other: Cut, low: float, high: float) -> tuple[float, float]:
        """Return (eta, value) of a lower bound between this cut's eta, low, and the other's, high.

        By multipliers that go from these to the other's as eta does.
        """
        return low, -np.inf


def segment_bound(
    start: float, slope: float, noise: float, low: float, high: float
) -> tuple[float, float]:
    """Return (t, value) of the least ``start + slope*(t - low) + noise/t`` for low <= t <= high.

    In closed form, for ``slope >= 0``, ``noise >= 0`` and ``0 <= low <= high``, high possibly inf.
    """
    stationary = np.sqrt(noise / slope) if slope > 0 else (np.inf if noise > 0 else low)
    t = float(min(max(stationary, low), high))
    if t == 0:
        return t, (np.inf if noise > 0 else start)
    rise = slope * (t - low) if slope > 0 else 0.0
    return t, float(start + rise + noise / t)


@dataclass(eq=False)
class KeptSpreadCut(Cut):
    """``const + W(eta) + noise/eta`` with W the minimum of a spread term plus linear costs.

    Attributes
    ----------
    const, noise : float
    costs, slopes : ndarray, shape (n,)
        g_a and g_eps of the sellers who can be bought from.
    spread : callable
        From linear costs, shape (n,), to the minimum over the simplex, or to less: between two
        bounds on a concave function their chord is one.
    price : float
        Multiplier of ``sum a = 1`` at the point of the tangent.
    tail : tuple of float, optional
        (eta_0, A, B): the bound ``A + B/eta`` for all ``eta >= eta_0``.
    """

    const: float
    noise: float
    costs: Floats
    slopes: Floats
    spread: Callable[[Floats], Floats | float]
    price: float
    tail: tuple[float, float, float] | None = None

    _affine = ("const", "noise", "costs", "slopes", "price")

    def __post_init__(self) -> None:
        self._known: dict[float, float] = {}
        self._steepest = float(self.slopes.min())
        self._size = abs(self.const) + float(np.max(np.abs(self.costs)))
        self._growth = float(np.max(np.abs(self.slopes)))

    def blend(self, other: Cut, share: float) -> Cut:
        """Return the cut of the mean of two tangents, without a tail."""
        return replace(cast("KeptSpreadCut", super().blend(other, share)), tail=None)

    def _concave(self, eta: float) -> float:
        """Compute the concave part and the constant, less a bound on the rounding of both."""
        if eta not in self._known:
            value = float(self.spread(self.costs + eta * self.slopes))
            error = _ROUNDING * (self._size + eta * self._growth + abs(value))
            self._known[eta] = self.const + value - error
        return self._known[eta]

    def __call__(self, eta: float) -> float:
        """Return the bound at one eta."""
        noise = self.noise / eta
        return self._concave(eta) + noise - _ROUNDING * abs(noise)

    def minimum(self, low: float, high: float) -> tuple[float, float]:
        """Return (eta, value) of the chord's minimum; beyond the last point, of a line's."""
        if low == high:
            return low, self(low)
        start = self._concave(low)
        if high < np.inf:
            slope = (self._concave(high) - start) / (high - low)
            return _least_of_chord(start, slope, self.noise, low, high)
        # A concave function never falls faster than its last slope.
        slope = self._steepest
        bounds = [(np.inf, -np.inf)]
        if slope >= 0:
            bounds.append(_least_of_chord(start, slope, self.noise, low, high))
        if self.tail is not None and low >= self.tail[0]:
            _, level, noise = self.tail
            bounds.append((np.inf, level) if noise >= 0 else (low, level + noise / low))
        return max(bounds, key=lambda bound: bound[1])

    def bridge(self, other: Cut, low: float, high: float) -> tuple[float, float]:
        """Return (eta, value) of a lower bound by the blend that follows eta from low to high.

        Its costs are quadratic in eta: at most ``(high - low)/4`` times what their slopes gain
        below their chord. The minimum over the simplex falls by no more, and is concave along it.
        """
        its, width = cast("KeptSpreadCut", other), high - low
        dip = max(float(np.max(its.slopes - self.slopes)), 0.0) * width / 4
        start, end = self._concave(low), its._concave(high)
        more = (its.noise - self.noise) / width
        chord = (end - start) / width
        return _least_of_chord(start - dip + more, chord, self.noise - more * low, low, high)


def _least_of_chord(
    start: float, slope: float, noise: float, low: float, high: float
) -> tuple[float, float]:
    """Return (t, value) of the least ``start + slope*(t - low) + noise/t`` for low <= t <= high."""
    if slope >= 0 and noise >= 0:
        return segment_bound(start, slope, noise, low, high)
    if slope < 0 <= noise:
        return high, start + slope * (high - low) + noise / high
    # noise < 0: both parts are concave, so that an end is smallest.
    if low == 0:
        return 0.0, -np.inf
    ends = [(low, start + noise / low)]
    if high < np.inf:
        ends.append((high, start + slope * (high - low) + noise / high))
    return min(ends, key=lambda end: end[1])


@dataclass(eq=False)
class KeptCostCut(Cut):
    """The bound that keeps the privacy cost u by its conjugate; concave in s = 1/eta."""

    const: float
    noise: float
    costs: Floats
    slopes: Floats
    weights: Floats
    conjugate: Conjugate
    price: float

    _affine = ("const", "noise", "costs", "slopes", "price")

    def __post_init__(self) -> None:
        free = self.weights <= 0
        if free.any():  # a higher price would have their privacy sold without limit
            self.price = min(self.price, float(self.costs[free].min()))

    def _at(self, s: float) -> float:
        reach = np.maximum(s * (self.price - self.costs) - self.slopes, 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lost = self.weights * self.conjugate(reach / self.weights)
            # A seller without virtual cost would be sold without limit.
            lost = np.where(self.weights > 0, lost, np.where(reach > 0, np.inf, 0.0))
        parts = self.const, self.price, self.noise * s, -float(lost.sum())
        return float(sum(parts) - _ROUNDING * sum(map(abs, parts)))

    def __call__(self, eta: float) -> float:
        """Return the bound at one eta."""
        return self._at(1.0 / eta)

    def minimum(self, low: float, high: float) -> tuple[float, float]:
        """Return (eta, value) of the smaller end; below any eta, of the bound without payments."""
        at_high = (high, self._at(0.0 if high == np.inf else 1.0 / high))
        if low > 0:
            return min((low, self._at(1.0 / low)), at_high, key=lambda end: end[1])
        if self.noise < 0:
            return 0.0, -np.inf
        gained = 0.0 if self.slopes.min() >= 0 else high * float(self.slopes.min())
        return 0.0, float(self.const + self.costs.min() + gained + self.noise / high)


class Highest(Cut):
    """The highest of several cuts of one solve, which are best at different eta."""

    def __init__(self, cuts: Sequence[Cut]) -> None:
        self.cuts = cuts
        self.price = cuts[0].price

    def __call__(self, eta: float) -> float:
        """Return the highest bound at one eta."""
        return max(cut(eta) for cut in self.cuts)

    def minimum(self, low: float, high: float) -> tuple[float, float]:
        """Return (eta, value) of the highest of their lower bounds."""
        return max((cut.minimum(low, high) for cut in self.cuts), key=lambda end: end[1])

    def blend(self, other: Cut, share: float) -> Cut:
        """Return the highest of the cuts of the means."""
        assert isinstance(other, Highest)
        pairs = zip(self.cuts, other.cuts, strict=True)
        return Highest([mine.blend(its, share) for mine, its in pairs])

    def bridge(self, other: Cut, low: float, high: float) -> tuple[float, float]:
        """Return (eta, value) of the highest of their lower bounds."""
        assert isinstance(other, Highest)
        pairs = zip(self.cuts, other.cuts, strict=True)
        return max((mine.bridge(its, low, high) for mine, its in pairs), key=lambda end: end[1])


class Linearizer:
    """Turns points and multipliers into cuts; knows which part of the market stays as it is."""

    def __init__(self, view: JointView) -> None:
        self.view = view
        self._minorants = Minorants(view.unknowns)
        able = [
            piece
            for piece in view.terms
            if piece[1].simplex_minimum(1.0, np.zeros(view.active.size)) is not None
        ]
        self._paid = [piece for piece in view.terms if piece[1].reports == "price"]
        self._conjugate = _common_conjugate(self._paid)
        # What is kept should be strictly convex, which the largest weight is not.
        strict = [piece for piece in able if not piece[2].is_pwl()]
        self._spread = next(iter(strict or ([] if self._conjugate else able)), None)
        self._keeps = [[self._spread]] if self._spread else []
        if self._conjugate:
            self._keeps.append(self._paid)

    @property
    def kept(self) -> list[cp.Expression]:
        """What stays as it is, and needs no multipliers."""
        return [self._spread[2]] if self._spread else []

    def cut(
        self,
        weights: Floats,
        eta: float,
        multipliers: list[Floats | None],
        hints: Hints | None = None,
        polish: bool = False,
        balance: bool = False,
    ) -> Cut:
        """Return the cut that touches the objective at a point.

        There is a multiplier for each constraint of the view; None leaves it out, which is always
        valid. ``hints`` are those at the atoms with kinks, whose own gradients are tried too. With
        ``polish`` the point is a solver's, nearly optimal, and another one nearby is taken if the
        cut proves more there. With ``balance`` the multipliers of constraints on 1/eta are scaled
        so that the bound does not depend on eta, as it does not at an optimum over eta.
        """
        view, n = self.view, self.view.scaled_weights.size
        point = np.where(view.active, weights, 0.0)
        point = (1 - _INWARDS) * point + _INWARDS * view.active / n
        view.place(point, eta)
        ways: list[Hints] = [hints, {}] if hints else [{}]
        value, scale = view.value(point, eta), view.size(point, eta)
        proof = multipliers, balance
        found = []
        for kept in self._keeps or [[]]:
            cuts = [self._cut(point, eta, kept, *proof, way) for way in ways]
            way, best = max(zip(ways, cuts, strict=True), key=lambda pair: pair[1](eta))
            near = point
            for _ in range(_POLISHES if polish else 0):
                if not _SHORT[0] < (value - best(eta)) / scale < _SHORT[1]:
                    break
                near = self._polished(near, eta, *proof, way)
                better = self._cut(near, eta, kept, *proof, way)
                if not better(eta) > best(eta):
                    break
                best = better
            found.append(best)
        return Highest(found) if len(found) > 1 else found[0]

    def _polished(
        self,
        point: Floats,
        eta: float,
        multipliers: list[Floats | None],
        balance: bool,
        hints: Hints,
    ) -> Floats:
        """Return a point nearby where those who sell have more nearly the same slope.

        A solver's weights have half as many digits as its objective, and a tangent there, without
        a kept term that is strictly convex, proves half as many. One step of Newton's method for
        the Lagrangian, by conjugate residuals, brings them back. Any point proves a bound.
        """
        active, n = self.view.active, self.view.scaled_weights.size

        def slopes(weights: Floats) -> Floats:
            everybody = np.zeros(active.size)
            everybody[active] = weights
            self.view.place(everybody, eta)
            rest, _, bounded = self._lagrangian([], multipliers, balance, hints)
            return self._slopes(rest + bounded, eta)

        a = point[active]
        here = slopes(a)
        if not np.isfinite(here).all():
            return point
        sells = (n * a > _SELLS) | (here < here @ a)
        unit = np.where(sells, np.sqrt(a), 0.0)
        sum_ = unit / np.linalg.norm(unit)

        def level(u: Floats) -> Floats:  # without what changes the sum of the weights
            return u - sum_ * (sum_ @ u)

        def curvature(u: Floats) -> Floats:
            step = unit * level(u)
            share = np.max(np.abs(step[sells]) / a[sells], initial=0.0)
            if not 0 < share < np.inf:  # nothing to measure, or multipliers without measure
                return np.zeros(n)
            return level(unit * (slopes(a + _STEP / share * step) - here)) * share / _STEP

        operator = LinearOperator((n, n), matvec=curvature, dtype=float)
        u, _ = minres(operator, -level(unit * here), rtol=1e-10, maxiter=_RESIDUALS)
        step = unit * level(u)
        share = np.max(-step[sells] / a[sells], initial=0.0)
        polished = np.zeros(active.size)
        polished[active] = a + step / max(1.0, 2.0 * share)
        if not np.isfinite(polished).all():
            polished = point
        self.view.place(polished, eta)
        return polished

    def _lagrangian(
        self,
        kept: list[_Piece],
        multipliers: list[Floats | None],
        balance: bool,
        hints: Hints,
    ) -> tuple[Floats, Floats, Floats]:
        """Return minorants, at where the view is placed, of all but what is kept, and of that.

        Each is a vector: the constant, and the slopes in the scaled 1/eta, the scaled weights and
        the guarantees. The third holds what depends on the guarantees alone and is bounded below;
        the bound stands in the first.
        """
        view, n = self.view, self.view.scaled_weights.size
        rest, own, bounded, coupled = np.zeros((4, 2 + n + view.active.size))
        for piece in view.terms:
            if any(piece is one for one in kept):
                own += self._minorant(piece[2], 1.0, {})
                continue
            part, least = self._minorant(piece[2], 1.0, hints), self._least(piece[2])
            if np.isfinite(least):
                bounded += part
                bounded[0] -= least
                rest[0] += least
            else:
                rest += part
        for item, dual in zip(view.flat_constraints(), multipliers, strict=True):
            if dual is None or not np.all(np.isfinite(dual)):
                continue
            if isinstance(item, cp.constraints.Inequality):
                dual = np.maximum(dual, 0.0)
            part = self._minorant(item.expr, dual, hints)
            if view.bounds_epsilon(item):  # a smaller multiplier is one, too
                bounded += part
            elif balance and part[1] != 0:
                coupled += part
            else:
                rest += part
        if coupled[1] < 0 < rest[1]:
            coupled *= -rest[1] / coupled[1]
        return rest + coupled, own, bounded

    def _least(self, expression: cp.Expression) -> float:
        """Bound a term in the guarantees alone from below, for all guarantees; else -inf.

        Its atoms with kinks are replaced by the centres of their subdifferentials.
        """
        if not all(variable is self.view.epsilon for variable in expression.variables()):
            return -np.inf
        if expression.is_nonneg():
            return 0.0
        centres = {
            id(atom): [np.zeros(argument.size) for argument in atom.args]
            for atom in kinks_of(expression)
        }
        minorant = self._minorant(expression, 1.0, centres)
        grows = np.all(self._parts(minorant)[1] >= 0)
        return float(minorant[0]) if grows else -np.inf

    def _cut(
        self,
        point: Floats,
        eta: float,
        kept: list[_Piece],
        multipliers: list[Floats | None],
        balance: bool,
        hints: Hints,
    ) -> Cut:
        view = self.view
        rest, own, bounded = self._lagrangian(kept, multipliers, balance, hints)
        total = rest + bounded
        const, noise = float(total[0]), float(total[1]) / view.inverse_scale
        costs, slopes = self._parts(total)
        price = float(self._slopes(total + own, eta) @ point[view.active])
        if kept is self._paid and self._conjugate:
            psi = sum(value_of(w) for w, _, _ in kept) * view.market.form.virtual_costs[view.active]
            return KeptCostCut(const, noise, costs, slopes, psi, self._conjugate, price)
        return KeptSpreadCut(
            const, noise, costs, slopes, self._minimum, price, self._tail(rest, bounded, eta)
        )

    def _tail(self, rest: Floats, bounded: Floats, eta: float) -> tuple[float, float, float] | None:
        """Bound the objective for all larger eta, by minorants that flatten as 1/eta.

        A term with the minorant ``c + v'eps`` and the least value b is above
        ``(1 - k)*b + k*(c + v'eps)`` for k = eta_0/eta, whose slope ``eta_0 * v`` in the weights
        does not depend on eta.
        """
        if np.any(self._parts(rest)[1] < 0):
            return None
        level = float(rest[0])
        noise = float(rest[1]) / self.view.inverse_scale + eta * float(bounded[0])
        costs = self._slopes(rest + bounded, eta)
        kept = float(self._minimum(costs))
        error = _ROUNDING * (abs(level) + abs(kept) + 2 * float(np.max(np.abs(costs))))
        return eta, level + kept - error, noise - _ROUNDING * abs(noise)

    def _minimum(self, costs: Floats) -> Floats:
        """Return the minimum over the simplex of the kept spread plus linear costs."""
        if self._spread is None:
            return np.asarray(costs.min(axis=-1))
        weight, term, _ = self._spread
        active = self.view.active
        if not active.all():  # nobody buys at an infinite cost
            everybody = np.full((*costs.shape[:-1], active.size), np.inf)
            everybody[..., active] = costs
            costs = everybody
        found = term.simplex_minimum(value_of(weight), costs)
        assert found is not None  # as when it was chosen
        return found

    def _minorant(self, expression: cp.Expression, dual: Floats | float, hints: Hints) -> Floats:
        const, (weights, epsilon, inverse) = self._minorants(expression, dual, hints)
        return np.concatenate(([const], inverse, weights, epsilon))

    def _parts(self, affine: Floats) -> tuple[Floats, Floats]:
        """Return g_a and g_eps of those who can be bought from."""
        n, active = self.view.scaled_weights.size, self.view.active
        return active.size * affine[2 : 2 + n], affine[2 + n :][active]

    def _slopes(self, affine: Floats, eta: float) -> Floats:
        """Return the slope in each weight at an eta."""
        costs, slopes = self._parts(affine)
        return costs + eta * slopes


def _common_conjugate(paid: list[_Piece]) -> Conjugate | None:
    """Return u* where all payments have one cost that knows its conjugate."""
    costs = [term.privacy_cost for _, term, _ in paid]
    first = costs[0] if costs else None
    if first is None or any(cost != first for cost in costs):
        return None
    return None if first.conjugate(np.ones(1)) is None else cast("Conjugate", first.conjugate)
