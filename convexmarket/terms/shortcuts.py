"""What a piece knows of itself beside its definition, and when that may be believed."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

from convexmarket.terms.formula import Written

__all__ = ["Defined"]


class Defined(Written, ABC):
    """Something that one method defines; what else it knows of itself are shortcuts to that.

    A subclass that overrides the definition and inherits a shortcut would be taken for its parent.
    So a shortcut counts only where it is written for the definition at hand; elsewhere the one of
    the base class takes its place, which knows nothing.

    Attributes
    ----------
    definition : str
        Name of the method.
    shortcuts : tuple of str
        Names of the other attributes, as the base class has them.
    """

    definition: ClassVar[str]
    shortcuts: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        order = cls.__mro__.index  # not issubclass, of which an ABC half made keeps a wrong answer
        for name in cls.shortcuts:
            owners = [kind for kind in cls.__mro__ if name in vars(kind)]
            newest, default = owners[0], owners[-1]
            if newest is not default and order(newest) > order(cls.owner()):
                setattr(cls, name, vars(default)[name])

    @classmethod
    def owner(cls) -> type:
        """Return the class that the definition is written in."""
        return next(kind for kind in cls.__mro__ if cls.definition in vars(kind))
