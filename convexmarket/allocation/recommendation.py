"""``recommend``: the method, formulation and solver of least cost for a market of its size.

What a method costs is measured: ``convexmarket compare`` fits, for each class of problems,
formulation and solver, ``seconds = a + b*(m/1000) + c*(m/1000)**2`` with a, b and c nonnegative
(:mod:`convexmarket.lab.study.costs`). The numbers below are such a fit. Another machine changes the
seconds more than their order, which is all that is used.
"""

from __future__ import annotations

from dataclasses import dataclass

import cvxpy as cp

from convexmarket.allocation.views import JointView
from convexmarket.arguments import check_instance
from convexmarket.market import Market

__all__ = ["Recommendation", "best_method", "recommend"]

#: Of each method that needs a solver: formulation, solver and the three numbers, fitted to CPU
#: seconds of whole searches at 100 to 30,000 sellers. The constants differed by less than their
#: scatter, so that all have one. Where nothing is known CLARABEL is taken.
COSTS: dict[str, tuple[tuple[str, str, float, float, float], ...]] = {
    "line_search": (
        ("projection", "PIQP", 0.034, 0.00073, 0.0016),
        ("projection", "QOCO", 0.034, 0.0022, 0.0015),
        ("projection", "CLARABEL", 0.034, 0.010, 0.0019),
        ("projection", "OSQP", 0.034, 0.016, 0.0021),
        ("primal", "CLARABEL", 0.034, 0.032, 0.0032),
        ("dual", "CLARABEL", 0.034, 0.046, 0.0043),
    ),
    "convex_program": (),
    "branch_and_bound": (),
}


@dataclass(frozen=True)
class Recommendation:
    """What to solve a market with.

    Attributes
    ----------
    method : str
        As :func:`convexmarket.allocate` takes it.
    formulation, solver : str or None
        None where the method needs none.
    seconds : float or None
        What the fit expects of one search, or one solve; None where nothing was fitted.
    """

    method: str
    formulation: str | None = None
    solver: str | None = None
    seconds: float | None = None


def best_method(market: Market) -> str:
    """Return the best method that can serve a market."""
    if market.form.standard is not None or market.form.granted is not None:
        return "exact"
    if market.form.is_projectable:
        return "projections"
    return "branch_and_bound" if JointView(market).uses_epsilon else "convex_program"


def recommend(
    market: Market,
    method: str = "auto",
    *,
    formulation: str | None = None,
    solver: str | None = None,
) -> Recommendation:
    """Say how to solve a market of this class and size; ``allocate(method="auto")`` does so.

    Parameters
    ----------
    market : Market
    method : str
        "auto": the best that can serve the market; or one of :func:`convexmarket.allocate`'s.
    formulation, solver : str, optional
        The only one to consider.

    Returns
    -------
    Recommendation
        The fastest that is installed, by measurements; CLARABEL where none is known.

    Examples
    --------
    >>> import convexmarket as cm
    >>> market = cm.Market.standard(cm.Sellers(virtual_costs=[0.1, 0.4]), mu=1, sigma=1, gamma=1)
    >>> cm.recommend(market)
    Recommendation(method='exact', formulation=None, solver=None, seconds=None)
    >>> cm.recommend(market, "line_search").formulation
    'projection'
    """
    check_instance("market", market, Market)
    method = best_method(market) if method == "auto" else method
    if method not in COSTS:
        return Recommendation(method)
    m, installed = len(market.sellers) / 1000, cp.installed_solvers()
    possible = [
        Recommendation(method, how, who, a + b * m + c * m**2)
        for how, who, a, b, c in COSTS[method]
        if who in installed and formulation in (None, how) and str(solver or who).upper() == who
    ]
    fastest = min(possible, key=lambda one: one.seconds or 0.0, default=None)
    return fastest or Recommendation(method, formulation or "projection", solver or "CLARABEL")
