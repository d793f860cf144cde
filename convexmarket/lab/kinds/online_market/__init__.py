"""Sellers arrive one by one, and each is quoted on arrival."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "OnlineMarketProblem", "run_online_market", "begin")
