"""Convex modelling for markets in private data.

``__init__.pyi`` lists the names that most users need. These names are loaded on first use. Modules
such as ``terms``, ``priors``, ``learners`` and ``privacy`` contain further names.
"""

from importlib.metadata import version as _version
from typing import Any as _Any

import lazy_loader as _lazy

_PUBLIC = ("priors", "terms", "learners", "privacy", "release", "online", "incentives", "errors")
_attribute, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
__version__ = _version("convexmarket")


def __getattr__(name: str) -> _Any:
    """Load a name, or raise an error with the module that contains it."""
    try:
        return _attribute(name)
    except AttributeError:
        for module in _PUBLIC if not name.startswith("_") else ():
            if hasattr(_attribute(module), name):
                place = f"convexmarket.{module}.{name}"
                message = f"convexmarket has no attribute {name!r}; write {place}"
                raise AttributeError(message, name=name) from None
        raise
