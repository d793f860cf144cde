"""Solvers that misbehave, as a study meets them: they lie, hang, die, eat memory, or give up."""

import os
import signal
import time

import numpy as np
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL


class Liar(CLARABEL):
    """Solve, move the point away, and call it optimal all the same."""

    def name(self):
        return "LIAR"

    def invert(self, solution, inverse_data):
        result = super().invert(solution, inverse_data)
        for key, value in result.primal_vars.items():
            result.primal_vars[key] = 1.05 * np.asarray(value)
        return result


class FalseAlarm(CLARABEL):
    """Call a problem infeasible that is not."""

    def name(self):
        return "ALARM"

    def invert(self, solution, inverse_data):
        result = super().invert(solution, inverse_data)
        result.status = "infeasible"
        return result


class Sleeper(CLARABEL):
    """Never come back."""

    def name(self):
        return "SLEEPER"

    def solve_via_data(self, *args, **kwargs):
        while True:
            time.sleep(3600)


class Suicide(CLARABEL):
    """Take the process along."""

    def name(self):
        return "SUICIDE"

    def solve_via_data(self, *args, **kwargs):
        os.kill(os.getpid(), signal.SIGSEGV)


class Glutton(CLARABEL):
    """Take all the memory there is."""

    def name(self):
        return "GLUTTON"

    def solve_via_data(self, *args, **kwargs):
        remaining = []
        while True:
            remaining.append(np.ones(5_000_000))
            time.sleep(0.005)


class Quitter(CLARABEL):
    """Raise something that no solver should."""

    def name(self):
        return "QUITTER"

    def solve_via_data(self, *args, **kwargs):
        raise RuntimeError("I do not feel like it")


class Pinned(CLARABEL):
    """Tell the cores that it may use."""

    def name(self):
        return "PINNED"

    def solve_via_data(self, *args, **kwargs):
        raise RuntimeError(f"on cores {sorted(os.sched_getaffinity(0))}")


class Parent(CLARABEL):
    """A solver that leaves a child process, which keeps all open files."""

    def name(self):
        return "PARENT"

    def solve_via_data(self, *args, **kwargs):
        child = os.fork()
        if child == 0:
            time.sleep(3600)
            os._exit(0)
        raise RuntimeError(f"left {child}")
