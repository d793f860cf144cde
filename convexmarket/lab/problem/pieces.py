"""Tables for the pieces of a market: each builds the term or the constraint that it describes.

What a piece may be is checked by the piece itself. A table only says which key is wrong.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from convexmarket import terms
from convexmarket.lab.problem.base import EtaRange, Nonnegative, Positive, TableModel
from convexmarket.lab.problem.limits import MOST_ENTRIES
from convexmarket.terms import (
    Budget,
    Cap,
    Constraint,
    EffectiveSize,
    ExponentialCost,
    GivenEpsilon,
    GroupShare,
    LinearCost,
    MaxEpsilon,
    Moments,
    Objective,
    PowerCost,
    PrivacyCost,
    Term,
    TieredCost,
)
from convexmarket.terms import EtaRange as EtaRangeConstraint
from convexmarket.terms.risk import Kind, Of, Rule

__all__ = [
    "ConstraintsTable",
    "GroupShareTable",
    "Number",
    "TermTable",
    "TermsTable",
    "objective_of",
]

_POSITIVES = {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "maxItems": 100}
_NAMED_COSTS: dict[str, PrivacyCost] = {"linear": LinearCost(), "exponential": ExponentialCost()}


def _privacy_cost(value: Any) -> PrivacyCost:
    """Return the cost that a file names; a cost that is one already passes."""
    if isinstance(value, PrivacyCost):
        return value
    if isinstance(value, str) and value in _NAMED_COSTS:
        return _NAMED_COSTS[value]
    if isinstance(value, Mapping) and set(value) == {"power"} and type(value["power"]) is not bool:
        return PowerCost(value["power"])
    if isinstance(value, Mapping) and set(value) == {"slopes", "thresholds"}:
        return TieredCost(value["slopes"], value["thresholds"])
    raise ValueError(
        f'{value!r} is no privacy cost; give "linear", "exponential", {{power = 2}} or '
        "{slopes = [1, 3], thresholds = [0.5]}"
    )


def _cost_in_words(cost: PrivacyCost) -> str | dict[str, Any]:
    given = vars(cost).items()
    said = {name: list(value) if isinstance(value, tuple) else value for name, value in given}
    return said or str(cost.name)


PrivacyCostEntry = Annotated[
    PrivacyCost,
    PlainValidator(_privacy_cost),
    PlainSerializer(_cost_in_words),
    WithJsonSchema(
        {
            "oneOf": [
                {"enum": list(_NAMED_COSTS)},
                {
                    "type": "object",
                    "properties": {"power": {"type": "number", "minimum": 1}},
                    "required": ["power"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": dict.fromkeys(("slopes", "thresholds"), _POSITIVES),
                    "required": ["slopes", "thresholds"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


def _one_or_each(value: Any) -> float | tuple[float, ...]:
    """Return a number, or one for each seller."""
    if _is_number(value):
        return value
    if isinstance(value, list | tuple) and value and all(map(_is_number, value)):
        return tuple(value)
    raise ValueError(f"{value!r} is neither a number nor a list with a number for each seller")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    if not (_is_number(value) and math.isfinite(value)):
        raise ValueError(f"{value!r} is not a finite number")
    return value


#: A number that stays what the file wrote, an integer or not.
Number = Annotated[float, PlainValidator(_number), WithJsonSchema({"type": "number"})]


OneOrEach = Annotated[
    float | tuple[float, ...],
    PlainValidator(_one_or_each),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "number"},
                {"type": "array", "items": {"type": "number"}, "maxItems": MOST_ENTRIES},
            ]
        }
    ),
]

#: Numbers in a list, and in a list of rows.
Numbers = Annotated[tuple[Number, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)]
Rows = Annotated[tuple[Numbers, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)]


# ------------------------------------------------------------------------------------------- terms


class TermTable(TableModel):
    """A term and its weight in the objective."""

    builds: ClassVar[type[Any]]
    weight: Nonnegative

    def build(self, groups: NDArray[np.str_] | None = None) -> Term:
        """Return the term, for sellers of these groups, shape (m,), if it needs to know them."""
        keys = {field.name: getattr(self, field.name) for field in _given(self.builds)}
        if self.needs_groups:
            keys["groups"] = _needed(groups, f"the term {self.builds.__name__.lower()}")
        return self.builds(**keys)

    @property
    def needs_groups(self) -> bool:
        """Whether the term is about groups of sellers."""
        return any(field.type == "Groups" for field in fields(self.builds))

    @model_validator(mode="after")
    def _possible(self) -> TermTable:
        """Let the term itself refuse what it cannot be."""
        if not self.needs_groups:
            self.build()
        return self


#: What the constructors of terms may take, as entries of a file.
_ENTRIES: dict[Any, Any] = {
    "float": Annotated[float, Field(allow_inf_nan=True, validate_default=True)],
    "float | None": Number | None,
    "float | Floats": OneOrEach,
    "Floats": Numbers,
    "Floats | None": Numbers | None,
    "Matrix": Rows,
    "Of": Annotated[str, Field(json_schema_extra={"enum": [*get_args(Of)]})],
    "Kind": Kind,
    "Rule": Rule,
    "PrivacyCost": PrivacyCostEntry,
    "Groups": None,  # those of the sellers
}


def _given(kind: type[Any]) -> list[Any]:
    """Return the fields of a term that a file gives."""
    return [field for field in fields(kind) if field.init and field.type != "Groups"]


def _table_of(kind: type[Any]) -> type[TermTable]:
    """Return the table of a term: its name, its weight, and what its constructor takes."""
    name = re.sub("(?<=[a-z])(?=[A-Z][a-z])", "-", kind.__name__).lower()
    entries: dict[str, Any] = {"term": (Literal[name], ...)}
    for field in _given(kind):
        entry = _ENTRIES[field.type]
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if len(choices := get_args(entry)) == 1:
            default = choices[0]
        entries[field.name] = (entry, ... if default is MISSING else default)
    if "privacy_cost" in entries:  # privacy may not be free
        entries["weight"] = (Positive, ...)
    table = create_model(
        f"{kind.__name__}Table", __base__=TermTable, __module__=__name__, **entries
    )
    table.builds, table.__doc__ = kind, (kind.__doc__ or "").split("\n\n")[0]
    return table


def _tables() -> dict[str, type[TermTable]]:
    """Return the tables of the terms that the package exports and numbers can build, by class."""
    classes: list[type[Any]] = [kind for kind in vars(terms).values() if inspect.isclass(kind)]
    shipped: list[type[Any]] = [
        k for k in classes if issubclass(k, Term) and not inspect.isabstract(k)
    ]
    told = [k for k in shipped if all(field.type in _ENTRIES for field in fields(k) if field.init)]
    return {f"{kind.__name__}Table": _table_of(kind) for kind in told}


_TABLES = _tables()
globals().update(_TABLES)  # where pickles look for them


def _needed(groups: NDArray[np.str_] | None, by: str) -> NDArray[np.str_]:
    if groups is None:
        raise ValueError(
            f"{by} needs groups; give sellers.groups, each with a name and a count, or the column "
            "of sellers.file that holds them, sellers.group"
        )
    return groups


def _named_by_label(table: Any) -> Any:
    """Let a label say which term it is, where the entry does not."""
    if not isinstance(table, Mapping):
        return table
    return {
        label: {"term": label, **entry} if isinstance(entry, Mapping) else entry
        for label, entry in table.items()
    }


class _LabelsNameTerms:
    """Publishes in the JSON Schema that an entry under the name of a term need not repeat it."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = dict(handler(core))
        weighted = {
            "type": "object",
            "properties": {"weight": {"type": "number", "minimum": 0}},
            "required": ["weight"],
        }
        return {**schema, "properties": dict.fromkeys(_TERM_NAMES, weighted)}


_TERM_NAMES = [get_args(table.model_fields["term"].annotation)[0] for table in _TABLES.values()]

if TYPE_CHECKING:
    _AnyTermTable = TermTable
else:
    _AnyTermTable = Union[tuple(_TABLES.values())]  # noqa: UP007

#: Terms by label. A label that is the name of a term need not repeat it.
TermsTable = Annotated[
    dict[str, Annotated[_AnyTermTable, Field(discriminator="term")]],
    BeforeValidator(_named_by_label),
    Field(max_length=50),
    _LabelsNameTerms(),
]


def objective_of(
    terms: Mapping[str, TermTable], groups: NDArray[np.str_] | None = None
) -> Objective:
    """Return the weighted sum of the terms, in the order of the file, for sellers of groups."""
    weighted = [entry.weight * entry.build(groups) for entry in terms.values()]
    return sum(weighted[1:], start=weighted[0])


# ------------------------------------------------------------------------------------- constraints

ShareOfWeight = Annotated[float, Field(ge=0, le=1)]
Shares = Annotated[dict[str, ShareOfWeight], Field(max_length=50)]


class GroupShareTable(TableModel):
    """How much of the weight groups of sellers carry: at least, at most, or all the same."""

    at_least: Shares = Field(default_factory=dict)
    at_most: Shares = Field(default_factory=dict)
    equal: bool = False

    @model_validator(mode="after")
    def _says_something(self) -> GroupShareTable:
        if not (self.at_least or self.at_most or self.equal):
            raise ValueError("the table says nothing; give at_least, at_most or equal = true")
        return self


class MomentsTable(TableModel):
    """Public features of each seller, what their averages should be, and how far off they may."""

    A: Rows
    b: Numbers
    tol: OneOrEach = 0.0

    def build(self) -> Moments:
        """Return the constraint."""
        return Moments(**dict(self))

    @model_validator(mode="after")
    def _possible(self) -> MomentsTable:
        self.build()
        return self


class ConstraintsTable(TableModel):
    """What the buyer may not do; each key is one constraint."""

    cap: OneOrEach | None = None
    max_epsilon: OneOrEach | None = None
    given_epsilon: OneOrEach | None = None
    budget: Positive | None = None
    eta_range: EtaRange | None = None
    group_share: GroupShareTable | None = None
    moments: MomentsTable | None = None
    effective_size: Annotated[float, Field(ge=1)] | None = None

    def build(self, groups: NDArray[np.str_] | None = None) -> list[Constraint]:
        """Return the constraints, in the order of the keys above.

        Parameters
        ----------
        groups : ndarray, shape (m,), optional
            The group of each seller; ``group_share`` needs it.
        """
        built: list[Constraint] = []
        for key, kind in _ONE_OR_EACH.items():
            value = getattr(self, key)
            if value is not None:
                built.append(kind(value))
        if self.budget is not None:
            built.append(Budget(self.budget))
        if self.eta_range is not None:
            built.append(EtaRangeConstraint(*self.eta_range))
        if self.group_share is not None:
            share = self.group_share
            groups = _needed(groups, "constraints.group_share")
            built.append(GroupShare(groups, share.at_least, share.at_most, share.equal))
        if self.moments is not None:
            built.append(self.moments.build())
        if self.effective_size is not None:
            built.append(EffectiveSize(self.effective_size))
        return built

    @field_validator("cap", "max_epsilon", "given_epsilon")
    @classmethod
    def _possible(cls, value: Any, info: Any) -> Any:
        """Let the constraint itself refuse what it cannot be."""
        if value is not None:
            _ONE_OR_EACH[info.field_name](value)
        return value


_ONE_OR_EACH: dict[str, type[Cap | MaxEpsilon]] = {
    "cap": Cap,
    "max_epsilon": MaxEpsilon,
    "given_epsilon": GivenEpsilon,
}
