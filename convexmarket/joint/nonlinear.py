r"""The whole joint problem at once, through CVXPY's nonlinear interface.

Products of variables, as in ``a_i * log(1 + exp(-y_i*w'x_i))`` and ``eps = eta*a``, break CVXPY's
rules of convexity, but not those of ``problem.solve(nlp=True)``, which hands first and second
derivatives to a local solver. Its answer is a stationary point, near the start.

It needs CVXPY 1.9 and the optional package unopy, which brings the solver Uno.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib import metadata, util
from typing import Any, Protocol

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.views import spread_out
from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.joint.alternating import Descent
from convexmarket.joint.arguments import check_arguments
from convexmarket.joint.blocks import remaining_gain
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import PurchaseStep
from convexmarket.joint.result import TracePoint
from convexmarket.terms import Quantities

__all__ = ["NonlinearProblem", "Start", "check_nonlinear_solver", "solve_nonlinear"]

Floats = NDArray[np.float64]

#: Weights below this share of the average are the solver's error.
_NOBODY = 1e-6
#: Uno's methods in the order in which they are tried. The second ends with more digits where it
#: ends, but does not on some convex payments.
_PRESETS = ("ipopt", "filtersqp")


class Start(Protocol):
    """A point of the joint problem: a Descent, a JointAllocation."""

    @property
    def model(self) -> Floats:
        """The model, shape (n_features,)."""

    @property
    def weights(self) -> Floats:
        """The weights, shape (m,)."""

    @property
    def eta(self) -> float:
        """Total privacy."""


class NonlinearProblem(cp.Problem):
    """Model, weights and eta as one CVXPY problem, not convex; solve it with ``nlp=True``.

    Its value is the joint objective. The unknowns are the model, ``m*a`` and ``eta/eta_start``, all
    of order one.

    Parameters
    ----------
    joint : JointMarket
    start : Start
        With positive eta; weights of zero are moved inside a little.
    """

    def __init__(self, joint: JointMarket, start: Start) -> None:
        if not (np.isfinite(start.eta) and start.eta > 0):
            raise ParameterError(f"the start has eta {start.eta!r}; give a finite number > 0")
        market = joint.market
        self._sellers = market.form.active
        m = self._sellers.size
        self._unit = float(start.eta)
        self._w = cp.Variable(joint.X.shape[1], name="w")
        self._scaled = cp.Variable(int(self._sellers.sum()), nonneg=True, name="m*a")
        self._eta = cp.Variable(pos=True, name="eta/eta_start")
        everyone = spread_out(self._scaled, self._sellers)
        inverse = cp.power(self._eta, -1) / self._unit
        quantities = Quantities(
            weights=everyone / m,
            epsilon=(self._unit / m) * (self._eta * everyone),
            inverse_eta=inverse,
            virtual_costs=np.where(self._sellers, market.sellers.virtual_costs, 0.0),
        )
        rows = (joint.y[:, None] * joint.X)[self._sellers]
        terms = [
            part.weight * part.term.expression(quantities)
            for part in market.objective.without_noise.parts
            if part.value > 0
        ]
        fit = cp.sum(cp.multiply(self._scaled, cp.logistic(-rows @ self._w))) / m
        fit += joint.regularization / 2 * cp.sum_squares(self._w)
        bounds = [item for piece in market.constraints for item in piece.constraints(quantities)]
        if joint.max_norm is not None:
            bounds.append(cp.sum_squares(self._w) <= joint.max_norm**2)
        super().__init__(
            cp.Minimize(sum(terms, fit + self._noise(joint) * inverse)),
            [cp.sum(self._scaled) == m, *bounds],
        )
        self._w.value = np.array(start.model, dtype=float)
        if joint.noise == "worst-case" and not np.any(self._w.value):
            self._w.value = np.full(self._w.size, 1e-6)  # ||w|| has no derivative at 0
        inside = np.maximum(np.asarray(start.weights, dtype=float)[self._sellers], 1e-3 / m)
        self._scaled.value = inside * (m / inside.sum())
        self._eta.value = 1.0

    def _noise(self, joint: JointMarket) -> cp.Expression:
        """Return what multiplies 1/eta."""
        if joint.noise == "worst-case":
            return joint.sigma + 2.0 * joint.noise_radius * cp.norm(self._w, 2)
        if joint.noise_vector is not None:
            return joint.sigma + 2.0 * joint.noise_vector @ self._w
        return cp.Constant(joint.sigma)

    @property
    def model(self) -> Floats:
        """The model at hand, shape (n_features,)."""
        return np.array(self._w.value, dtype=float)

    @property
    def weights(self) -> Floats:
        """The weights at hand, without the solver's traces on who is not bought from, (m,)."""
        scaled = np.asarray(self._scaled.value, dtype=float)
        weights = np.zeros(self._sellers.size)
        weights[self._sellers] = np.where(scaled < _NOBODY, 0.0, scaled)
        return weights / weights.sum()

    @property
    def eta(self) -> float:
        """Total privacy at hand."""
        return self._unit * float(np.asarray(self._eta.value))


def check_nonlinear_solver() -> None:
    """Refuse where the optional packages are missing.

    Raises
    ------
    NotSupportedError
        With the command that installs them.
    """
    version = metadata.version("cvxpy")
    if tuple(int(part) for part in version.split(".")[:2]) < (1, 9):
        raise NotSupportedError(
            f'method "nlp" needs CVXPY 1.9, which declares nonlinear programs; this is {version}: '
            'pip install "cvxpy>=1.9" unopy'
        )
    missing = [name for name in ("unopy", "sparsediffpy") if util.find_spec(name) is None]
    if missing:
        raise NotSupportedError(
            f'method "nlp" needs the optional package{"s" * (len(missing) > 1)} '
            f"{' and '.join(missing)}, with the nonlinear solver Uno: pip install "
            f"{' '.join(missing)}"
        )


def solve_nonlinear(
    joint: JointMarket,
    start: Start,
    *,
    number: int = 0,
    progress: Callable[[TracePoint], None] | None = None,
    **options: Any,
) -> Descent:
    """Solve for model, weights and eta at once, from a start.

    Parameters
    ----------
    joint : JointMarket
    start : Start
        Anything with a model, weights and eta; it should satisfy the constraints.
    number : int
        Of this descent in its trace.
    progress : callable, optional
        Called with every :class:`TracePoint`: the start and the end.
    **options
        For CVXPY's ``problem.solve(nlp=True, ...)``. Where neither a solver nor Uno's preset is
        among them, its "ipopt" is tried, then its "filtersqp".

    Returns
    -------
    Descent
        Never worse than the start.

    Raises
    ------
    NotSupportedError
        If CVXPY is older than 1.9 or the optional package unopy is missing, or the market has a
        piece that CVXPY's nonlinear interface does not know.
    UnattainedOptimumError
        If the problem has no minimum.
    SolverError
        If the solver fails.
    """
    check_nonlinear_solver()
    check_arguments(progress=progress)
    joint.check_bounded()
    descent = Descent(joint, PurchaseStep(joint), number, progress)
    descent.take("start", np.array(start.model), np.array(start.weights), float(start.eta))
    given = "preset" in options or "solver" in options
    tries = [options] if given else [{"preset": preset, **options} for preset in _PRESETS]
    for tried in tries:
        problem = NonlinearProblem(joint, start)
        status = _run(problem, tried)
        if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            break
    else:
        raise SolverError(
            f"the nonlinear solver failed ({status}); start from another point, or check the "
            "solver_options"
        )
    descent.take("nonlinear", joint.shortened(problem.model), problem.weights, problem.eta)
    descent.residual = remaining_gain(
        joint, descent.step, descent.model, descent.weights, descent.eta
    )
    return descent


def _run(problem: NonlinearProblem, options: Mapping[str, Any]) -> str:
    """Solve; return the status, or what the solver raised."""
    try:
        with _silence():
            problem.solve(nlp=True, **options)
    except cp.error.DCPError as error:
        raise NotSupportedError(
            f"CVXPY's nonlinear interface does not take a piece of the market: {error}"
        ) from error
    except (cp.error.SolverError, ValueError, ArithmeticError, LookupError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return f"{problem.status}"


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep the solver, which prints from C++, off the terminal."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        with tempfile.TemporaryFile() as nowhere:
            os.dup2(nowhere.fileno(), 1)
            try:
                yield
            finally:
                os.dup2(kept, 1)
    finally:
        os.close(kept)
