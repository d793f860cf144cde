"""Policies for sellers who arrive one by one, against hindsight."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "OnlineStudyProblem", "run_online_study", "", "subproblems")
