"""Attributes that a class declares next to its definition, and their scope."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

from convexmarket.terms.formula import Written

__all__ = ["Defined"]


class Defined(Written, ABC):
    """An object that one method defines; its other attributes are shortcuts.

    A shortcut is valid only for the definition that it was written for. A subclass that overrides
    the definition gets the neutral shortcuts of the base class instead of inherited ones.

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
        order = cls.__mro__.index  # issubclass of an incomplete ABC would cache a wrong answer
        for name in cls.shortcuts:
            owners = [kind for kind in cls.__mro__ if name in vars(kind)]
            newest, default = owners[0], owners[-1]
            if newest is not default and order(newest) > order(cls.owner()):
                setattr(cls, name, vars(default)[name])

    @classmethod
    def owner(cls) -> type:
        """Return the class that contains the definition."""
        return next(kind for kind in cls.__mro__ if cls.definition in vars(kind))
