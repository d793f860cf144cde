"""Formulas of markets and of their pieces, as plain text and as LaTeX; the scope of shortcuts."""

from __future__ import annotations

import re
from abc import ABC
from numbers import Real
from typing import Any, ClassVar

import cvxpy as cp

__all__ = ["Defined", "Written", "named", "number", "times"]

_COMMANDS = {
    "eps": r"\varepsilon",
    "in": r"\in",
    "inf": r"\infty",
    "subject to": r"\quad\mathrm{subject\ to}\quad ",
    "||": r"\|",
    "<=": r"\leq ",
    ">=": r"\geq ",
    "'": r"^\top ",
}
_SAME_IN_LATEX = re.compile(
    "min|max|log|exp|sum|psi|eta|mu|sigma|gamma|lambda|alpha|beta|delta|tau|Sigma"
)
_NUMBER = r"\d+(?:\.\d+)?"
_TOKEN = re.compile(
    rf'"[^"]*"|({_NUMBER})e([+-]?\d+)|([_^])({_NUMBER}|inf)|subject to|[A-Za-z][A-Za-z0-9]+'
    r"|\|\||[<>]=|'"
)


class Written:
    """An object with a formula: ``str`` returns it, and a notebook typesets it."""

    #: The formula, with fields in braces. Without one, the name of the class stands for it.
    formula_template: ClassVar[str] = ""
    _argument: ClassVar[str] = ""

    @property
    def formula(self) -> str:
        """The formula, one line of plain text."""
        fields = {name: number(value, f"{name[0]}_i") for name, value in vars(self).items()}
        written = self.formula_template.format_map(fields)
        return written or named(type(self).__name__) + self._argument

    def __str__(self) -> str:
        return self.formula

    def _repr_latex_(self) -> str:
        return f"${_TOKEN.sub(_latex, self.formula)}$"


class Defined(Written, ABC):
    """An object that one method defines; its other attributes are shortcuts.

    A subclass that overrides the definition gets the neutral shortcuts of the base class instead
    of inherited ones, which were written for another definition.

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


def _latex(token: re.Match[str]) -> str:
    """Write one token of a formula in LaTeX."""
    text, (mantissa, exponent, sign, script) = token[0], token.groups()
    if mantissa:
        return rf"{mantissa} \times 10^{{{int(exponent)}}}"
    if sign:
        return f"{sign}{{{_COMMANDS.get(script, script)}}}"
    if _SAME_IN_LATEX.fullmatch(text):
        return f"\\{text}"
    plain = re.sub(r"[^\w .,:;()/*+-]", "", text).replace("_", r"\_").replace(" ", r"\ ")
    return _COMMANDS.get(text, rf"\mathrm{{{plain}}}")


def named(name: object) -> str:
    """Write a name, in quotes unless it looks like a symbol."""
    text = " ".join(str(name).replace('"', "'").split())
    return text if re.fullmatch("[A-Za-z]+(_[A-Za-z0-9])?", text) else f'"{text}"'


def number(value: Any, each: str) -> str:
    """Write a number, or an expression in parameters; ``each`` stands for an entry of a vector."""
    if isinstance(value, cp.Expression):
        return named(value.name() if isinstance(value, cp.Parameter) else f"({value})")
    return f"{value:g}" if isinstance(value, Real) else each


def times(weight: Any, formula: str) -> str:
    """Write a weighted formula."""
    factor = number(weight, "w")
    if formula.startswith("1/"):
        return factor + formula[1:]
    return formula if factor == "1" else f"{factor} {formula}"
