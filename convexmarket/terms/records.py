"""Records with checked, read-only fields, and formulas as plain text and as LaTeX."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, is_dataclass
from functools import partial
from numbers import Real
from typing import Any, ClassVar, TypeVar, dataclass_transform

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.checks import as_float, finite_entries, group_array, numbers_of, shown
from convexmarket.errors import ParameterError

T = TypeVar("T")
Floats = NDArray[np.float64]
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
_SAME_IN_LATEX = "min|max|log|exp|sum|psi|eta|mu|sigma|gamma|lambda|alpha|beta|delta|tau|Sigma"
_NUMBER = r"\d+(?:\.\d+)?"
_TOKEN = re.compile(
    rf'"[^"]*"|({_NUMBER})e([+-]?\d+)|([_^])({_NUMBER}|inf)|subject to|[A-Za-z][A-Za-z0-9]+'
    r"|\|\||[<>]=|'"
)


class Written:
    """An object with a formula, which ``str`` returns and notebooks typeset."""

    #: Formula as a template, with fields in braces. The default is the name of the class.
    formula_template: ClassVar[str] = ""
    _argument: ClassVar[str] = ""

    @property
    def formula(self) -> str:
        """The formula as one line of plain text."""
        fields = {name: written(value, f"{name[0]}_i") for name, value in vars(self).items()}
        formula = self.formula_template.format_map(fields)
        return formula or named(type(self).__name__) + self._argument

    def __str__(self) -> str:
        return self.formula

    def _repr_latex_(self) -> str:
        return f"${_TOKEN.sub(_latex, self.formula)}$"


def checked(
    check: Callable[..., Any],
    label: str = "",
    *,
    each: bool = False,
    default: Any = MISSING,
    **how: Any,
) -> Any:
    """Create a field whose value is ``check(label or name, value, **how)``.

    With ``each``, an array has one entry or row per seller.
    """
    metadata = {"check": partial(check, **how), "label": label, "each": each}
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(checked, field))
def record(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass with the equality, hash and repr of :class:`Record`."""
    return dataclass(frozen=True, eq=False, repr=False)(kind)


class Record(Written, ABC):
    """A dataclass with checked fields, a defining method, and shortcuts for this method.

    A subclass that overrides the defining method inherits only the shortcuts of the base class.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    #: Name of the method that subclasses define.
    definition: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.definition:
            return
        order = cls.__mro__
        base = next(kind for kind in order[::-1] if vars(kind).get("definition"))
        newest = next(place for place, kind in enumerate(order) if cls.definition in vars(kind))
        fields = {name for kind in order[: newest + 1] for name in vars(kind)} | {cls.definition}
        for name, value in (item for kind in base.__mro__[::-1] for item in vars(kind).items()):
            if name not in fields and (name == "__call__" or not name.startswith("_")):
                setattr(cls, name, value)

    @classmethod
    def _fields(cls) -> list[Field[Any]]:
        """Return the fields that are arguments of the constructor, if any."""
        return [x for x in getattr(cls, "__dataclass_fields__", {}).values() if x.init]

    def __post_init__(self) -> None:
        for each in self._fields():
            if check := each.metadata.get("check"):
                label = each.metadata["label"] or each.name
                vars(self)[each.name] = check(label, getattr(self, each.name))

    def check(self, n_sellers: int) -> None:
        """Raise a ParameterError if a field does not fit the number of sellers."""
        for each in self._fields():
            shape = getattr(getattr(self, each.name), "shape", ())
            if each.metadata.get("each") and shape and shape[0] != n_sellers:
                raise ParameterError(
                    f"{each.metadata['label'] or each.name} has {shape[0]} entries for {n_sellers} "
                    "sellers; give one for each seller"
                )

    def _key(self) -> tuple[Any, ...]:
        values = (_hashable(getattr(self, each.name)) for each in self._fields())
        return type(self), *(values if is_dataclass(self) else [id(self)])

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Record) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        parts = []
        for each in self._fields():
            value, factory = getattr(self, each.name), each.default_factory
            default = each.default if factory is MISSING else factory()
            if default is MISSING or _hashable(value) != _hashable(default):
                parts.append(f"{each.name}=" * (default is not MISSING) + _brief(value))
        return f"{type(self).__name__}({', '.join(parts)})"


def _latex(token: re.Match[str]) -> str:
    """Convert one token of a formula to LaTeX."""
    text, (mantissa, exponent, sign, script) = token[0], token.groups()
    if mantissa:
        return rf"{mantissa} \times 10^{{{int(exponent)}}}"
    if sign:
        return f"{sign}{{{_COMMANDS.get(script, script)}}}"
    if re.fullmatch(_SAME_IN_LATEX, text):
        return f"\\{text}"
    plain = re.sub(r"[^\w .,:;()/*+-]", "", text).replace("_", r"\_").replace(" ", r"\ ")
    return _COMMANDS.get(text, rf"\mathrm{{{plain}}}")


def named(name: object) -> str:
    """Format a name, with quotes unless it resembles a symbol."""
    text = " ".join(str(name).replace('"', "'").split())
    return text if re.fullmatch("[A-Za-z]+(_[A-Za-z0-9])?", text) else f'"{text}"'


def written(value: Any, each: str) -> str:
    """Format a number or an expression in parameters, or return ``each`` for a vector."""
    if isinstance(value, cp.Expression):
        return named(value.name() if isinstance(value, cp.Parameter) else f"({value})")
    return f"{value:g}" if isinstance(value, Real) else each


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, *value.ravel().tolist()
    if isinstance(value, cp.Parameter):
        return id(value)
    if hasattr(value, "todok"):  # sparse
        return value.shape, frozenset(value.todok().items())
    return frozenset(value.items()) if isinstance(value, Mapping) else value


def _brief(value: Any) -> str:
    """Format a value for a repr, with the size of an array and the range of a vector."""
    if isinstance(value, cp.Parameter):
        return f"parameter {value.name()!r}"
    shape = getattr(value, "shape", ())
    if not shape:
        return f"{value:g}" if isinstance(value, float) else repr(value)
    if len(shape) == 1 and value.dtype.kind == "f":
        return f"<{value.size} values in [{value.min():g}, {value.max():g}]>"
    return f"<{' x '.join(map(str, shape))} entries>"


def in_interval(name: str, value: Any, interval: str, also: float = np.nan) -> Any:
    """Check that a number is in an interval, such as ``"[0, 1)"``, or equal to ``also``."""
    given, (low, high) = as_float(value), map(float, interval[1:-1].split(","))
    closed = (given == low and interval[0] == "[") or (given == high and interval[-1] == "]")
    if not (low < given < high or closed or given == also):
        other = "" if np.isnan(also) else f", or {also:g}"
        raise ParameterError(f"{name} must be a number in {interval}{other}, got {value!r}")
    return value


def vector(
    name: str, value: Any, of: str = "a vector of finite numbers", least: float = -np.inf
) -> Floats:
    """Check a vector of finite numbers >= ``least``, which ``of`` describes in messages."""
    array = numbers_of(value)
    if array is None or array.ndim != 1 or array.size == 0:
        raise ParameterError(f"{name} must be {of}, got {shown(value)}")
    return finite_entries(name, array, least=least)


def one_or_each(
    name: str, value: Any, example: str = "", zero: bool = False
) -> float | Floats | cp.Parameter:
    """Check a positive number, such as ``example``, or a vector of numbers >= 0.

    With ``zero``, the number can be 0, and parameters are rejected.
    """
    if isinstance(value, cp.Parameter) and not zero:
        if value.ndim > 1 or not (value.ndim or example) or not value.is_nonneg():
            raise ParameterError(
                f"the parameter of {name} must be cp.Parameter(nonneg=True), with one entry for "
                f"each seller{' or none' * bool(example)}"
            )
        return value
    if example and (0 < as_float(value) < np.inf or (zero and as_float(value) == 0)):
        return value
    number = f"a finite number {'>= 0' if zero else '> 0'}, such as {example}, or "
    return vector(name, value, number * bool(example) + "a vector of numbers >= 0", least=0.0)


def matrix(name: str, value: Any, of: str) -> Floats | sparse.csr_array:
    """Check a dense or sparse matrix of finite numbers, which ``of`` describes in messages."""
    if hasattr(value, "tocsr"):  # sparse
        array: Any = sparse.csr_array(value).astype(float)
        array.sum_duplicates()
        entries = array.data
    else:
        entries = array = np.array(numbers_of(value), dtype=float)
    entries.flags.writeable = False
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(entries).all():
        kind = type(value).__name__ + f" of shape {array.shape}" * (array.ndim > 0)
        raise ParameterError(f"{name} is a {kind}; give a matrix of finite numbers, {of}")
    return array


def target(name: str, value: Any, positive: bool = False) -> Floats | None:
    """Check optional target weights."""
    if value is None:
        return None
    weights = vector(name, value, "a vector of target weights, one for each seller", least=0.0)
    if abs(weights.sum() - 1.0) > 1e-6 or (positive and not weights.all()):
        raise ParameterError(
            f"{name} must be target weights {'> 0 ' * positive}with the sum 1, got {shown(value)}; "
            "divide by the sum, and omit sellers without weight"
        )
    return weights


def groups(name: str, value: Any) -> NDArray[Any]:
    """Check the group of each seller."""
    labels = group_array(value)
    if labels.ndim != 1 or labels.size == 0:
        raise ParameterError(f"{name} must be a column or a list with the group of each seller")
    return labels
