r"""The papers' own method (A, Algorithm 4), as the baseline that others are compared with.

For each eta of a grid ``eta = m*eps_avg``, projected gradient descent on the model and the weights
at once, from a random model and equal weights; then the best of the grid. It has no guarantee: the
best eta may lie between two points of the grid, or beyond it, and a descent may stop early.

A constant step of one over the Lipschitz constant leaves the model far from its best after ten
thousand iterations where the regularization is weak; the baseline here follows the curvature it
meets, which costs as much and gets nearer.

With ``variables="logarithms"`` it is the earlier method (B, section 4.2): the same descent in
``z = log(a)``, and the nearest z on the surface ``sum exp(z) = 1``, which is not convex.

Where the objective has the kink ``||w||`` (noise "worst-case") the step is a proximal one, which
the papers do not need: a gradient step, then a shorter model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import expit, lambertw

from convexmarket.allocation.formulations import embed
from convexmarket.allocation.simplex import (
    cheapest_purchase,
    feasible_limits,
    largest_eta,
    project_capped_simplex,
)
from convexmarket.checks import check_choice, check_positive, shown
from convexmarket.errors import InfeasibleMarketError, NotSupportedError, ParameterError
from convexmarket.joint.alternating import Descent
from convexmarket.joint.arguments import check_arguments
from convexmarket.joint.blocks import remaining_gain
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import PurchaseStep
from convexmarket.joint.result import TracePoint
from convexmarket.terms import Form, PrivacyCost

__all__ = ["GradientForm", "descend_jointly", "descent_path", "gradient_form"]

Floats = NDArray[np.float64]
Variables = Literal["weights", "logarithms"]

#: Where ``w*exp(w)`` turns round, less rounding.
_TURN = -(1 - 1e-12) * float(np.exp(-1.0))


@dataclass(frozen=True, eq=False)
class GradientForm:
    """A joint problem in numbers, with the gradient of what is smooth in it.

    Attributes
    ----------
    joint : JointMarket
    active : ndarray of bool, shape (m,)
        Sellers who can be bought from; all else is of these alone.
    signed_rows : ndarray, shape (n_active, n_features)
        ``y_i * x_i``.
    market : Form
        Its numbers; its range of eta ends where no more can be sold.
    """

    joint: JointMarket
    active: NDArray[np.bool_]
    signed_rows: Floats
    market: Form

    def smooth(self, model: Floats, weights: Floats, eta: float) -> tuple[float, Floats, Floats]:
        """Return the objective but for ``||w||`` and sigma/eta, and its gradients in w and a."""
        joint, form = self.joint, self.market
        margins = self.signed_rows @ model
        losses = np.logaddexp(0.0, -margins)
        length = float(np.linalg.norm(weights))
        value = float(weights @ losses) + joint.regularization / 2 * float(model @ model)
        value += float(np.sum(weights * form.losses))
        value += form.mu * length + form.mu_squared * length**2
        by_model = joint.regularization * model - (weights * expit(-margins)) @ self.signed_rows
        by_weights = losses + form.losses + (form.mu / length + 2 * form.mu_squared) * weights
        if joint.noise_vector is not None:
            value += 2.0 / eta * float(joint.noise_vector @ model)
            by_model = by_model + 2.0 / eta * joint.noise_vector
        for gamma, cost in form.bills:
            value += gamma * float(form.virtual_costs @ cost(eta * weights))
            slope, _ = _slopes(cost, eta * weights)
            by_weights = by_weights + (gamma * eta) * form.virtual_costs * slope
        return value, by_model, by_weights

    @staticmethod
    def coordinates(weights: Floats) -> Floats:
        """Return what the descent moves in place of the weights."""
        return weights

    @staticmethod
    def weights(coordinates: Floats) -> Floats:
        """Return the weights again."""
        return coordinates

    def slope(self, model: Floats, coordinates: Floats, eta: float) -> tuple[float, Floats, Floats]:
        """Return :meth:`smooth` and its gradients in the model and the coordinates."""
        return self.smooth(model, coordinates, eta)

    def project(self, coordinates: Floats, eta: float) -> Floats:
        """Return the nearest coordinates of feasible weights."""
        return project_capped_simplex(coordinates, self.market.limit(eta))

    def move(
        self, model: Floats, coordinates: Floats, eta: float, step: float
    ) -> tuple[Floats, Floats]:
        """Return the feasible point nearest to one that a gradient step has led to."""
        joint = self.joint
        length = float(np.linalg.norm(model))
        kept = length
        if joint.noise == "worst-case":
            kept = max(0.0, length - step * 2.0 * joint.noise_radius / eta)
        if joint.max_norm is not None:
            kept = min(kept, joint.max_norm)
        if kept < length:
            model = model * (kept / length)
        return model, self.project(coordinates, eta)

    def lipschitz(self, eta: float) -> float:
        """Return a Lipschitz constant of the gradient; for convex payments, near equal weights."""
        form, m = self.market, self.market.virtual_costs.size
        longest = float(np.einsum("ij,ij->i", self.signed_rows, self.signed_rows).max())
        by_model = longest / 4 + self.joint.regularization
        by_weights = form.mu * np.sqrt(m) + 2 * form.mu_squared
        for gamma, cost in form.bills:
            bend = float(_slopes(cost, np.array([eta / m]))[1][0])
            by_weights += gamma * eta**2 * float(form.virtual_costs.max()) * bend
        return float(max(by_model, by_weights) + np.linalg.norm(self.signed_rows, 2))

    def largest_eta(self) -> float:
        """Return an eta that no stationary point of the objective exceeds.

        There ``sum psi*eps*u'(eps)``, which is at least ``sum psi*u(eps)``, costs what the noise
        does, and the noise is bounded because the best model is no longer than the losses allow.
        """
        joint = self.joint
        longest = float(np.sqrt(2 * np.log(2) / joint.regularization))  # as good as no model
        if joint.noise_vector is not None:  # which may pay for a longer one
            longest = np.inf
        longest = longest if joint.max_norm is None else min(longest, joint.max_norm)
        noise = joint.sigma
        if joint.noise == "worst-case":
            noise += 2 * joint.noise_radius * longest
        if joint.noise_vector is not None:
            noise += 2 * float(np.linalg.norm(joint.noise_vector)) * longest
        form, m = self.market, self.market.virtual_costs.size
        cheapest = float(form.virtual_costs.min())
        if not form.payments:
            limits = feasible_limits(np.full(m, np.max(form.max_weight)))
            cheapest = cheapest_purchase(form.virtual_costs, float(limits[0]))
        if not form.bills or cheapest <= 0:
            raise ParameterError(
                "eps_max, the largest average guarantee of the grid, cannot be told from the "
                "market because a seller's privacy is free; give eps_max or an EtaRange"
            )

        def excess(eta: float) -> float:
            with np.errstate(over="ignore"):
                paid = sum(gamma * float(cost(eta / m)) for gamma, cost in form.bills)
                return min(eta * m * cheapest * paid - noise, 1e300)

        high = 1.0
        while excess(high) < 0:
            high *= 2.0
        return float(brentq(excess, 0.0, high))


class LogarithmicForm(GradientForm):
    """The same in ``z = log(a)`` (B, section 4.1)."""

    @staticmethod
    def coordinates(weights: Floats) -> Floats:
        """Return z."""
        return np.log(weights)

    @staticmethod
    def weights(coordinates: Floats) -> Floats:
        """Return ``a = exp(z)``."""
        return np.exp(coordinates)

    def slope(self, model: Floats, coordinates: Floats, eta: float) -> tuple[float, Floats, Floats]:
        """Return the objective and its gradients in the model and z."""
        weights = np.exp(coordinates)
        value, by_model, by_weights = self.smooth(model, weights, eta)
        return value, by_model, weights * by_weights

    def project(self, coordinates: Floats, eta: float) -> Floats:
        """Return the nearest z of feasible weights."""
        return project_logarithms(coordinates, self.market.limit(eta))


def project_logarithms(v: Floats, limit: ArrayLike) -> Floats:
    """Return the z nearest to v with ``sum exp(z) = 1`` and ``exp(z) <= limit``.

    There ``z + tau*exp(z) = v`` for one tau, unless z is at its limit, and the sum falls as tau
    rises. From a v too far inside the surface that tau does not exist: all are NaN then.
    """
    upper = np.log(limit)

    def nearest(tau: float) -> Floats:
        return np.asarray(
            np.minimum(v - np.real(lambertw(np.maximum(tau * np.exp(v), _TURN), 0)), upper)
        )

    def excess(tau: float) -> float:
        return float(np.sum(np.exp(nearest(tau)))) - 1.0

    low, high = 0.0, 0.0
    if excess(0.0) >= 0:
        high = 1.0
        while excess(high) > 0:
            high *= 2.0
    else:
        turns = v + 1 < upper  # the others meet their limits before they would turn back
        low = float(
            np.max(_TURN * np.exp(-v[turns]))
            if turns.any()
            else np.min((v - upper) * np.exp(-upper))
        )
        if excess(low) < 0:
            return np.full(v.shape, np.nan)
    z = nearest(brentq(excess, low, high, xtol=1e-300, rtol=1e-15))
    free = z < upper  # rounding is left to those who are not at their limit
    rest = 1.0 - float(np.sum(np.exp(z[~free])))
    if free.any() and rest > 0:
        z[free] += np.log(rest / float(np.sum(np.exp(z[free]))))
    return np.minimum(z, upper)


def gradient_form(joint: JointMarket, variables: Variables = "weights") -> GradientForm:
    """Return a joint problem in numbers.

    Raises
    ------
    NotSupportedError
        If its market has a piece whose gradient or projection is not written down here.
    """
    market, form = joint.market, joint.market.form
    budgets = [piece for piece in market.constraints if piece.reports == "budget"]
    costs = [cost for _, cost in form.payments if cost.derivatives(np.ones(1)) is None]
    for unknown in (*form.rest, *budgets, *costs):
        raise NotSupportedError(
            "projected gradient descent serves sums of Spread(), SquaredSpread(), Noise, Losses "
            "and Payments (linear, power, exponential, or your own cost with derivatives) under "
            f"Cap, MaxEpsilon, GivenEpsilon and EtaRange; not {shown(unknown)}; use "
            'method="alternating"'
        )
    form, active = form.restricted()
    sold = largest_eta(form.max_weight, form.max_epsilon, form.virtual_costs.size)
    if form.eta_low > sold * (1 + 1e-12):
        raise InfeasibleMarketError(
            f"sellers at no more than epsilon = {np.max(form.max_epsilon):g} sell {sold:g} in all, "
            f"but the EtaRange starts at {form.eta_low:g}; raise one or lower the other"
        )
    kind = GradientForm if variables == "weights" else LogarithmicForm
    return kind(
        joint=joint,
        active=active,
        signed_rows=(joint.y[:, None] * joint.X)[active],
        market=replace(form, eta_high=min(sold, form.eta_high)),
    )


def _slopes(cost: PrivacyCost, epsilon: Floats) -> tuple[Floats, Floats]:
    found = cost.derivatives(epsilon)
    assert found is not None  # as when the form was made
    return found


def descend_jointly(
    joint: JointMarket,
    *,
    grid: int = 50,
    eps_max: float | None = None,
    step: float | None = None,
    max_iterations: int = 10_000,
    tol: float = 1e-9,
    variables: Variables = "weights",
    rng: np.random.Generator | None = None,
    progress: Callable[[TracePoint], None] | None = None,
) -> tuple[Descent, list[TracePoint]]:
    """Solve the joint problem as the papers do: a descent for each eta of a grid.

    Parameters
    ----------
    joint : JointMarket
    grid : int
        Number of values of ``eta = m*eps_avg`` that divide (0, m*eps_max], or the market's
        EtaRange, evenly.
    eps_max : float, optional
        The papers' L. Where left out, no stationary point of the objective lies above it, or it
        is the upper end of the market's EtaRange.
    step : float, optional
        First step size of a descent, adapted from there; one over a Lipschitz constant of the
        gradient where left out.
    max_iterations : int
        For each eta.
    tol : float
        Relative change of model and weights to stop a descent at.
    variables : {"weights", "logarithms"}
        What is moved: the weights a (A, Algorithm 4), or ``z = log(a)`` (B, section 4.2).
    rng : numpy.random.Generator, optional
        Draws the models to start from; a fixed one where left out.
    progress : callable, optional
        Called with the :class:`TracePoint` of every eta.

    Returns
    -------
    best : Descent
        With the attributes model, weights, eta, objective and residual.
    trace : list of TracePoint
        The best objective after each eta.

    Raises
    ------
    NotSupportedError
        If the market has a piece that this method does not know.
    UnattainedOptimumError
        If the problem has no minimum.
    ParameterError
        If an argument is out of its range.
    """
    check_arguments(
        grid=grid,
        eps_max=eps_max,
        step=step,
        max_iterations=max_iterations,
        tol=tol,
        rng=rng,
        progress=progress,
    )
    check_choice("variables", variables, Variables)
    joint.check_bounded()
    form = gradient_form(joint, variables)
    rng = np.random.default_rng(0) if rng is None else rng
    purchases = PurchaseStep(joint)
    best = Descent(joint, purchases, 0, progress)
    for eta in _grid(form, grid, eps_max):
        *_, (model, weights) = _descend(
            form,
            float(eta),
            np.asarray(rng.normal(size=joint.X.shape[1])),
            1.0 / form.lipschitz(float(eta)) if step is None else float(step),
            max_iterations,
            tol,
        )
        best.take("projected gradient", model, embed(weights, form.active), float(eta))
    best.residual = remaining_gain(joint, purchases, best.model, best.weights, best.eta)
    return best, best.trace


def descent_path(
    joint: JointMarket,
    eta: float,
    *,
    variables: Variables = "weights",
    max_iterations: int = 10_000,
    tol: float = 1e-9,
    rng: np.random.Generator | None = None,
) -> Floats:
    """Return the objective after each step of the papers' descent at one eta, shape (steps + 1,).

    Parameters
    ----------
    joint : JointMarket
    eta : float
    variables, max_iterations, tol, rng
        As in :func:`allocate_jointly` with the method "projected_gradient".

    Returns
    -------
    ndarray, shape (steps + 1,)
        The objective.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers(np.linspace(0.1, 1, 6), prior=cm.Uniform(0, 1))
    >>> X = np.eye(6)[:, :2] - 0.3
    >>> joint = cm.JointMarket(cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.1), X,
    ...                        [1, -1, 1, -1, 1, -1], regularization=0.5)
    >>> path = cm.joint.descent_path(joint, 3.0, variables="logarithms", max_iterations=5)
    >>> bool(path[-1] < path[0])
    True
    """
    check_arguments(max_iterations=max_iterations, tol=tol, rng=rng)
    check_positive("eta", eta)
    check_choice("variables", variables, Variables)
    joint.check_bounded()
    form = gradient_form(joint, variables)
    rng = np.random.default_rng(0) if rng is None else rng
    model = np.asarray(rng.normal(size=joint.X.shape[1]))
    path = _descend(form, eta, model, 1.0 / form.lipschitz(eta), max_iterations, tol)
    return np.array([joint.objective(w, embed(a, form.active), eta) for w, a in path])


def _descend(
    form: GradientForm,
    eta: float,
    model: Floats,
    step: float,
    max_iterations: int,
    tol: float,
) -> Iterator[tuple[Floats, Floats]]:
    """Minimise at one eta, from a model and equal weights: yield model and weights on the way.

    A step is halved until the objective is below what its curvature promises, and grows by a tenth
    from one iteration to the next. Where differences of the objective drown in rounding, those of
    its gradient tell of the curvature.
    """
    m = form.market.virtual_costs.size
    model, place = form.move(model, form.coordinates(np.full(m, 1.0 / m)), eta, 0.0)
    value, by_model, by_place = form.slope(model, place, eta)
    yield model, form.weights(place)
    for _ in range(max_iterations):
        while True:
            to_model, to_place = form.move(
                model - step * by_model, place - step * by_place, eta, step
            )
            moved, bought = to_model - model, to_place - place
            change = float(moved @ moved + bought @ bought)
            there = form.slope(to_model, to_place, eta)
            promised = value + float(by_model @ moved + by_place @ bought) + change / (2 * step)
            bend = float((there[1] - by_model) @ moved + (there[2] - by_place) @ bought)
            falls = there[0] <= promised + 1e-12 * abs(value) and bend <= change / step
            if falls or change <= 1e-30:
                break
            step /= 2.0
        model, place = to_model, to_place
        value, by_model, by_place = there
        yield model, form.weights(place)
        if change <= tol**2 * float(model @ model + place @ place):
            break
        step *= 1.1


def _grid(form: GradientForm, grid: int, eps_max: float | None) -> Floats:
    """Return the values of eta to try, increasing."""
    m = len(form.joint.market.sellers)
    if eps_max is not None:
        high = min(m * float(eps_max), form.market.eta_high)
        if high < form.market.eta_low:
            raise ParameterError(
                f"eps_max is {eps_max!r}, so that eta ends at {high:g}, below the EtaRange, which "
                f"starts at {form.market.eta_low:g}"
            )
    else:
        high = form.market.eta_high if np.isfinite(form.market.eta_high) else form.largest_eta()
    if grid == 1:
        return np.array([high])
    return np.linspace(form.market.eta_low or high / grid, high, grid)
