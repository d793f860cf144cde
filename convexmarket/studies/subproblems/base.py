"""One optimisation problem in numbers: what a solver study hands to every solver."""

from __future__ import annotations

import abc
from typing import ClassVar

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Instance"]

Floats = NDArray[np.float64]


class Instance(abc.ABC):
    """A problem that can be declared in several ways, with parameters that have two values each.

    Attributes
    ----------
    problem_class : str
        What it is called in a study.
    formulations : tuple of str
        The declarations that it knows.
    """

    problem_class: ClassVar[str]
    formulations: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def declare(self, formulation: str) -> cp.Problem:
        """Return the problem with its parameters at their first values.

        It follows CVXPY's rules for parameters, and its constraints are equations and inequalities,
        so that the residuals of any point can be computed.
        """

    @abc.abstractmethod
    def change(self, problem: cp.Problem) -> None:
        """Set the parameters to their second values."""

    @abc.abstractmethod
    def answer(self, problem: cp.Problem) -> Floats:
        """Return what the problem was solved for, as the solver left it: weights, or a model."""

    @abc.abstractmethod
    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the objective of an answer, the same function for every formulation."""

    @abc.abstractmethod
    def violation(self, answer: Floats) -> float:
        """Return by how much an answer breaks the constraints, relative to their size."""

    def scale(self, changed: bool) -> float:
        """Return what errors of the objective are relative to where it is smaller itself."""
        del changed
        return 0.0

    def exact(self, changed: bool) -> Floats | None:
        """Return the optimum to rounding, or None where only solvers find it."""
        del changed
        return None
