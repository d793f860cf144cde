"""What the methods of the joint problem have in common: their arguments, checked once."""

from __future__ import annotations

from typing import Any

import numpy as np

from convexmarket.checks import check_callable, check_count, check_instance, check_positive

__all__ = ["check_arguments"]

_COUNTS = ("starts", "max_iterations", "grid")
_POSITIVE = ("gap", "tol", "eps_max", "step")
#: Arguments that None stands for something in.
_OPTIONAL = ("eps_max", "step", "rng", "solver", "solver_options")


def check_arguments(**arguments: Any) -> None:
    """Check arguments by their names; those that are not known here pass.

    Raises
    ------
    ParameterError
        With the name, the value and what to give instead.
    """
    for name, value in arguments.items():
        if value is None and name in _OPTIONAL:
            continue
        if name in _COUNTS:
            check_count(name, value)
        elif name in _POSITIVE:
            check_positive(name, value)
        elif name == "progress":
            check_callable(name, value)
        elif name == "rng":
            check_instance(name, value, np.random.Generator, "a numpy.random.Generator")
        elif name == "solver_options":
            check_instance(name, value, dict, "a dictionary")
