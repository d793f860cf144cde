"""Stub solvers that return wrong results, hang, crash, exhaust memory or raise errors."""

import os
import signal
import time

import numpy as np
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL


class WrongPoint(CLARABEL):
    """A solver that returns a wrong point with the status "optimal"."""

    def name(self):
        return "WRONGPOINT"

    def invert(self, solution, inverse_data):
        result = super().invert(solution, inverse_data)
        for key, value in result.primal_vars.items():
            result.primal_vars[key] = 1.05 * np.asarray(value)
        return result


class Infeasible(CLARABEL):
    """A solver that returns the status "infeasible" for feasible problems."""

    def name(self):
        return "INFEASIBLE"

    def invert(self, solution, inverse_data):
        result = super().invert(solution, inverse_data)
        result.status = "infeasible"
        return result


class Hanging(CLARABEL):
    """A solver that never returns."""

    def name(self):
        return "HANGING"

    def solve_via_data(self, *args, **kwargs):
        while True:
            time.sleep(3600)


class Crashing(CLARABEL):
    """A solver that crashes its process."""

    def name(self):
        return "CRASHING"

    def solve_via_data(self, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGSEGV)


class Growing(CLARABEL):
    """A solver that allocates memory without limit."""

    def name(self):
        return "GROWING"

    def solve_via_data(self, *args, **kwargs):
        remaining = []
        while True:
            remaining.append(np.ones(5_000_000))
            time.sleep(0.005)


class Raising(CLARABEL):
    """A solver that raises an unexpected exception."""

    def name(self):
        return "RAISING"

    def solve_via_data(self, *args, **kwargs):
        raise RuntimeError("an unexpected exception")


class Parent(CLARABEL):
    """A solver that starts a child process, which keeps all files open."""

    def name(self):
        return "PARENT"

    def solve_via_data(self, *args, **kwargs):
        child = os.fork()
        if child == 0:
            time.sleep(3600)
            os._exit(0)
        raise RuntimeError(f"left {child}")
