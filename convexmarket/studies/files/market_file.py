"""Problem files of kind "market" without a learner, which declare a market and its variants.

Terms and constraints are classes of :mod:`convexmarket.terms`. The fields of a class are the keys
of its table. The class checks the values, and this module adds the key path to error messages.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

import numpy as np
import pandas as pd
from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from convexmarket import terms
from convexmarket.data.lists import read_list
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.report import Report
from convexmarket.sellers import Sellers
from convexmarket.studies.files import file_tables as tables
from convexmarket.studies.files import market_page
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import ZERO_WEIGHT, Extent, Study
from convexmarket.studies.subproblems.problem_classes import Family, families_of_market
from convexmarket.terms import Constraint, Term

#: Quantile levels of the sensitivities at which virtual costs are tabulated.
_LEVELS = np.linspace(0.0005, 0.9995, 400)
#: Key columns of tables. The key columns of all other tables are market and value.
_MORE: Any = {"sellers": ("market", "value", "id"), "groups": ("market", "value", "group")}
_MORE |= {"draws": ("market", "draw"), "virtual_costs": ("market", "group", "sensitivity")}
_VALUE = tables.ARGUMENT | {"type": [*tables.ARGUMENT["type"], "object"]}
_VALUE["maxItems"] = tables.MOST_ENTRIES


def named(base: type[Any], sign: str) -> dict[str, Any]:
    """Return the exported classes of terms or constraints by name, such as "squared-spread"."""
    return {
        re.sub("(?<=[a-z])(?=[A-Z][a-z])", sign, kind.__name__).lower(): kind
        for kind in vars(terms).values()
        if inspect.isclass(kind) and issubclass(kind, base) and not inspect.isabstract(kind)
    }


_TERMS, _CONSTRAINTS = named(Term, "-"), named(Constraint, "_")


def _keys(kind: type[Any]) -> list[str]:
    """Return the keys of a class in a file. Groups are omitted: they belong to the sellers."""
    return [each.name for each in fields(kind) if each.init and each.name != "groups"]


def _privacy_cost(value: Any) -> terms.PrivacyCost:
    if value in ("linear", "exponential"):
        return terms.LinearCost() if value == "linear" else terms.ExponentialCost()
    if isinstance(value, Mapping) and set(value) in ({"power"}, {"slopes", "thresholds"}):
        return terms.PowerCost(**value) if "power" in value else terms.TieredCost(**value)
    known = '"linear", "exponential", {power = 2} or {slopes = [1, 3], thresholds = [0.5]}'
    raise ValueError(f"{value!r} is not a privacy cost; give {known}")


@dataclass(frozen=True)
class Piece:
    """Name, class and arguments of a term or constraint, and the weight of a term."""

    name: str
    kind: Any
    arguments: dict[str, Any]
    weight: Any = None

    def __post_init__(self) -> None:
        tables.refuse_unknown(self.arguments, _keys(self.kind))
        try:
            if not self.needs_groups:
                inspect.signature(self.kind).bind(**self.arguments)
                self.build(None)
        except (ConvexMarketError, TypeError, OverflowError) as error:
            raise ValueError(str(error)) from None

    @property
    def needs_groups(self) -> bool:
        """Whether the class requires the groups of the sellers."""
        return any(each.name == "groups" for each in fields(self.kind))

    def build(self, groups: Any) -> Any:
        """Build the weighted term or the constraint. ``groups`` has one entry for each seller."""
        arguments = dict(self.arguments)
        if "privacy_cost" in arguments:
            arguments["privacy_cost"] = _privacy_cost(arguments["privacy_cost"])
        if self.needs_groups:
            if groups is None:
                raise ParameterError(
                    f"{self.name} needs groups; give their names and counts in sellers.groups, or "
                    "the name of their column of sellers.file in sellers.group"
                )
            arguments["groups"] = groups
        built = self.kind(**arguments)
        return built if self.weight is None else self.weight * built


def _term(labelled: tuple[str, Any]) -> Piece:
    label, given = labelled
    if not isinstance(given, Mapping) or "weight" not in given:
        raise ValueError(f"{given!r:.60} has no weight; give {{ weight = 1.0 }}")
    arguments = dict(given)
    name, weight = str(arguments.pop("term", label)), arguments.pop("weight")
    if name not in _TERMS:
        raise ValueError(f"term is {name!r}; {tables.suggestion(name, _TERMS)}")
    return Piece(name, _TERMS[name], arguments, weight)


def _constraint(labelled: tuple[str, Any]) -> Piece:
    name, given = labelled
    tables.refuse_unknown([name], _CONSTRAINTS)
    keys = _keys(_CONSTRAINTS[name])
    if not isinstance(given, Mapping) or len(keys) == 1:
        values = given if isinstance(given, list) and len(keys) > 1 else [given]
        if len(values) != len(keys):
            raise ValueError(f"{given!r:.60} is incomplete; give a table of {', '.join(keys)}")
        given = dict(zip(keys, values, strict=True))
    return Piece(name, _CONSTRAINTS[name], dict(given))


def _labelled(table: Any) -> Any:
    return {key: (key, table[key]) for key in table} if isinstance(table, Mapping) else table


_TABLE: Any = {"type": "object", "additionalProperties": False}
_OF_TERMS = {key: _VALUE for kind in _TERMS.values() for key in _keys(kind)}
_OF_TERMS |= {"term": {"enum": [*_TERMS]}, "weight": {"type": "number"}}
_TERM = _TABLE | {"properties": _OF_TERMS, "required": ["weight"]}
_TEXTS = {key: str(inspect.getdoc(kind)).split("\n\n")[0] for key, kind in _CONSTRAINTS.items()}
_DESCRIBED = {key: _VALUE | {"description": text} for key, text in _TEXTS.items()}
#: Terms by label. The label is the name of the term unless the entry has a key ``term``.
TermsTable = Annotated[
    dict[str, Annotated[Piece, PlainValidator(_term)]],
    BeforeValidator(_labelled),
    Field(min_length=1, max_length=50),
    WithJsonSchema(_TABLE | {"additionalProperties": _TERM}),
]
ConstraintsTable = Annotated[
    dict[str, Annotated[Piece, PlainValidator(_constraint)]],
    BeforeValidator(_labelled),
    WithJsonSchema(_TABLE | {"properties": _DESCRIBED}),
]


class _SomeSellers(tables.Table):
    count: Annotated[int, Field(ge=1, le=tables.MOST_ENTRIES)] | None = None
    """Number of sellers to draw from the prior."""
    sensitivities: tables.Many[tables.Nonnegative] | None = None
    """Reports of the sellers, as an alternative to ``count``."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        known = type(self).model_fields
        sources = [name for name in ("count", "sensitivities", "groups", "file") if name in known]
        if sum(bool(getattr(self, name)) for name in sources) != 1:
            raise ValueError(f"declare the sellers by one of {', '.join(sources)}")
        return self

    def reports(self, prior: Prior, rng: np.random.Generator) -> Any:
        """Return the listed or drawn reports. Listed reports also advance the generator."""
        drawn = prior.quantile(rng.random(self.count or len(self.sensitivities or ())))
        return drawn if self.sensitivities is None else list(self.sensitivities)


class GroupTable(_SomeSellers):
    """Group of sellers."""

    name: tables.Name
    """Name in figures and tables."""
    prior: tables.PriorTable | None = None
    """Prior of the group; by default, the prior of all sellers."""


class SellersTable(_SomeSellers):
    """Sellers of a market, which are drawn, listed, divided into groups, or read from a file."""

    groups: tables.Several[GroupTable] = ()
    file: tables.FileName | None = None
    """CSV or Parquet file of sellers and their reports, relative to the problem file."""
    id: tables.Column | None = None
    """Column of the ids in the file."""
    report: tables.Column | None = None
    """Column of the prices asked per unit of epsilon in the file."""
    group: tables.Column | None = None
    """Column of the groups in the file."""

    @model_validator(mode="after")
    def _columns_of_a_file(self) -> Self:
        columns = [name for name in (self.id, self.report, self.group) if name is not None]
        if columns and self.file is None:
            raise ValueError("id, report and group are columns of a file; give file")
        if len(set(columns)) < len(columns):
            raise ValueError("id, report and group must be different columns")
        return self


class MarketTable(tables.Table):
    """Sellers, prior, objective and constraints of a market."""

    sellers: SellersTable
    prior: tables.PriorTable | None = None
    objective: TermsTable
    """Terms of the buyer's objective by label, from the classes of convexmarket.terms."""
    constraints: ConstraintsTable = Field(default_factory=dict)
    """Constraints of the purchase by name, from the classes of convexmarket.terms."""

    @property
    def priors(self) -> dict[str, Prior]:
        """Prior of each group. Without groups, the prior of all sellers has the key ""."""
        given = {group.name: group.prior or self.prior for group in self.sellers.groups}
        priors = {name: prior for name, prior in (given or {"": self.prior}).items() if prior}
        if len(priors) < max(len(given), 1):
            raise ParameterError("the sellers have no prior; give [prior]")
        return priors

    def build(self, seed: int, place: Callable[[str], Path] = Path) -> Market:
        """Build the market. ``place`` resolves the path of a file of sellers.

        The report of the k-th drawn seller is the same quantile of every prior. Therefore variants
        with different priors are compared on paired draws.
        """
        priors, table, rng, ids = self.priors, self.sellers, np.random.default_rng(seed), None
        groups: Any = None
        if table.file is not None:
            columns = table.id, table.report, table.group
            listed = read_list(place(table.file), priors[""], *columns)
            reports, ids = listed["sensitivity"].to_numpy(), listed["id"].tolist()
            groups = None if table.group is None else listed["group"].to_numpy(np.str_)
        else:
            parts = zip(table.groups or (table,), priors.values(), strict=True)
            drawn = [part.reports(prior, rng) for part, prior in parts]
            reports = np.concatenate(drawn)
            groups = np.repeat(list(priors), list(map(len, drawn))) if table.groups else None
        of_sellers: Any = priors if table.groups else priors[""]
        sellers = Sellers(reports, of_sellers, ids=ids, groups=groups)
        objective = sum(term.build(groups) for term in self.objective.values())
        constraints = [constraint.build(groups) for constraint in self.constraints.values()]
        return Market(sellers, objective, constraints)


_KEYS = tuple(MarketTable.model_fields)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Merge the changes into the base key by key. The value ``false`` removes an entry.

    A change of ``sellers``, ``prior``, ``privacy_cost`` or the kind of a term replaces the entry.
    """
    result = dict(base)
    for key, value in changes.items():
        here, known = f"{path}.{key}", base.get(key)
        if value is False:
            if key not in base:
                raise ValueError(f"{here}: there is no {key} to remove")
            del result[key]
        elif isinstance(known, Mapping) and isinstance(value, Mapping):
            other = value.get("term", known.get("term")) != known.get("term")
            whole = other or key in ("sellers", "prior", "privacy_cost")
            result[key] = value if whole else _merged(known, value, here)
        else:
            result[key] = value
    return result


class SweepTable(tables.Table):
    """Swept key and its values. In the report, the variant is a curve over the values."""

    key: Annotated[str, Field(pattern=r"^\w[\w-]*(\.\w[\w-]*)+$")]
    """Path of the key, such as "constraints.budget"."""
    values: tables.Several[tables.Integer | float]
    """Values of the key; counts must be integers."""


_Changes = Annotated[
    Any, WithJsonSchema({"type": ["object", "boolean"], "description": "Changes to the market."})
]


class VariantTable(tables.Table):
    """Variant of the market. Changes are merged by key, and a value ``false`` removes an entry."""

    name: tables.Name
    """Name in figures and tables."""
    sellers: _Changes = None
    prior: _Changes = None
    objective: _Changes = None
    constraints: _Changes = None
    sweep: SweepTable | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """Values of the swept key, or NaN without a sweep."""
        return (np.nan,) if self.sweep is None else self.sweep.values

    def complete(self, base: Mapping[str, Any], path: str, seed: int) -> list[MarketTable]:
        """Return the market at each value of the sweep. In errors, keys start with ``path``."""
        changes = {key: getattr(self, key) for key in _KEYS if key in self.model_fields_set}
        table, markets = _merged(base, changes, path), []
        for value in self.values:
            table = deepcopy(table)
            try:
                if self.sweep is not None:
                    tables.put(table, self.sweep.key, value)
                market = MarketTable.model_validate(table)
                markets.append(market)
                if market.sellers.file is None:
                    market.build(seed)
                elif market.priors and market.sellers.group is None:
                    for part in (*market.objective.values(), *market.constraints.values()):
                        part.build(None)  # raises an error if the part needs groups
            except ValidationError as error:
                lines = (f"{path}.{line}" for line in tables.mistakes(table, error))
                raise ValueError("\n".join(lines)) from None
            except (ConvexMarketError, ValueError) as error:
                raise ValueError(f"{path}: {error}") from None
        return markets


Quantity = Literal["objective", "error", "expected_payments", "n_effective", "epsilon_max", "share"]


class CompareTable(tables.Table):
    """Comparison of two variants on paired draws of the sellers, for the headline of the report."""

    variant: tables.Name
    """Name of the compared variant; a sweep is compared at its middle value."""
    base: tables.Name
    """Name of the reference variant."""
    quantities: tables.Several[Quantity]
    """Compared columns of the table of runs; "share" means the total weight of a group."""
    group: Annotated[str, Field(max_length=200)] = ""
    """Name of the group for "share"."""
    draws: Annotated[int, Field(ge=2, le=1_000)] = 20
    """Number of draws of the sellers; markets with listed sellers are compared once."""


class MarketRunTable(tables.RunTable):
    """Options for solves, payments and audits, as arguments of :meth:`convexmarket.Study.run`."""

    solver: tables.Name = "CLARABEL"
    """Name of the solver in CVXPY."""
    gap: tables.Share = 1e-6
    """Relative gap of the certificate."""
    payments: Extent = "exact"
    """Markets for which payments are computed: "all", "none", or "exact" for markets with an exact
    rule."""
    audits: Extent = "none"
    """Markets that are audited: "all", "none", or "exact" for markets with an exact rule. In a
    sweep, only the market at the middle value is audited."""
    tol: tables.Share = 1e-2
    """Relative tolerance of payments without an exact rule."""
    audit_sellers: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Number of audited sellers in each market."""
    misreports: Annotated[int, Field(ge=2, le=1_000)] = 12
    """Number of misreports of each audited seller."""
    compare: CompareTable | None = None


class Point(NamedTuple):
    """Market of a variant at one value of its sweep."""

    variant: str
    value: float
    table: MarketTable
    market: Market


class VariantsFile(tables.ProblemFile, MarketTable):
    """Market without a learner, and its variants."""

    kind: Literal["market"]
    run: MarketRunTable = MarketRunTable()
    variants: tables.Several[VariantTable] = (VariantTable(name="market"),)
    """Variants to compare; by default, only the market of the file."""

    _markets: dict[str, list[MarketTable]] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _complete(cls, given: Any, handler: Callable[[Any], Self]) -> Self:
        problem = handler(given)
        base = {key: given[key] for key in _KEYS if key in given}
        for place, variant in enumerate(problem.variants):
            markets = variant.complete(base, f"variants[{place}]", problem.run.seed)
            problem._markets[variant.name] = markets
        if (pair := problem.run.compare) is not None:
            for key in ("variant", "base"):
                if (name := getattr(pair, key)) not in problem._markets:
                    raise ValueError(f"run.compare.{key}: no variant is named {name!r}")
        return problem

    def points(self) -> list[Point]:
        """Build the markets of every variant, including those with sellers from files."""
        return [
            Point(variant.name, value, table, table.build(self.run.seed, self.place))
            for variant in self.variants
            for value, table in zip(variant.values, self._markets[variant.name], strict=True)
        ]

    def middles(self) -> dict[str, MarketTable]:
        """Return the table of each variant. A sweep is represented by its middle value."""
        return {name: each[len(each) // 2] for name, each in self._markets.items()}

    def _performed(self, load: Any, options: dict[str, Any]) -> Runs:
        points, extent = self.points(), self.run.audits
        options |= self.run.model_dump(exclude={"seed", "jobs", "payments", "audits", "compare"})
        markets = {str(place): point.market for place, point in enumerate(points)}
        runs = Study(markets).run(payments=self.run.payments, audits="none", **options)
        frames: dict[str, Any] = dict(runs.tables)
        solved = frames["runs"].market[frames["runs"].status == "solved"]
        middles = list(map(id, self.middles().values()))
        audited = {each: markets[each] for each in solved if id(points[int(each)].table) in middles}
        if audited and extent != "none":
            audits = Study(audited).run(payments="none", audits=extent, **options)
            frames["audits"] = audits.tables["audits"]
        for frame in frames.values():
            of = [points[int(place)] for place in frame.pop("market")]
            frame.insert(0, "market", [each.variant for each in of])
            frame.insert(1, "value", [each.value for each in of])
        frames["groups"] = _groups(frames["sellers"])
        frames["virtual_costs"] = _virtual_costs(points)
        if self.run.compare is not None:
            frames["draws"] = self._draws(self.run.compare, options)
        keys = {name: _MORE.get(name, ("market", "value")) for name in frames}
        return Runs("study", keys, frames, {**runs.facts, "seed": self.run.seed})

    def _draws(self, pair: CompareTable, options: dict[str, Any]) -> pd.DataFrame:
        markets = {}
        for name, table in self.middles().items():
            is_drawn = any(part.count for part in table.sellers.groups or (table.sellers,))
            if name in (pair.variant, pair.base):
                for draw in range(pair.draws if is_drawn else 1):
                    markets[f"{draw} {name}"] = table.build(self.run.seed + draw, self.place)
        runs = Study(markets).run(payments="none", audits="none", **options)
        rows, sellers = runs.to_frame(), runs.tables["sellers"]
        share = sellers[sellers.group == pair.group].groupby("market").weight.sum()
        rows["share"] = rows.market.map(share)
        rows[["draw", "market"]] = rows.market.str.split(" ", n=1, expand=True)
        return rows.astype({"draw": int})[["market", "draw", "status", *get_args(Quantity)]]

    def _page(self, runs: Runs) -> Report:
        return market_page.variants_report(self, runs)

    def subproblems(self) -> list[Family]:
        """Return the subproblems of each variant. A sweep is represented by its middle value."""
        families = []
        for name, table in self.middles().items():
            with suppress(NotSupportedError):  # the market has no subproblems
                families += self._families(name, table)
        return families

    def _families(self, name: str, table: MarketTable) -> list[Family]:
        """Return the subproblems of a market. Their sizes can vary only if sellers are drawn."""

        def drawn(size: int, rng: np.random.Generator) -> Market:
            sized = table.model_copy(update={"sellers": SellersTable(count=size)})
            return sized.build(int(rng.integers(2**31)))

        pieces = [*table.objective.values(), *table.constraints.values()]
        each = any(isinstance(value, list) for part in pieces for value in part.arguments.values())
        sized = None if each or table.sellers.count is None else drawn
        return families_of_market(table.build(0, self.place), sized, name)


def _groups(sellers: Any) -> pd.DataFrame:
    keys = ["market", "value"]
    if sellers.empty or (sellers.group == "").all():
        return pd.DataFrame(columns=[*keys, "group"])
    size = sellers.groupby(keys, dropna=False).weight.transform("size")
    rows = sellers[sellers.group != ""].assign(bought=sellers.weight * size > ZERO_WEIGHT)
    table = rows.groupby([*keys, "group"], sort=False, dropna=False).agg(
        sellers=("id", "size"),
        n_bought=("bought", "sum"),
        share_of_weight=("weight", "sum"),
        epsilon_mean=("epsilon", "mean"),
        expected_payment_mean=("expected_payment", "mean"),
        payment_mean=("payment", "mean"),
    )
    total = table.groupby(level=keys, dropna=False).sellers.transform("sum")
    table.insert(1, "share_of_sellers", table.sellers / total)
    return table.reset_index()


def _virtual_costs(points: list[Point]) -> pd.DataFrame:
    """Tabulate the virtual costs of all priors if the costs of at least one prior are ironed."""
    used: dict[Prior, tuple[str, str]] = {}
    for point in points:
        priors = point.table.priors
        for group, prior in priors.items():
            used.setdefault(prior, (point.variant, group if len(set(priors.values())) > 1 else ""))
    if all(prior.is_regular for prior in used):
        return pd.DataFrame(columns=["market", "group", "sensitivity"])
    parts = []
    for prior, (variant, group) in used.items():
        c = prior.quantile(_LEVELS)
        costs = {"raw": prior.virtual_cost(c), "ironed": prior.ironed_virtual_cost(c)}
        density = np.nan if prior.is_step else prior.pdf(c)
        part = pd.DataFrame({"sensitivity": c, "density": density, **costs})
        parts.append(part.assign(market=variant, group=group, regular=prior.is_regular))
    return pd.concat(parts, ignore_index=True)
