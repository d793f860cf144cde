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
from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from convexmarket import terms
from convexmarket.errors import ConvexMarketError, ParameterError
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers
from convexmarket.studies.files import file_tables as tables
from convexmarket.terms import Constraint, Term

#: The JSON Schema of an argument.
_VALUE = tables.ARGUMENT | {"type": [*tables.ARGUMENT["type"], "object"]}
_VALUE["maxItems"] = tables.MOST_ENTRIES


def named(base: type[Any], sign: str) -> dict[str, Any]:
    """List the exported classes of terms or constraints by name, such as "squared-spread"."""
    return {
        re.sub("(?<=[a-z])(?=[A-Z][a-z])", sign, kind.__name__).lower(): kind
        for kind in vars(terms).values()
        if inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind)
    }


_TERMS, _CONSTRAINTS = named(Term, "-"), named(Constraint, "_")


def _keys(kind: type[Any]) -> list[str]:
    """Return the keys of a class in a file; groups are declared with the sellers."""
    return [each.name for each in fields(kind) if each.init and each.name != "groups"]


def _privacy_cost(value: Any) -> terms.PrivacyCost:
    if value in ("linear", "exponential"):
        return terms.LinearCost() if value == "linear" else terms.ExponentialCost()
    if isinstance(value, Mapping):
        return terms.PowerCost(**value) if "power" in value else terms.TieredCost(**value)
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
    weight: Any = None

    def build(self, groups: Any) -> Any:
        """Return the weighted term, or the constraint; ``groups`` has shape (m,)."""
        arguments = dict(self.arguments)
        if "privacy_cost" in arguments:
            arguments["privacy_cost"] = _privacy_cost(arguments["privacy_cost"])
        if self.needs_groups:
            if groups is None:
                raise ParameterError(
                    f"{self.name} needs groups; give sellers.groups, each with a name and a count, "
                    "or the column of sellers.file that holds them, sellers.group"
                )
            arguments["groups"] = groups
        built = self.kind(**arguments)
        return built if self.weight is None else self.weight * built

    @property
    def needs_groups(self) -> bool:
        """Whether the piece concerns groups of sellers."""
        return any(each.name == "groups" for each in fields(self.kind))

    def checked(self) -> Self:
        """Return the piece if its class accepts the arguments."""
        tables.refuse_unknown(self.arguments, _keys(self.kind))
        if not self.needs_groups:
            try:
                self.build(None)
            except (ConvexMarketError, TypeError, OverflowError) as error:
                raise ValueError(str(error)) from None
        return self


def _term(labelled: tuple[str, Any]) -> Piece:
    label, given = labelled
    if not isinstance(given, Mapping) or "weight" not in given:
        raise ValueError(f"{given!r:.60} has no weight; give {{ weight = 1.0 }}")
    arguments = dict(given)
    name, weight = str(arguments.pop("term", label)), arguments.pop("weight")
    if name not in _TERMS:
        raise ValueError(f"term is {name!r}; {tables.suggestion(name, _TERMS)}")
    return Piece(name, _TERMS[name], arguments, weight).checked()


def _constraint(labelled: tuple[str, Any]) -> Piece:
    name, given = labelled
    tables.refuse_unknown([name], _CONSTRAINTS)
    keys = _keys(_CONSTRAINTS[name])
    if not isinstance(given, Mapping) or len(keys) == 1:
        values = given if isinstance(given, list) and len(keys) > 1 else [given]
        if len(values) != len(keys):
            raise ValueError(f"{given!r:.60} does not give {', '.join(keys)}; give a table of them")
        given = dict(zip(keys, values, strict=True))
    return Piece(name, _CONSTRAINTS[name], dict(given)).checked()


def _labelled(table: Any) -> Any:
    """Add the key to each entry of a table, so that errors contain the path of the entry."""
    return {key: (key, table[key]) for key in table} if isinstance(table, Mapping) else table


_KEYS: Any = {key: _VALUE for kind in _TERMS.values() for key in _keys(kind)}
_KEYS |= {"term": {"enum": [*_TERMS]}, "weight": {"type": "number"}}
_TABLE = {"type": "object", "additionalProperties": False}
#: Terms by label; a label that is the name of a term defines the term.
TermsTable = Annotated[
    dict[str, Annotated[Piece, PlainValidator(_term)]],
    BeforeValidator(_labelled),
    Field(min_length=1, max_length=50),
    WithJsonSchema(
        _TABLE | {"additionalProperties": _TABLE | {"properties": _KEYS, "required": ["weight"]}}
    ),
]
#: Constraints by name.
ConstraintsTable = Annotated[
    dict[str, Annotated[Piece, PlainValidator(_constraint)]],
    BeforeValidator(_labelled),
    WithJsonSchema(
        _TABLE
        | {
            "properties": {
                name: _VALUE | {"description": str(inspect.getdoc(kind)).split("\n\n")[0]}
                for name, kind in _CONSTRAINTS.items()
            }
        }
    ),
]


class _SomeSellers(tables.Table):
    count: Annotated[int, Field(ge=1, le=tables.MOST_ENTRIES)] | None = None
    """Number of sellers to draw from the prior."""
    sensitivities: tables.Many[tables.Nonnegative] | None = None
    """Reports of the sellers, instead of a number."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        fields = type(self).model_fields
        names = [name for name in ("count", "sensitivities", "groups", "file") if name in fields]
        if sum(bool(getattr(self, name)) for name in names) != 1:
            raise ValueError(f"give one of {', '.join(names)}")
        return self

    def reports(self, prior: Prior, rng: np.random.Generator) -> Any:
        """Return the listed reports, or draw them; both use the same random numbers."""
        drawn = prior.quantile(rng.random(self.count or len(self.sensitivities or ())))
        return drawn if self.sensitivities is None else list(self.sensitivities)


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


class MarketTable(tables.Table):
    """A complete market."""

    sellers: SellersTable
    prior: tables.PriorTable | None = None
    objective: TermsTable
    """Terms of the buyer's objective, by label: classes of convexmarket.terms."""
    constraints: ConstraintsTable = Field(default_factory=dict)
    """Constraints of the purchase: classes of convexmarket.terms."""

    @property
    def priors(self) -> dict[str, Prior]:
        """The prior of each group; without groups, the prior of all sellers has the key ""."""
        given = {group.name: group.prior or self.prior for group in self.sellers.groups}
        priors = {name: prior for name, prior in (given or {"": self.prior}).items() if prior}
        if len(priors) < max(len(given), 1):
            raise ParameterError("the sellers have no prior; give [prior]")
        return priors

    def build(self, seed: int, listed: pd.DataFrame | None = None) -> Market:
        """Return the market; ``listed`` holds the sellers of a file.

        The k-th seller that is drawn has the same quantile of every prior, so that variants with
        different priors are compared on paired draws.
        """
        priors, parts, rng = self.priors, self.sellers.groups, np.random.default_rng(seed)
        if listed is None:
            listed = pd.concat(
                [
                    pd.DataFrame({"sensitivity": part.reports(prior, rng)}).assign(group=name)
                    for part, (name, prior) in zip(
                        parts or (self.sellers,), priors.items(), strict=True
                    )
                ]
            )
        has_groups = bool(parts) or self.sellers.group is not None
        groups = listed["group"].to_numpy(np.str_) if has_groups else None
        sellers = Sellers(
            listed["sensitivity"].to_numpy(),
            priors if parts else priors[""],
            ids=listed["id"].tolist() if "id" in listed else None,
            groups=groups,
        )
        objective = sum(term.build(groups) for term in self.objective.values())
        return Market(
            sellers, objective, [each.build(groups) for each in self.constraints.values()]
        )
