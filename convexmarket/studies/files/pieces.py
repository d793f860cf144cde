"""Tables of the pieces of a market: terms, constraints, sellers and priors.

The pieces check their arguments; a table adds the key to the error.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
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
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers
from convexmarket.studies.files.base import (
    MOST_ENTRIES,
    Column,
    FileName,
    Name,
    Nonnegative,
    Positive,
    PriorTable,
    Range,
    Table,
)
from convexmarket.terms import Constraint, Moments, Objective, PrivacyCost, Term
from convexmarket.terms.risk import Kind, Of, Rule

__all__ = [
    "ConstraintsTable",
    "GroupTable",
    "MarketTable",
    "Number",
    "SellersTable",
    "TermTable",
    "TermsTable",
]

# ------------------------------------------------------------------------------------ entries

_COSTS: dict[str, PrivacyCost] = {
    "linear": terms.LinearCost(),
    "exponential": terms.ExponentialCost(),
}


def _privacy_cost(value: Any) -> PrivacyCost:
    if isinstance(value, PrivacyCost):
        return value
    if isinstance(value, str) and value in _COSTS:
        return _COSTS[value]
    if isinstance(value, Mapping) and set(value) == {"power"} and type(value["power"]) is not bool:
        return terms.PowerCost(value["power"])
    if isinstance(value, Mapping) and set(value) == {"slopes", "thresholds"}:
        return terms.TieredCost(value["slopes"], value["thresholds"])
    raise ValueError(
        f'{value!r} is not a privacy cost; give "linear", "exponential", {{power = 2}} or '
        "{slopes = [1, 3], thresholds = [0.5]}"
    )


def _written_cost(cost: PrivacyCost) -> str | dict[str, Any]:
    entries = vars(cost).items()
    written = {name: list(v) if isinstance(v, tuple) else v for name, v in entries}
    return written or str(cost.name)


def _closed(**properties: Any) -> dict[str, Any]:
    """Return the schema of a table with these keys."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_positives = {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "maxItems": 100}
_tables = [_closed(power={"type": "number", "minimum": 1})]
_tables.append(_closed(slopes=_positives, thresholds=_positives))
_PrivacyCostEntry = Annotated[
    PrivacyCost,
    PlainValidator(_privacy_cost),
    PlainSerializer(_written_cost),
    WithJsonSchema({"oneOf": [{"enum": list(_COSTS)}, *_tables]}),
]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    if not (_is_number(value) and math.isfinite(value)):
        raise ValueError(f"{value!r} is not a finite number")
    return value


def _one_or_each(value: Any) -> float | tuple[float, ...]:
    if _is_number(value):
        return value
    if isinstance(value, list | tuple) and value and all(map(_is_number, value)):
        return tuple(value)
    raise ValueError(f"{value!r} is neither a number nor a list with a number for each seller")


#: A number that stays an integer if the file has an integer.
Number = Annotated[float, PlainValidator(_number), WithJsonSchema({"type": "number"})]
_list = {"type": "array", "items": {"type": "number"}, "maxItems": MOST_ENTRIES}
_OneOrEach = Annotated[
    float | tuple[float, ...],
    PlainValidator(_one_or_each),
    WithJsonSchema({"oneOf": [{"type": "number"}, _list]}),
]
_Numbers = Annotated[tuple[Number, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)]
_Rows = Annotated[tuple[_Numbers, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)]

#: The types of the arguments of terms, as entries of a file.
_ENTRIES: dict[Any, Any] = {
    "float": Annotated[float, Field(allow_inf_nan=True, validate_default=True)],
    "float | None": Number | None,
    "float | Floats": _OneOrEach,
    "Floats": _Numbers,
    "Floats | None": _Numbers | None,
    "Matrix": _Rows,
    "Of": Annotated[str, Field(json_schema_extra={"enum": [*get_args(Of)]})],
    "Kind": Kind,
    "Rule": Rule,
    "PrivacyCost": _PrivacyCostEntry,
    "Groups": None,  # those of the sellers
}


# -------------------------------------------------------------------------------------- terms


class TermTable(Table):
    """A term of the objective.

    Attributes
    ----------
    term : str
        Which term; the label of the entry by default.
    weight : float
        Weight in the objective.
    """

    builds: ClassVar[type[Any]]
    weight: Nonnegative

    def build(self, groups: NDArray[np.str_] | None = None) -> Term:
        """Return the term; ``groups`` has shape (m,), for terms that need groups."""
        keys = {field.name: getattr(self, field.name) for field in _given(self.builds)}
        if self.needs_groups:
            keys["groups"] = _needed(groups, f"the term {self.builds.__name__.lower()}")
        return self.builds(**keys)

    @property
    def needs_groups(self) -> bool:
        """Whether the term concerns groups of sellers."""
        return any(field.type == "Groups" for field in fields(self.builds))

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.needs_groups:
            self.build()
        return self


def _given(kind: type[Any]) -> list[Any]:
    """Return the fields of a term that a file gives."""
    return [field for field in fields(kind) if field.init and field.type != "Groups"]


def _table_of(kind: type[Any]) -> type[TermTable]:
    """Return the table of a term: its name, its weight, and the arguments of its constructor."""
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
    text = inspect.getdoc(kind) or ""
    table.builds, table.__doc__ = kind, text.replace("Parameters\n------", "Attributes\n------")
    return table


def term_tables() -> dict[str, type[TermTable]]:
    """Return the tables of the exported terms whose arguments a file can hold, by class."""
    classes: list[Any] = [kind for kind in vars(terms).values() if inspect.isclass(kind)]
    exported: list[Any] = [k for k in classes if issubclass(k, Term) and not inspect.isabstract(k)]
    return {
        f"{kind.__name__}Table": _table_of(kind)
        for kind in exported
        if all(field.type in _ENTRIES for field in fields(kind) if field.init)
    }


_TABLES = term_tables()
globals().update(_TABLES)  # where pickles look for them


def _needed(groups: NDArray[np.str_] | None, by: str) -> NDArray[np.str_]:
    if groups is None:
        raise ValueError(
            f"{by} needs groups; give sellers.groups, each with a name and a count, or the column "
            "of sellers.file that holds them, sellers.group"
        )
    return groups


def _named_by_label(table: Any) -> Any:
    if not isinstance(table, Mapping):
        return table
    return {
        label: {"term": label, **entry} if isinstance(entry, Mapping) else entry
        for label, entry in table.items()
    }


class _LabelsNameTerms:
    """Allow entries of the JSON Schema under the name of a term to leave out ``term``."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        weight = {"type": "number", "minimum": 0}
        weighted = {"type": "object", "properties": {"weight": weight}, "required": ["weight"]}
        kinds: list[Any] = [table.model_fields["term"].annotation for table in _TABLES.values()]
        names = [get_args(kind)[0] for kind in kinds]
        return {**dict(handler(core)), "properties": dict.fromkeys(names, weighted)}


if TYPE_CHECKING:
    _AnyTermTable = TermTable
else:
    _AnyTermTable = Union[tuple(_TABLES.values())]  # noqa: UP007

#: Terms by label. A label that is the name of a term need not repeat it.
TermsTable = Annotated[
    dict[str, Annotated[_AnyTermTable, Field(discriminator="term")]],
    BeforeValidator(_named_by_label),
    Field(min_length=1, max_length=50),
    _LabelsNameTerms(),
]


# -------------------------------------------------------------------------------- constraints

_ShareOfWeight = Annotated[float, Field(ge=0, le=1)]
_Shares = Annotated[dict[str, _ShareOfWeight], Field(max_length=50)]


class GroupShareTable(Table):
    """Bounds on the share of the weight of groups of sellers.

    Attributes
    ----------
    at_least, at_most : table
        Smallest and largest share of each group.
    equal : bool
        Whether all groups have the same share.
    """

    at_least: _Shares = Field(default_factory=dict)
    at_most: _Shares = Field(default_factory=dict)
    equal: bool = False

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not (self.at_least or self.at_most or self.equal):
            raise ValueError("the table is empty; give at_least, at_most or equal = true")
        return self


class MomentsTable(Table):
    """Averages of public features that the weighted sellers should have.

    Attributes
    ----------
    A : list of lists
        Public features, one row per seller.
    b : list of float
        The averages.
    tol : float or list of float
        Largest difference of each average.
    """

    A: _Rows
    b: _Numbers
    tol: _OneOrEach = 0.0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        Moments(**dict(self))
        return self


#: Constraints that take one number, or a pair; by their keys.
_SIMPLE: dict[str, Any] = {
    "cap": terms.Cap,
    "max_epsilon": terms.MaxEpsilon,
    "given_epsilon": terms.GivenEpsilon,
    "budget": terms.Budget,
    "eta_range": lambda ends: terms.EtaRange(*ends),
}


class ConstraintsTable(Table):
    """Constraints of a purchase; each key is one.

    Attributes
    ----------
    cap : float or list of float
        Largest weight of a seller, in multiples of the average.
    max_epsilon, given_epsilon : float or list of float
        Largest guarantee of a seller; and what each seller grants at most, without payment.
    budget : float
        Largest expected payment in all.
    eta_range : list of two floats
        Smallest and largest total privacy.
    group_share, moments : table
        Shares of groups, and averages of public features.
    effective_size : float
        Smallest number of equally weighted sellers that the weights amount to.
    """

    cap: _OneOrEach | None = None
    max_epsilon: _OneOrEach | None = None
    given_epsilon: _OneOrEach | None = None
    budget: Positive | None = None
    eta_range: Range | None = None
    group_share: GroupShareTable | None = None
    moments: MomentsTable | None = None
    effective_size: Annotated[float, Field(ge=1)] | None = None

    def build(self, groups: NDArray[np.str_] | None = None) -> list[Constraint]:
        """Return the constraints; ``groups`` has shape (m,), for ``group_share``."""
        built: list[Constraint] = [
            kind(value)
            for key, kind in _SIMPLE.items()
            if (value := getattr(self, key)) is not None
        ]
        if self.group_share is not None:
            groups = _needed(groups, "constraints.group_share")
            built.append(terms.GroupShare(groups, **dict(self.group_share)))
        if self.moments is not None:
            built.append(Moments(**dict(self.moments)))
        if self.effective_size is not None:
            built.append(terms.EffectiveSize(self.effective_size))
        return built

    @field_validator(*_SIMPLE)
    @classmethod
    def _possible(cls, value: Any, info: Any) -> Any:
        if value is not None:
            _SIMPLE[info.field_name](value)
        return value


# ------------------------------------------------------------------------------------ sellers

_Count = Annotated[int, Field(ge=1, le=MOST_ENTRIES)]
_Reports = Annotated[
    tuple[Nonnegative, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)
]


class GroupTable(Table):
    """A group of sellers.

    Attributes
    ----------
    name : str
        Name in figures and tables.
    count : int
        Sellers that are drawn from the prior; or
    sensitivities : list of float
        The sellers' reports.
    prior : table
        Prior of the group; that of all sellers by default.
    """

    name: Name
    count: _Count | None = None
    sensitivities: _Reports | None = None
    prior: PriorTable | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.count is None) == (self.sensitivities is None):
            raise ValueError("give either count, to draw so many from the prior, or sensitivities")
        return self

    @property
    def size(self) -> int:
        """Number of sellers."""
        return self.count or len(self.sensitivities or ())


def _named_once(groups: tuple[GroupTable, ...]) -> tuple[GroupTable, ...]:
    if len({group.name for group in groups}) < len(groups):
        raise ValueError("two groups have the same name; give each another name")
    return groups


_Groups = Annotated[
    tuple[GroupTable, ...], Field(strict=False, max_length=50), AfterValidator(_named_once)
]


class SellersTable(Table):
    """The sellers of a market: drawn, listed, groups of either, or those of a file.

    Attributes
    ----------
    count : int
        Sellers that are drawn from the prior.
    sensitivities : list of float
        The sellers' reports.
    groups : list of tables
        Groups of sellers.
    file : str
        A CSV or Parquet file of sellers and their reports, relative to the problem file.
    id, report, group : str
        Columns of the file: ids, what sellers ask per unit of epsilon, and their groups.
    """

    count: _Count | None = None
    sensitivities: _Reports | None = None
    groups: _Groups = ()
    file: FileName | None = None
    id: Column | None = None
    report: Column | None = None
    group: Column | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.count, self.sensitivities, self.groups or None, self.file)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("give one of count, sensitivities, groups and file")
        columns = [name for name in (self.id, self.report, self.group) if name is not None]
        if columns and self.file is None:
            raise ValueError(
                "id, report and group are columns of a file; give file, or none of them"
            )
        if len(set(columns)) < len(columns):
            raise ValueError("a column is named twice among id, report and group")
        return self

    @property
    def parts(self) -> tuple[GroupTable, ...]:
        """The groups; all sellers as one without groups, and none for a file."""
        if self.groups or self.file is not None:
            return self.groups
        return (GroupTable(name="all", count=self.count, sensitivities=self.sensitivities),)

    def resized(self, size: int) -> SellersTable | None:
        """Return so many drawn sellers, groups in proportion; None if sellers are given."""
        if not self.parts or any(part.count is None for part in self.parts):
            return None
        if not self.groups:
            return SellersTable(count=size)
        counts = np.array([part.size for part in self.parts], dtype=float)
        ends = np.round(np.cumsum(counts) / counts.sum() * size).astype(int)
        groups = tuple(
            part.model_copy(update={"count": max(int(count), 1)})
            for part, count in zip(self.parts, np.diff(ends, prepend=0), strict=True)
        )
        return self.model_copy(update={"groups": groups})


# ------------------------------------------------------------------------------------- market


class MarketTable(Table):
    """A complete market.

    Attributes
    ----------
    sellers : table
        The sellers and their reports.
    prior : table
        Distribution of the sensitivities, common knowledge.
    objective : table
        Terms of the buyer's objective, by label.
    constraints : table
        Constraints of the purchase.
    """

    sellers: SellersTable
    prior: PriorTable | None = None
    objective: TermsTable
    constraints: ConstraintsTable = ConstraintsTable()

    @property
    def priors(self) -> dict[str, Prior]:
        """The prior of each group; of all sellers under "" if there are no groups."""
        if not self.sellers.groups:
            return {"": self._required(self.prior, "the sellers")}
        return {
            group.name: self._required(group.prior or self.prior, f"the group {group.name!r}")
            for group in self.sellers.groups
        }

    @staticmethod
    def _required(prior: Prior | None, of: str) -> Prior:
        if prior is None:
            raise ValueError(f"{of} have no prior; give [prior]")
        return prior

    def build(self, seed: int, listed: pd.DataFrame | None = None) -> Market:
        """Return the market.

        Parameters
        ----------
        seed : int
            Of the sensitivities that are drawn. The k-th seller has the same quantile of every
            prior, so that variants with different priors are compared on paired draws.
        listed : DataFrame, optional
            The sellers of the file: id, sensitivity and, if its column is named, group.
        """
        priors = self.priors
        if listed is not None:
            named = listed["group"].astype(str).to_numpy(np.str_) if "group" in listed else None
            reports = listed["sensitivity"].to_numpy()
            sellers = Sellers(reports, priors[""], ids=listed["id"].tolist(), groups=named)
        else:
            parts = self.sellers.parts
            sizes = [part.size for part in parts]
            levels = np.random.default_rng(seed).random(sum(sizes))
            drawn = [
                np.array(part.sensitivities) if part.count is None else prior.quantile(own)
                for part, prior, own in zip(
                    parts, priors.values(), np.split(levels, np.cumsum(sizes)[:-1]), strict=True
                )
            ]
            named = np.repeat([part.name for part in parts], sizes) if self.sellers.groups else None
            prior: Any = priors[""] if named is None else priors
            sellers = Sellers(np.concatenate(drawn), prior, groups=named)
        weighted = [entry.weight * entry.build(named) for entry in self.objective.values()]
        objective: Objective = sum(weighted[1:], start=weighted[0])
        return Market(sellers, objective, self.constraints.build(named))

    def check(self, seed: int) -> None:
        """Refuse a market that cannot be declared; sellers in a file are not read.

        Raises
        ------
        ValueError
        """
        if self.sellers.file is None:
            self.build(seed)
        elif self.priors and self.sellers.group is None:
            for entry in self.objective.values():
                entry.build()
            self.constraints.build()
