"""The kinds of experiments, by the name that a problem file gives; each is a folder here."""

from importlib import import_module
from pkgutil import iter_modules

from convexmarket.lab.kind import Kind

__all__ = ["KINDS"]

#: Each folder's ``__init__`` holds the one registration of its kind.
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        import_module(f"{__name__}.{folder.name}").KIND for folder in iter_modules(__path__)
    )
}
