"""``declare``: a market as a CVXPY problem, at a fixed eta or as a whole."""

from __future__ import annotations

from typing import overload

import cvxpy as cp

from convexmarket.allocation.formulations import FixedEtaProblem, Formulation, declare_papers
from convexmarket.allocation.views import DeclaredMarket, FixedEta, JointView
from convexmarket.checks import check_choice, check_instance, check_positive, shown
from convexmarket.errors import CurvatureError, NotSupportedError
from convexmarket.market import Market

__all__ = ["ConvexProgram", "declare"]


class ConvexProgram(DeclaredMarket):
    """A whole market as one :class:`cvxpy.Problem` in the weights and 1/eta.

    Made by :func:`convexmarket.declare` without an eta. A ``cvxpy.Parameter`` inside a piece, such
    as the amount of a :class:`Budget`, can be changed between solves without compiling again.

    Attributes
    ----------
    formulation : str
        "joint".

    Raises
    ------
    NotSupportedError
        If a piece speaks of the guarantees.
    """

    formulation = "joint"

    def __init__(self, market: Market, eta_scale: float = 1.0) -> None:
        self.view = view = JointView(market, 1.0 / eta_scale, None)
        if not view.is_jointly_convex or any(map(view.bounds_epsilon, view.flat_constraints())):
            raise NotSupportedError(
                f"{shown(market)} has a term or a bound in the guarantees eps = eta*a, which is "
                "not convex in the weights and 1/eta together; declare it at a fixed eta: "
                "declare(market, eta=...)"
            )
        self._weights = view.quantities.weights
        super().__init__(cp.Minimize(view.objective()), [*view.simplex, *view.flat_constraints()])

    @property
    def eta(self) -> float:
        """Total privacy of the last solve."""
        return 1.0 / float(self.solution(self.view.quantities.inverse_eta))


@overload
def declare(market: Market, eta: None = None, formulation: str = ...) -> ConvexProgram: ...
@overload
def declare(market: Market, eta: float, formulation: str = ...) -> FixedEtaProblem | FixedEta: ...
def declare(
    market: Market, eta: float | None = None, formulation: str = "primal"
) -> FixedEtaProblem | FixedEta | ConvexProgram:
    """Declare the buyer's problem as a CVXPY problem.

    Parameters
    ----------
    market : Market
    eta : float, optional
        Total privacy bought; may be changed later through the attribute of that name, without
        compiling again. Where left out, the market has to be one convex program in the weights
        and 1/eta, without a piece that speaks of the guarantees.
    formulation : {"primal", "dual", "projection"}
        At a fixed eta. Markets that are not of the papers' form (A, Eq. 11) have a primal only.

    Returns
    -------
    FixedEtaProblem, FixedEta or ConvexProgram
        A :class:`cvxpy.Problem` with the attributes ``weights`` and ``eta``; its value is the
        market's objective (that of "projection" is not). At a fixed eta a "primal" has
        ``quantities``, expressions to add restrictions of any kind with. ``copy.deepcopy`` and
        pickle make a problem of its own; one problem is not for several threads at once.

    Raises
    ------
    NotSupportedError
        If the market has no such formulation, or eta is given and would be multiplied by a
        parameter of the market's own.
    ParameterError
        If eta or formulation is not one of the values allowed.
    CurvatureError
        If a term or constraint is not convex by CVXPY's rules.
    InfeasibleMarketError
        If the sellers with finite virtual costs cannot carry all the weight.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers(virtual_costs=[0.0, 1.0])
    >>> problem = cm.declare(cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5), eta=1.0)
    >>> value = problem.solve(solver="CLARABEL")
    >>> problem.weights.round(3)
    array([0.689, 0.311])
    >>> problem.eta = 1.5  # compiled once
    >>> value = problem.solve(solver="CLARABEL")
    """
    check_instance("market", market, Market)
    check_choice("formulation", formulation, Formulation)
    if eta is not None:
        check_positive("eta", eta)
    problem: FixedEtaProblem | FixedEta | ConvexProgram
    if eta is not None and market.standard_form is not None:
        problem = declare_papers(market, eta, formulation)
    elif formulation != "primal":
        raise NotSupportedError(
            f"the {formulation} formulation is known for sums of Spread, Noise and Payments with "
            f"Cap and EtaRange, at a fixed eta; this is {shown(market)}; use formulation='primal'"
        )
    else:
        problem = ConvexProgram(market) if eta is None else FixedEta(market, eta)
    if not problem.is_dcp(dpp=True):  # type: ignore[call-arg]
        if problem.is_dcp():
            raise NotSupportedError(
                "at a fixed eta 1/eta is a parameter, which cannot be multiplied by a "
                "cvxpy.Parameter of the market's own; give its number or, where no payments are "
                "weighed, declare the market without eta"
            )
        raise CurvatureError(f"the {formulation} formulation is not convex by CVXPY's rules")
    return problem
