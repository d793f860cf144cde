"""Convex modelling for markets in private data.

Here stand the names that most users type; the others stand in ``terms``, ``priors``,
``allocation``, ``incentives``, ``learners``, ``privacy``, ``joint``, ``online``, ``release``,
``attacks``, ``errors`` and ``datasets``. Each is loaded when it is first asked for; they are listed
in ``__init__.pyi``.
"""

from importlib.metadata import version as _version

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)

__version__ = _version("convexmarket")
