"""What a file of sellers who come one by one holds for a study of solvers."""

from __future__ import annotations

from functools import partial

from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem
from convexmarket.studies.subproblems.families import Family, allocation_families, papers_market


def subproblems(problem: OnlineMarketProblem) -> list[Family]:
    """Return the market in hindsight."""
    buyer = problem.buyer
    numbers = (buyer.mu, buyer.sigma, buyer.gamma, buyer.cap)
    return allocation_families(partial(papers_market, problem.prior, *numbers))
