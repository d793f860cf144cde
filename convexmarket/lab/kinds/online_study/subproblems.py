"""What a study of online policies holds for a study of solvers."""

from __future__ import annotations

from functools import partial

from convexmarket.lab.kinds.online_study.problem import OnlineStudyProblem
from convexmarket.studies.subproblems.families import Family, allocation_families, papers_market


def subproblems(problem: OnlineStudyProblem) -> list[Family]:
    """Return the market in hindsight."""
    buyer = problem.buyer
    numbers = (buyer.mu, buyer.sigma, buyer.gamma, buyer.cap)
    return allocation_families(partial(papers_market, problem.prior, *numbers))
