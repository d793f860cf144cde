"""Files of kind "market" without a learner: a market, variants of it and swept keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self, get_args

import numpy as np
import pandas as pd
from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from convexmarket.checks import is_number
from convexmarket.data.lists import read_list
from convexmarket.errors import ConvexMarketError, DataError, NotSupportedError
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.report import Report
from convexmarket.studies.files import market_page
from convexmarket.studies.files.file_tables import (
    Name,
    PriorTable,
    ProblemFile,
    RunTable,
    Share,
    Table,
    listed_once,
    mistakes,
    put,
)
from convexmarket.studies.files.pieces import (
    ConstraintsTable,
    MarketTable,
    SellersTable,
    TermsTable,
)
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import ZERO_WEIGHT, Extent, Study
from convexmarket.studies.subproblems.problem_classes import Family, families_of_market

#: The keys of a market, which a variant may change.
_KEYS = tuple(MarketTable.model_fields)
#: Sensitivities at which virtual costs are tabulated.
_LEVELS = np.linspace(0.0005, 0.9995, 400)
#: The options of the command line, in the errors of a list, and their keys in problem files.
_COLUMN = re.compile(r"--(\w+)-column \(\w+ in Python\)")
_KEY_OF = {"id": "sellers.id", "sensitivity": "sellers.report", "group": "sellers.group"}


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the base with the changes, key by key; ``false`` removes an entry.

    ``sellers``, ``prior``, ``privacy_cost`` and a term of another kind under the same label are
    replaced as a whole.
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


def _number(value: Any) -> float:
    if not is_number(value) or not np.isfinite(value):
        raise ValueError(f"{value!r} is not a finite number")
    return value


#: A number that stays an integer if the file has an integer, such as a count.
_Number = Annotated[float, PlainValidator(_number), WithJsonSchema({"type": "number"})]


class SweepTable(Table):
    """A key of the market with several values, which makes the variant a curve."""

    key: Annotated[str, Field(pattern=r"^\w[\w-]*(\.\w[\w-]*)+$")]
    """The key, such as "constraints.budget"."""
    values: Annotated[
        tuple[_Number, ...],
        Field(strict=False, min_length=2, max_length=200),
        AfterValidator(listed_once),
    ]
    """Its values."""


_Changes = Annotated[
    Any, WithJsonSchema({"type": ["object", "boolean"], "description": "Changes of the market."})
]


class VariantTable(Table):
    """A variant: the market of the file with changes.

    Tables are merged key by key, and ``false`` removes an entry; ``sellers``, ``prior``, and a term
    of another kind under the same label, are replaced.
    """

    name: Name
    """Name in figures and tables."""
    sellers: _Changes = None
    prior: _Changes = None
    objective: _Changes = None
    constraints: _Changes = None
    sweep: SweepTable | None = None

    _markets: tuple[MarketTable, ...] = PrivateAttr(default=())

    @property
    def markets(self) -> tuple[MarketTable, ...]:
        """The market at each value of the sweep."""
        return self._markets

    @property
    def middle(self) -> MarketTable:
        """The market at the middle value of the sweep."""
        return self._markets[len(self._markets) // 2]

    @property
    def values(self) -> tuple[float, ...]:
        """The values of the swept key; NaN without a sweep."""
        return (np.nan,) if self.sweep is None else self.sweep.values

    def complete(self, base: Mapping[str, Any], path: str, seed: int) -> None:
        """Validate the market at each value of the sweep; key paths in errors begin with path."""
        changes = {key: getattr(self, key) for key in _KEYS if key in self.model_fields_set}
        table, markets = _merged(base, changes, path), []
        for value in self.values:
            table = deepcopy(table)
            try:
                if self.sweep is not None:
                    put(table, self.sweep.key, value)
                markets.append(MarketTable.model_validate(table))
                markets[-1].check(seed)
            except ValidationError as error:
                lines = (f"{path}.{line}" for line in mistakes(table, error))
                raise ValueError("\n".join(lines)) from None
            except (ConvexMarketError, ValueError) as error:
                raise ValueError(f"{path}: {error}") from None
        self._markets = tuple(markets)


Quantity = Literal["objective", "error", "expected_payments", "n_effective", "epsilon_max", "share"]


class CompareTable(Table):
    """The comparison in the headline, of two variants over paired draws of the sellers."""

    variant: Name
    """Name of a variant; for a sweep, the middle value is compared."""
    base: Name
    """Name of the variant that it is compared with."""
    quantities: Annotated[tuple[Quantity, ...], Field(strict=False, min_length=1, max_length=6)]
    """One of objective, error, expected_payments, n_effective, epsilon_max and share."""
    group: Annotated[str, Field(max_length=200)] = ""
    """The group whose share of the weight "share" is."""
    draws: Annotated[int, Field(ge=2, le=1_000)] = 20
    """Draws of the sellers; sellers that are listed are compared once."""


class MarketRunTable(RunTable):
    """How markets are solved, paid and audited: the arguments of :meth:`convexmarket.Study.run`."""

    solver: Name = "CLARABEL"
    """The solver, by CVXPY's name."""
    gap: Share = 1e-6
    """Relative gap of the certificate."""
    payments: Extent = "exact"
    """Markets whose payments are computed: those with an "exact" rule, "all" or "none"."""
    audits: Extent = "none"
    """Markets that are audited: those with an "exact" rule, "all" or "none". In a sweep only the
    market of the middle value is audited."""
    tol: Share = 1e-2
    """Relative error of payments without an exact rule."""
    audit_sellers: Annotated[int, Field(ge=1, le=100_000)] = 5
    """Number of audited sellers in each market."""
    misreports: Annotated[int, Field(ge=2, le=1_000)] = 12
    """Number of misreports of each audited seller."""
    compare: CompareTable | None = None


class Point(NamedTuple):
    """One market of a variant."""

    variant: str
    value: float
    table: MarketTable
    market: Market


class VariantsFile(ProblemFile):
    """A market without a learner, and variants of it."""

    kind: Literal["market"]
    sellers: SellersTable | None = None
    prior: PriorTable | None = None
    objective: TermsTable | None = None
    """Terms of the buyer's objective, by label: classes of convexmarket.terms."""
    constraints: ConstraintsTable = Field(default_factory=dict)
    """Constraints of the purchase: classes of convexmarket.terms."""
    run: MarketRunTable = MarketRunTable()
    variants: Annotated[
        tuple[VariantTable, ...],
        Field(strict=False, min_length=1, max_length=50),
        AfterValidator(listed_once),
    ] = Field(default_factory=lambda: (VariantTable(name="market"),))
    """Variants to compare; by default only the market of the file."""

    @model_validator(mode="wrap")
    @classmethod
    def _complete(cls, given: Any, handler: Callable[[Any], Self]) -> Self:
        """Merge the tables of the file into each variant, and validate its markets."""
        problem = handler(given)
        base = {key: given[key] for key in _KEYS if key in given}
        for place, variant in enumerate(problem.variants):
            variant.complete(base, f"variants[{place}]", problem.run.seed)
        if (pair := problem.run.compare) is not None:
            names = [variant.name for variant in problem.variants]
            for key in ("variant", "base"):
                if (name := getattr(pair, key)) not in names:
                    raise ValueError(f"run.compare.{key}: no variant is named {name!r}")
        return problem

    def points(self) -> list[Point]:
        """Return the markets of every variant, with the sellers of their files."""
        build = self._builder()
        return [
            Point(variant.name, value, table, build(table, self.run.seed))
            for variant in self.variants
            for value, table in zip(variant.values, variant.markets, strict=True)
        ]

    def _builder(self) -> Callable[[MarketTable, int], Market]:
        """Return a function from a table and a seed to a market; it reads each file once."""

        @cache
        def listed(sellers: SellersTable, prior: Prior) -> pd.DataFrame:
            columns = sellers.id, sellers.report, sellers.group
            try:
                return read_list(self.place(str(sellers.file)), prior, *columns)
            except DataError as error:
                words = _COLUMN.sub(lambda option: _KEY_OF[option[1]], str(error))
                raise DataError(words) from None

        def build(table: MarketTable, seed: int) -> Market:
            sellers = table.sellers
            in_file = None if sellers.file is None else listed(sellers, table.priors[""])
            return table.build(seed, in_file)

        return build

    def _performed(self, load: Any, options: dict[str, Any]) -> Runs:
        """Allocate every market, and pay and audit as the file declares.

        The tables are as in :meth:`convexmarket.Study.run`, by market (the variant) and value of
        its sweep; ``groups``, the purchases from each group; ``draws`` of the compared variants;
        and ``virtual_costs`` of each prior, raw and ironed, with the market and group that first
        use it, if one is not regular.
        """
        points, extent = self.points(), self.run.audits
        options |= self.run.model_dump(exclude={"seed", "jobs", "payments", "audits", "compare"})
        markets = {str(place): point.market for place, point in enumerate(points)}
        runs = Study(markets).run(payments=self.run.payments, audits="none", **options)
        tables: dict[str, Any] = dict(runs.tables)
        solved = set(tables["runs"].market[tables["runs"].status == "solved"])
        middles = [id(variant.middle) for variant in self.variants]
        audited = {name: m for name, m in markets.items() if id(points[int(name)].table) in middles}
        audited = {name: market for name, market in audited.items() if name in solved}
        if audited and extent != "none":
            audits = Study(audited).run(payments="none", audits=extent, **options)
            tables["audits"] = audits.tables["audits"]
        names = pd.DataFrame(points)[["variant", "value"]].set_axis(["market", "value"], axis=1)
        for name, table in tables.items():
            places = table.pop("market").astype(int)
            tables[name] = names.iloc[places].reset_index(drop=True).join(table)
        tables["groups"] = _groups(tables["sellers"])
        tables["virtual_costs"] = _virtual_costs(points)
        if self.run.compare is not None:
            tables["draws"] = self._draws(self.run.compare, options)
        more = {"sellers": ("id",), "groups": ("group",)}
        keys = {name: ("market", "value", *more.get(name, ())) for name in tables}
        keys |= {"draws": ("market", "draw"), "virtual_costs": ("market", "group", "sensitivity")}
        return Runs("study", keys, tables, {**runs.facts, "seed": self.run.seed})

    def _draws(self, pair: CompareTable, options: dict[str, Any]) -> pd.DataFrame:
        """Allocate the compared variants for each draw of the sellers, first the given one."""
        markets, build = {}, self._builder()
        for variant in self.variants:
            table = variant.middle
            parts = table.sellers.groups or (table.sellers,)
            draws = pair.draws if any(part.count for part in parts) else 1
            if variant.name in (pair.variant, pair.base):
                for draw in range(draws):
                    markets[f"{draw} {variant.name}"] = build(table, self.run.seed + draw)
        tables = Study(markets).run(payments="none", audits="none", **options).tables
        rows, sellers = tables["runs"], tables["sellers"]
        share = sellers[sellers.group == pair.group].groupby("market").weight.sum()
        rows["share"] = rows.market.map(share)
        rows[["draw", "market"]] = rows.market.str.split(" ", n=1, expand=True)
        return rows.astype({"draw": int})[["market", "draw", "status", *get_args(Quantity)]]

    def _page(self, runs: Runs) -> Report:
        return market_page.variants_report(self, runs)

    def subproblems(self) -> list[Family]:
        """Return the subproblems of each variant; a sweep is represented by its middle value."""
        families, build = [], self._builder()
        for variant in self.variants:
            try:
                families += _families(variant.name, variant.middle, build)
            except NotSupportedError:  # studies have no such class
                continue
        return families


def _families(name: str, table: MarketTable, build: Callable[..., Market]) -> list[Family]:
    """Return the subproblems of a market, at any size if no number belongs to one seller."""
    each = any(isinstance(v, list) for piece in table.pieces for v in piece.arguments.values())
    if each or table.sellers.count is None:
        return families_of_market(build(table, 0), name=name)

    def drawn(size: int, rng: np.random.Generator) -> Market:
        sized = table.model_copy(update={"sellers": SellersTable(count=size)})
        return sized.build(int(rng.integers(2**31)))

    return families_of_market(drawn(50, np.random.default_rng(0)), drawn, name)


# ------------------------------------------------------------------------------------- tables


def _groups(sellers: Any) -> pd.DataFrame:
    """Return the purchases from each group; empty without groups."""
    if sellers.empty or (sellers.group == "").all():
        return pd.DataFrame(columns=["market", "value", "group"])
    keys = ["market", "value"]
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
    """Tabulate the virtual costs of every prior, if one of them is ironed."""
    used: dict[Prior, tuple[str, str]] = {}
    for point in points:
        priors = point.table.priors
        for group, prior in priors.items():
            shared = len(set(priors.values())) == 1
            used.setdefault(prior, (point.variant, "" if shared else group))
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
