"""Files of kind "market" without a learner: a market, variants of it and swept keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from os import PathLike
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails

from convexmarket.data.lists import read_list
from convexmarket.errors import DataError, NotSupportedError
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.report import Report
from convexmarket.studies.files import market_page
from convexmarket.studies.files.base import Name, PriorTable, ProblemFile, RunTable, Share, Table
from convexmarket.studies.files.pieces import (
    ConstraintsTable,
    MarketTable,
    Number,
    SellersTable,
    TermsTable,
)
from convexmarket.studies.progress import Progress
from convexmarket.studies.runs import Runs
from convexmarket.studies.study import DUST, Extent, Study
from convexmarket.studies.subproblems.families import Family, market_family

__all__ = ["Point", "VariantsFile"]

#: The keys of a market, which a variant may change.
_KEYS = tuple(MarketTable.model_fields)
#: Sensitivities at which virtual costs are tabulated.
_LEVELS = np.linspace(0.0005, 0.9995, 400)
#: What a list's errors call a column, and the key of the problem file that names it.
_COLUMNS = {
    "--id-column (id in Python)": "sellers.id",
    "--sensitivity-column (ask in Python)": "sellers.report",
    "--group-column (group in Python)": "sellers.group",
}


def merged(
    base: Mapping[str, Any], changes: Mapping[str, Any], path: tuple[str | int, ...] = ()
) -> dict[str, Any]:
    """Return the base with the changes, key by key; ``false`` removes an entry.

    ``sellers``, ``prior``, ``privacy_cost`` and a term of another kind under the same label are
    replaced as a whole.
    """
    result = dict(base)
    for key, value in changes.items():
        here, known = (*path, key), base.get(key)
        if value is False:
            if key not in base:
                raise _refusal(here, value, f"there is no {key} to remove")
            del result[key]
        elif isinstance(known, Mapping) and isinstance(value, Mapping):
            other = value.get("term", known.get("term")) != known.get("term")
            whole = other or key in ("sellers", "prior", "privacy_cost")
            result[key] = value if whole else merged(known, value, here)
        else:
            result[key] = value
    return result


def with_value(
    table: Mapping[str, Any], path: str, value: Any, variant: tuple[str | int, ...] = ()
) -> dict[str, Any]:
    """Return a copy of nested tables with this value at a path of keys, joined by dots."""
    key, dot, rest = path.partition(".")
    if not dot:
        return {**table, key: value}
    inner = table.get(key, {})
    if not isinstance(inner, Mapping):
        where = (*variant, "sweep", "key")
        raise _refusal(where, path, f"{key} is not a table, so {path} is not a key")
    return {**table, key: with_value(inner, rest, value, variant)}


def _refusal(path: tuple[str | int, ...], given: Any, words: str) -> ValidationError:
    """Return an error of one key, to be raised while a table is validated."""
    detail = InitErrorDetails(
        type="value_error", loc=path, input=given, ctx={"error": ValueError(words)}
    )
    return ValidationError.from_exception_data("problem", [detail])


def _rising(values: tuple[float, ...]) -> tuple[float, ...]:
    if any(low >= high for low, high in pairwise(values)):
        raise ValueError("the values do not rise; list each once, in increasing order")
    return values


class SweepTable(Table):
    """A key of the market with several values, which makes the variant a curve.

    Attributes
    ----------
    key : str
        The key, such as "constraints.budget".
    values : list of float
        Its values, in increasing order.
    """

    key: Annotated[str, Field(pattern=r"^\w[\w-]*(\.\w[\w-]*)+$")]
    values: Annotated[
        tuple[Number, ...],
        Field(strict=False, min_length=2, max_length=200),
        AfterValidator(_rising),
    ]


class VariantTable(MarketTable):
    """A variant: the market of the file with changes.

    Tables are merged key by key, and ``false`` removes an entry; ``sellers``, ``prior``, and a term
    of another kind under the same label, are replaced.

    Attributes
    ----------
    name : str
        Name in figures and tables.
    sweep : table
        A key with several values.
    """

    name: Name
    sweep: SweepTable | None = None

    _markets: tuple[MarketTable, ...] = PrivateAttr(default=())

    @property
    def markets(self) -> tuple[MarketTable, ...]:
        """The market at each value of the sweep."""
        return self._markets

    @property
    def values(self) -> tuple[float, ...]:
        """The values of the swept key; NaN without a sweep."""
        return (np.nan,) if self.sweep is None else self.sweep.values

    @model_validator(mode="wrap")
    @classmethod
    def _every_market(cls, given: Any, handler: Callable[[Any], Self]) -> Self:
        """Validate the market at each value of the sweep; ``given`` has the first."""
        variant = handler(given)
        table = {key: given[key] for key in _KEYS if key in given}
        tables = [table]
        if variant.sweep is not None:
            key, values = variant.sweep.key, variant.sweep.values
            tables += [with_value(table, key, value) for value in values[1:]]
        variant._markets = tuple(map(MarketTable.model_validate, tables))
        return variant

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe the changes, which are parts of tables or false."""
        reference = super().__get_pydantic_json_schema__(core, handler)
        schema = handler.resolve_ref_schema(reference)
        for key in _KEYS:
            words = f"Changes of {key}."
            schema["properties"][key] = {"type": "object", "description": words}
        schema["required"] = ["name"]
        return reference


class MarketRunTable(RunTable):
    """How markets are solved, paid and audited: the arguments of :meth:`convexmarket.Study.run`.

    Attributes
    ----------
    solver : str
        The solver, by CVXPY's name.
    gap : float
        Relative gap of the certificate.
    payments, audits : str
        Which markets are paid, and audited: those with an "exact" rule, "all" or "none". Of a
        sweep the market of the middle value is audited.
    tol : float
        Relative error of payments without an exact rule.
    audit_sellers, misreports : int
        Sellers that an audit takes from each market, and misreports of each.
    """

    solver: Name = "CLARABEL"
    gap: Share = 1e-6
    payments: Extent = "exact"
    audits: Extent = "none"
    tol: Share = 1e-2
    audit_sellers: Annotated[int, Field(ge=1, le=100_000)] = 5
    misreports: Annotated[int, Field(ge=2, le=1_000)] = 12


def _named_once(variants: tuple[VariantTable, ...]) -> tuple[VariantTable, ...]:
    if len({variant.name for variant in variants}) < len(variants):
        raise ValueError("two variants have the same name; give each another name")
    return variants


class Point(NamedTuple):
    """One market of a variant."""

    variant: str
    value: float
    table: MarketTable
    market: Market


class VariantsFile(ProblemFile):
    """A market without a learner, and variants of it.

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
    run : table
        How the markets are solved, paid and audited.
    variants : list of tables
        What is compared; by default the market alone.
    """

    kind: Literal["market"]
    sellers: SellersTable | None = None
    prior: PriorTable | None = None
    objective: TermsTable | None = None
    constraints: ConstraintsTable = ConstraintsTable()
    run: MarketRunTable = MarketRunTable()
    variants: Annotated[
        tuple[VariantTable, ...],
        Field(strict=False, min_length=1, max_length=50),
        AfterValidator(_named_once),
    ] = ()

    @classmethod
    def completed(cls, table: dict[str, Any]) -> dict[str, Any]:
        """Merge the market of the file into each variant, with the first value of its sweep."""
        base = {key: table[key] for key in _KEYS if key in table}
        variants = table.get("variants", [{"name": "market"}])
        if not isinstance(variants, list):
            return table
        complete = []
        for place, variant in enumerate(variants):
            if isinstance(variant, Mapping):
                variant = merged(base, variant, ("variants", place))
                sweep = variant.get("sweep")
                if isinstance(sweep, Mapping) and isinstance(key := sweep.get("key"), str):
                    values = sweep.get("values")
                    first = values[0] if isinstance(values, list) and values else None
                    variant = with_value(variant, key, first, ("variants", place))
            complete.append(variant)
        return {**table, "variants": complete}

    @model_validator(mode="after")
    def _declarable(self) -> Self:
        for place, variant in enumerate(self.variants):
            for table in variant.markets:
                try:
                    table.check(self.run.seed)
                except ValueError as error:
                    raise _refusal(("variants", place), variant.name, str(error)) from None
        return self

    def points(self) -> list[Point]:
        """Return the markets of every variant.

        Raises
        ------
        DataError
            If the sellers' file cannot be read, or has a wrong row.
        """
        lists: dict[Any, pd.DataFrame] = {}
        points = []
        for variant in self.variants:
            for value, table in zip(variant.values, variant.markets, strict=True):
                market = table.build(self.run.seed, self._listed(table, lists))
                points.append(Point(variant.name, value, table, market))
        return points

    def _listed(self, table: MarketTable, lists: dict[Any, pd.DataFrame]) -> pd.DataFrame | None:
        """Return the sellers of a file, read once for each prior."""
        named = table.sellers
        if named.file is None:
            return None
        key = named, table.prior
        if key not in lists:
            path = self.place(named.file)
            try:
                lists[key] = read_list(path, table.priors[""], named.id, named.report, named.group)
            except DataError as error:
                words = str(error)
                for option, column in _COLUMNS.items():
                    words = words.replace(option, column)
                raise DataError(words) from None
        return lists[key]

    def perform(
        self,
        load: Any = None,
        *,
        journal: str | PathLike[str] | None = None,
        progress: bool | Progress = True,
    ) -> Runs:
        """Allocate every market, and pay and audit as the file says; see ProblemFile.perform.

        The tables are those of :meth:`convexmarket.Study.run`, by market (the variant) and value of
        its sweep; ``groups``, the purchases from each group; and ``virtual_costs`` of each prior,
        raw and ironed, with the market and group that first use it, if one is not regular.
        """
        points = self.points()
        options = self.run.model_dump(exclude={"seed", "payments", "audits"})
        options |= {"jobs": self.run.workers, "journal": journal, "progress": progress}
        study = Study({str(place): point.market for place, point in enumerate(points)})
        runs = study.run(payments=self.run.payments, audits="none", **options)
        tables = dict(runs.tables)
        solved = set(tables["runs"].market[tables["runs"].status == "solved"])
        audited, start = {}, 0
        for variant in self.variants:
            middle = start + len(variant.markets) // 2
            if str(middle) in solved:
                audited[str(middle)] = points[middle].market
            start += len(variant.markets)
        if audited and self.run.audits != "none":
            audits = Study(audited).run(payments="none", audits=self.run.audits, **options)
            tables["audits"] = audits.tables["audits"]
        for table in tables.values():
            places = table.pop("market").astype(int)
            table.insert(0, "market", [points[place].variant for place in places])
            table.insert(1, "value", [float(points[place].value) for place in places])
        tables["groups"] = _groups(tables["sellers"])
        tables["virtual_costs"] = _virtual_costs(points)
        keys: dict[str, tuple[str, ...]] = dict.fromkeys(tables, ("market", "value"))
        keys |= {"sellers": (*keys["runs"], "id"), "groups": (*keys["runs"], "group")}
        keys["virtual_costs"] = ("market", "group", "sensitivity")
        return Runs("study", keys, tables, {**runs.facts, "seed": self.run.seed})

    def report(self, runs: Runs) -> Report:
        """Return the report of runs."""
        return market_page.variants_report(self, runs)

    def subproblems(self) -> list[Family]:
        """Return one subproblem for each variant; of a sweep, the market of its middle value."""
        families, lists = [], dict[Any, pd.DataFrame]()
        for variant in self.variants:
            table = variant.markets[len(variant.markets) // 2]
            listed = self._listed(table, lists)
            if (family := _family(variant.name, table, listed)) is not None:
                families.append(family)
        return families


def _family(name: str, table: MarketTable, listed: pd.DataFrame | None) -> Family | None:
    """Return the subproblem of a market; None if studies have no such class."""
    limits = table.constraints
    each = any(isinstance(v, tuple) for v in (limits.cap, limits.max_epsilon, limits.given_epsilon))
    small = None if each else table.sellers.resized(50)

    def sized(size: int, rng: np.random.Generator) -> Market:
        seed = int(rng.integers(2**31))
        if small is None:
            return example
        return table.model_copy(update={"sellers": table.sellers.resized(size)}).build(seed)

    chosen = table if small is None else table.model_copy(update={"sellers": small})
    example = chosen.build(0, listed)
    try:
        return market_family(example, sized, name, len(example.sellers) if small is None else None)
    except NotSupportedError:
        return None


# ------------------------------------------------------------------------------------- tables


def _groups(sellers: pd.DataFrame) -> pd.DataFrame:
    """Return the purchases from each group; empty without groups."""
    if sellers.empty or not (sellers.group != "").any():
        return pd.DataFrame(columns=["market", "value", "group"])
    keys = ["market", "value"]
    size = sellers.groupby(keys, dropna=False).weight.transform("size")
    rows = sellers[sellers.group != ""].assign(bought=sellers.weight * size > DUST)
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
        columns = {
            "market": variant,
            "group": group,
            "regular": prior.is_regular,
            "sensitivity": c,
            "density": np.nan if prior.is_step else prior.pdf(c),
            "raw": prior.virtual_cost(c),
            "ironed": prior.ironed_virtual_cost(c),
        }
        parts.append(pd.DataFrame(columns))
    return pd.concat(parts, ignore_index=True)
