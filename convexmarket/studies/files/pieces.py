"""The pieces of a market in a file: terms, constraints and sellers.

A term or constraint is a class of :mod:`convexmarket.terms`. The keys of its table and their
schema are the fields of the class. The class checks values; the file adds the key to errors.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from convexmarket import terms
from convexmarket.errors import ConvexMarketError
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers
from convexmarket.studies.files import file_tables as tables
from convexmarket.terms import Constraint, Term

Groups = NDArray[np.str_] | None

# --------------------------------------------------------------------- terms and constraints

#: Types of fields that a file can hold. A class with another type of field is for Python only.
_HELD = {"float", "float | None", "Number", "bool", "float | Floats", "Floats", "Floats | None"}
_HELD |= {"Matrix", "Any", "Mapping[Any, float]", "Of", "Kind", "Rule", "PrivacyCost"}
_COSTS = {"linear": terms.LinearCost(), "exponential": terms.ExponentialCost()}
#: The JSON Schema of an argument.
_VALUE = tables.ARGUMENT | {"type": [*tables.ARGUMENT["type"], "object"]}
_VALUE["maxItems"] = tables.MOST_ENTRIES


def _keys(kind: type[Any]) -> dict[str, str]:
    """Return the keys of a class in a file, with types; groups are declared with the sellers."""
    return {
        each.name: str(each.type) for each in fields(kind) if each.init and each.name != "groups"
    }


def named(base: type[Any], sign: str) -> dict[str, Any]:
    """List the exported classes with fields that a file can hold, by name: "squared-spread"."""
    return {
        re.sub("(?<=[a-z])(?=[A-Z][a-z])", sign, kind.__name__).lower(): kind
        for kind in vars(terms).values()
        if inspect.isclass(kind)
        and issubclass(kind, base)
        and not inspect.isabstract(kind)
        and _HELD.issuperset(_keys(kind).values())
    }


def _privacy_cost(value: Any) -> terms.PrivacyCost:
    if isinstance(value, str) and value in _COSTS:
        return _COSTS[value]
    if isinstance(value, Mapping) and set(value) == {"power"}:
        return terms.PowerCost(**value)
    if isinstance(value, Mapping) and set(value) == {"slopes", "thresholds"}:
        return terms.TieredCost(**value)
    raise ValueError(
        f'{value!r} is not a privacy cost; give "linear", "exponential", {{power = 2}} or '
        "{slopes = [1, 3], thresholds = [0.5]}"
    )


@dataclass(frozen=True)
class Piece:
    """A term or constraint: its name, its class, its arguments, and the weight of a term."""

    name: str
    kind: Any
    arguments: dict[str, Any]
    weight: Any = 1.0

    @property
    def needs_groups(self) -> bool:
        """Whether the piece concerns groups of sellers."""
        return any(each.name == "groups" for each in fields(self.kind))

    def build(self, groups: Groups) -> Any:
        """Return the weighted term, or the constraint; ``groups`` has shape (m,)."""
        arguments = dict(self.arguments)
        if "privacy_cost" in arguments:
            arguments["privacy_cost"] = _privacy_cost(arguments["privacy_cost"])
        if self.needs_groups:
            if groups is None:
                raise ValueError(
                    f"{self.name} needs groups; give sellers.groups, each with a name and a count, "
                    "or the column of sellers.file that holds them, sellers.group"
                )
            arguments["groups"] = groups
        built = self.kind(**arguments)
        return self.weight * built if issubclass(self.kind, Term) else built

    def checked(self) -> Self:
        """Return the piece if its class accepts the arguments."""
        tables.refuse_unknown(self.arguments, _keys(self.kind))
        if not self.needs_groups:
            try:
                inspect.signature(self.kind).bind(**self.arguments)
                self.build(None)
            except (ConvexMarketError, TypeError, OverflowError) as error:
                raise ValueError(str(error)) from None
        return self


def _term(labelled: tuple[str, Any]) -> Piece:
    label, given = labelled
    if not isinstance(given, Mapping) or "weight" not in given:
        raise ValueError(f"{given!r:.60} has no weight; give {{ weight = 1.0 }}")
    arguments, known = dict(given), named(Term, "-")
    name, weight = arguments.pop("term", label), arguments.pop("weight")
    if name not in known:
        raise ValueError(f"term is {name!r}; {tables.suggestion(str(name), known)}")
    return Piece(name, known[name], arguments, weight).checked()


def _constraint(labelled: tuple[str, Any]) -> Piece:
    (name, given), known = labelled, named(Constraint, "_")
    tables.refuse_unknown([name], known)
    keys = list(_keys(known[name]))
    if not isinstance(given, Mapping) or len(keys) == 1:
        values = given if isinstance(given, list) and len(keys) > 1 else [given]
        if len(values) != len(keys):
            raise ValueError(f"{given!r:.60} does not give {', '.join(keys)}; give a table of them")
        given = dict(zip(keys, values, strict=True))
    return Piece(name, known[name], dict(given)).checked()


def _labelled(table: Any) -> Any:
    """Add the key to each entry of a table, so that errors contain the path of the entry."""
    return {key: (key, table[key]) for key in table} if isinstance(table, Mapping) else table


def _schema(base: type[Any], sign: str) -> dict[str, Any]:
    """Return the schema of a table of pieces: a key for each constraint, all keys for a term."""
    known = named(base, sign)
    if base is Constraint:
        texts = {name: str(inspect.getdoc(kind)).split("\n\n")[0] for name, kind in known.items()}
        each = {name: _VALUE | {"description": text} for name, text in texts.items()}
        return {"type": "object", "properties": each, "additionalProperties": False}
    keys = {key: _VALUE for kind in known.values() for key in _keys(kind)}
    keys |= {"term": {"enum": [*known]}, "weight": {"type": "number"}}
    term = {"type": "object", "properties": keys, "additionalProperties": False}
    return {"type": "object", "additionalProperties": term | {"required": ["weight"]}}


#: Terms by label; a label that is the name of a term defines the term.
TermsTable = Annotated[
    dict[str, Annotated[Piece, PlainValidator(_term)]],
    BeforeValidator(_labelled),
    Field(min_length=1, max_length=50),
    WithJsonSchema(_schema(Term, "-")),
]
#: Constraints by name.
ConstraintsTable = Annotated[
    dict[str, Annotated[Piece, PlainValidator(_constraint)]],
    BeforeValidator(_labelled),
    WithJsonSchema(_schema(Constraint, "_")),
]

# ------------------------------------------------------------------------------------ sellers


class _SomeSellers(tables.Table):
    count: Annotated[int, Field(ge=1, le=tables.MOST_ENTRIES)] | None = None
    """Number of sellers to draw from the prior."""
    sensitivities: tables.Many[tables.Nonnegative] | None = None
    """Reports of the sellers, instead of a number."""

    @property
    def size(self) -> int:
        """Number of sellers."""
        return self.count or len(self.sensitivities or ())

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        fields = type(self).model_fields
        names = [name for name in ("count", "sensitivities", "groups", "file") if name in fields]
        if sum(bool(getattr(self, name)) for name in names) != 1:
            raise ValueError(f"give one of {', '.join(names)}")
        return self


class GroupTable(_SomeSellers):
    """A group of sellers."""

    name: tables.Name
    """Name in figures and tables."""
    prior: tables.PriorTable | None = None
    """Prior of the group; by default the prior of all sellers."""


class SellersTable(_SomeSellers):
    """The sellers of a market: drawn, listed, in groups, or read from a file."""

    groups: tables.Several[GroupTable] = ()
    file: tables.FileName | None = None
    """CSV or Parquet file of sellers and their reports, relative to the problem file."""
    id: tables.Column | None = None
    """Column of the ids in the file."""
    report: tables.Column | None = None
    """Column of the prices asked per unit of epsilon."""
    group: tables.Column | None = None
    """Column of the groups in the file."""

    @model_validator(mode="after")
    def _columns_of_a_file(self) -> Self:
        columns = [name for name in (self.id, self.report, self.group) if name is not None]
        if columns and self.file is None:
            raise ValueError("id, report and group are columns of a file; give file")
        if len(set(columns)) < len(columns):
            raise ValueError("a column is named twice among id, report and group")
        return self


# ------------------------------------------------------------------------------------- market


class MarketTable(tables.Table):
    """A complete market."""

    sellers: SellersTable
    prior: tables.PriorTable | None = None
    objective: TermsTable
    """Terms of the buyer's objective, by label: classes of convexmarket.terms."""
    constraints: ConstraintsTable = Field(default_factory=dict)
    """Constraints of the purchase: classes of convexmarket.terms."""

    @property
    def pieces(self) -> list[Piece]:
        """The terms and constraints."""
        return [*self.objective.values(), *self.constraints.values()]

    @property
    def priors(self) -> dict[str, Prior]:
        """The prior of each group; without groups, the prior of all sellers has the key ""."""
        priors = {group.name: group.prior or self.prior for group in self.sellers.groups}
        priors = priors or {"": self.prior}
        given = {name: prior for name, prior in priors.items() if prior is not None}
        if len(given) < len(priors):
            raise ValueError("the sellers have no prior; give [prior]")
        return given

    def build(self, seed: int, listed: pd.DataFrame | None = None) -> Market:
        """Return the market; ``listed`` holds the id, sensitivity and group of a file's sellers.

        The k-th seller that is drawn has the same quantile of every prior, so that variants with
        different priors are compared on paired draws.
        """
        priors, parts, ids, groups = self.priors, self.sellers.groups, None, None
        if listed is None:
            reports, rng = np.array([]), np.random.default_rng(seed)
            for part, prior in zip(parts or (self.sellers,), priors.values(), strict=True):
                drawn: Any = prior.quantile(rng.random(part.size))
                reports = np.append(reports, part.sensitivities or drawn)
            if parts:
                groups = np.repeat([part.name for part in parts], [part.size for part in parts])
        else:
            reports, ids = listed["sensitivity"].to_numpy(), listed["id"].tolist()
            if "group" in listed:
                groups = listed["group"].astype(str).to_numpy(np.str_)
        of_sellers: Any = priors if parts else priors[""]
        first, *others = (term.build(groups) for term in self.objective.values())
        constraints = [constraint.build(groups) for constraint in self.constraints.values()]
        sellers = Sellers(reports, of_sellers, ids=ids, groups=groups)
        return Market(sellers, sum(others, start=first), constraints)

    def check(self, seed: int) -> None:
        """Raise an error if the market cannot be declared; a file of sellers is not read."""
        if self.sellers.file is None:
            self.build(seed)
        elif self.priors and self.sellers.group is None:
            for piece in self.pieces:
                piece.build(None)
