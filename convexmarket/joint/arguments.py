"""What the methods of the joint problem have in common: their arguments, checked once."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np

from convexmarket.errors import ParameterError

__all__ = ["check_arguments"]

_COUNTS = ("starts", "max_iterations", "grid")
_POSITIVE = ("gap", "tolerance", "eps_max", "step")
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
            if not isinstance(value, int | np.integer) or value is True or value < 1:
                raise ParameterError(f"{name} is {value!r}; give a whole number >= 1")
        elif name in _POSITIVE:
            if not (isinstance(value, Real) and 0 < float(value) < np.inf):
                raise ParameterError(f"{name} is {value!r}; give a finite number > 0")
        elif name == "rng" and not isinstance(value, np.random.Generator):
            raise ParameterError(f"rng is {value!r}; give a numpy.random.Generator")
        elif name == "solver_options" and not isinstance(value, dict):
            raise ParameterError(f"solver_options is {value!r}; give a dictionary")
