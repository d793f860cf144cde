"""User-defined solvers and learners, named by module and class."""

from __future__ import annotations

import importlib
from typing import Any

from convexmarket.errors import ParameterError

__all__ = ["load_plugin"]


def load_plugin(name: str, what: str = "solver", of: str = "a solver interface of CVXPY") -> Any:
    """Import a class by its path ``"module:Class"``.

    Raises
    ------
    ParameterError
        If the class does not exist, or its module cannot be imported.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs the module, which may raise anything
        raise ParameterError(
            f"the {what} {name!r} cannot be imported ({type(error).__name__}: {error}); give "
            f"module:Class of {of} that Python finds"
        ) from None
