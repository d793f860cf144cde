r"""The papers' own method (A, Algorithm 4), as the baseline that others are compared with.

For each eta of a grid ``eta = m*eps_avg``, projected gradient descent on the model and the weights
at once, from a random model and equal weights; then the best of the grid. It has no guarantee: the
best eta may lie between two points of the grid, or beyond it, and a descent may stop early.

A constant step of one over the Lipschitz constant leaves the model far from its best after ten
thousand iterations where the regularization is weak; the baseline here follows the curvature it
meets, which costs as much and gets nearer.

Where the objective has the kink ``||w||`` (noise "worst-case") the step is a proximal one, which
the papers do not need: a gradient step, then a shorter model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from convexmarket.allocation.formulations import embed
from convexmarket.allocation.simplex import (
    cheapest_purchase,
    feasible_limits,
    largest_eta,
    project_capped_simplex,
)
from convexmarket.arguments import shown
from convexmarket.errors import InfeasibleMarketError, NotSupportedError, ParameterError
from convexmarket.joint.alternating import Descent
from convexmarket.joint.arguments import check_arguments
from convexmarket.joint.blocks import remaining_gain
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import PurchaseStep
from convexmarket.joint.result import TracePoint
from convexmarket.terms import Form, PrivacyCost

__all__ = ["GradientForm", "descend_jointly", "gradient_form"]

Floats = NDArray[np.float64]


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

    def move(
        self, model: Floats, weights: Floats, eta: float, step: float
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
        return model, project_capped_simplex(weights, self.market.limit(eta))

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


def gradient_form(joint: JointMarket) -> GradientForm:
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
            f"Cap, MaxEpsilon, GivenEpsilon and EtaRange; not {shown(unknown)}: use "
            'method="alternating"'
        )
    form, active = form.restricted()
    sold = largest_eta(form.max_weight, form.max_epsilon, form.virtual_costs.size)
    if form.eta_low > sold * (1 + 1e-12):
        raise InfeasibleMarketError(
            f"sellers at no more than epsilon = {np.max(form.max_epsilon):g} sell {sold:g} in all, "
            f"but the EtaRange starts at {form.eta_low:g}; raise one or lower the other"
        )
    return GradientForm(
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
    joint.check_bounded()
    form = gradient_form(joint)
    rng = np.random.default_rng(0) if rng is None else rng
    purchases = PurchaseStep(joint)
    best = Descent(joint, purchases, 0, progress)
    for eta in _grid(form, grid, eps_max):
        model, weights = _descend(
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


def _descend(
    form: GradientForm,
    eta: float,
    model: Floats,
    step: float,
    max_iterations: int,
    tol: float,
) -> tuple[Floats, Floats]:
    """Minimise at one eta, from a model and equal weights.

    A step is halved until the objective is below what its curvature promises, and grows by a tenth
    from one iteration to the next. Where differences of the objective drown in rounding, those of
    its gradient tell of the curvature.
    """
    m = form.market.virtual_costs.size
    model, weights = form.move(model, np.full(m, 1.0 / m), eta, 0.0)
    value, by_model, by_weights = form.smooth(model, weights, eta)
    for _ in range(max_iterations):
        while True:
            to_model, to_weights = form.move(
                model - step * by_model, weights - step * by_weights, eta, step
            )
            moved, bought = to_model - model, to_weights - weights
            change = float(moved @ moved + bought @ bought)
            there = form.smooth(to_model, to_weights, eta)
            promised = value + float(by_model @ moved + by_weights @ bought) + change / (2 * step)
            bend = float((there[1] - by_model) @ moved + (there[2] - by_weights) @ bought)
            falls = there[0] <= promised + 1e-12 * abs(value) and bend <= change / step
            if falls or change <= 1e-30:
                break
            step /= 2.0
        model, weights = to_model, to_weights
        value, by_model, by_weights = there
        if change <= tol**2 * float(model @ model + weights @ weights):
            break
        step *= 1.1
    return model, weights


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
