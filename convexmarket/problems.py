"""Problem files: one TOML file per experiment, one schema, errors that name the key.

A problem file is data, never code. Its ``kind`` says which experiment it describes; each kind is
one model here, and everything else about the file (syntax, overrides, errors, the published
schema) is shared. Every model forbids keys that it does not know, so that a misspelt key is an
error and not a default in disguise.
"""

from __future__ import annotations

import difflib
import hashlib
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from convexmarket.errors import ProblemFileError
from convexmarket.priors import Prior, prior_from_dict
from convexmarket.privacy import Accounting, Sensitivity

__all__ = [
    "KINDS",
    "BuyerTable",
    "InlineData",
    "LearnerTable",
    "MedicalData",
    "MedicalRows",
    "NaiveTable",
    "ObjectiveTable",
    "PrivacyTable",
    "Problem",
    "ProblemSource",
    "PublishedTable",
    "RegressionMarketProblem",
    "RidgeComparisonProblem",
    "RidgeTable",
    "RunTable",
    "SellersTable",
    "SweepTable",
    "SyntheticData",
    "SyntheticRegressionData",
    "TradeoffProblem",
    "UnitsTable",
    "WdbcData",
    "json_schema",
    "load_problem",
    "parse_problem",
]

#: A problem file holds a few numbers; anything larger is not one.
LARGEST_FILE = 1_000_000

Positive = Annotated[float, Field(gt=0)]
Nonnegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, lt=1)]
# TOML has arrays and no tuples, so these fields alone are not strict about their container.
Positives = Annotated[tuple[Positive, ...], Field(strict=False, min_length=1, max_length=100)]
Nonnegatives = Annotated[tuple[Nonnegative, ...], Field(strict=False, min_length=1, max_length=100)]

PriorTable = Annotated[
    Prior,
    PlainValidator(prior_from_dict),
    PlainSerializer(lambda prior: prior.to_dict()),
    WithJsonSchema(
        {
            "type": "object",
            "description": "Distribution of the sensitivities: its family and its parameters.",
            "properties": {"family": {"type": "string"}},
            "required": ["family"],
            "examples": [{"family": "uniform", "low": 0.02, "high": 0.1}],
        }
    ),
]


def _feature(value: Any) -> str | int:
    if isinstance(value, str) or (type(value) is int and value >= 0):
        return value
    raise ValueError(f"{value!r} is no feature; give its name, or its position as an integer >= 0")


Feature = Annotated[
    str | int, PlainValidator(_feature), WithJsonSchema({"type": ["string", "integer"]})
]


class _Table(BaseModel):
    """A table of a problem file: immutable, exactly typed, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class ProblemSource:
    """Where a problem came from, for its provenance.

    Attributes
    ----------
    path : str
        The file, as it was named.
    text : str
        What it held.
    overrides : tuple of str
        The ``key=value`` settings that replaced parts of it.
    """

    path: str
    text: str
    overrides: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Digest of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class WdbcData(_Table):
    """The Wisconsin breast-cancer data, scikit-learn's copy; the training rows are the sellers."""

    source: Literal["wdbc"]
    train_fraction: Share = 0.6
    validation_fraction: Share = 0.2
    split_seed: Annotated[int, Field(ge=0)] = 0
    data_norm: Positive = 1.0

    @model_validator(mode="after")
    def _leave_rows_for_the_test(self) -> Self:
        if self.train_fraction + self.validation_fraction >= 1:
            raise ValueError(
                f"train_fraction + validation_fraction is "
                f"{self.train_fraction + self.validation_fraction:g}; leave rows for the test: "
                "give fractions that sum to less than 1"
            )
        return self


class SyntheticData(_Table):
    """Gaussian rows with a linear separator through the origin (A, section X)."""

    source: Literal["synthetic"]
    n_sellers: Annotated[int, Field(ge=1, le=1_000_000)]
    n_features: Annotated[int, Field(ge=1, le=10_000)]
    n_validation: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    n_test: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    data_seed: Annotated[int, Field(ge=0)] = 0
    data_norm: Positive = 1.0


class InlineData(_Table):
    """Rows written in the file itself; they serve as validation and test rows as well."""

    source: Literal["inline"]
    features: Annotated[
        tuple[Annotated[tuple[float, ...], Field(strict=False, min_length=1)], ...],
        Field(strict=False, min_length=1, max_length=10_000),
    ]
    labels: Annotated[
        tuple[Literal[-1, 1], ...], Field(strict=False, min_length=1, max_length=10_000)
    ]
    data_norm: Positive = 1.0

    @model_validator(mode="after")
    def _rows_have_one_shape(self) -> Self:
        lengths = {len(row) for row in self.features}
        if len(lengths) > 1:
            raise ValueError(f"the rows of features have {sorted(lengths)} entries; give as many")
        if len(self.features) != len(self.labels):
            raise ValueError(
                f"there are {len(self.features)} rows of features and {len(self.labels)} labels; "
                "give one label for each row"
            )
        return self


class MedicalData(_Table):
    """Insurance charges of patients, with labels in [0, 1]; the training rows are the sellers."""

    source: Literal["medical"]
    train_fraction: Share = 0.8
    split_seed: Annotated[int, Field(ge=0)] = 0


class SyntheticRegressionData(_Table):
    """Uniform rows in [0, 1]^d with labels that are linear in them; the training rows sell."""

    source: Literal["synthetic-regression"]
    n_rows: Annotated[int, Field(ge=2, le=1_000_000)]
    n_features: Annotated[int, Field(ge=1, le=10_000)]
    train_fraction: Share = 0.8
    label_noise: Nonnegative = 0.0
    data_seed: Annotated[int, Field(ge=0)] = 0


class SellersTable(_Table):
    """What the sellers report, and how that relates to their data.

    Where ``sensitivities`` are left out, they are drawn from the prior. In the scenario
    "correlated" the k-th smallest goes to the row with the k-th smallest value of the feature
    ``correlated_with``, a name or a position (B, section 5).
    """

    sensitivities: Nonnegatives | None = None
    scenarios: Annotated[
        tuple[Literal["independent", "correlated"], ...], Field(strict=False, min_length=1)
    ] = ("independent",)
    correlated_with: Feature = 0

    @field_validator("scenarios")
    @classmethod
    def _once_each(cls, scenarios: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(scenarios)) < len(scenarios):
            raise ValueError("a scenario is listed twice; list each once")
        return scenarios


def _low_below_high(eta_range: tuple[float, float]) -> tuple[float, float]:
    if eta_range[0] > eta_range[1]:
        raise ValueError("the range is empty; give [low, high] with low <= high")
    return eta_range


def _low_under_high(target_range: tuple[float, float]) -> tuple[float, float]:
    if target_range[0] >= target_range[1]:
        raise ValueError("the range has no width; give [low, high] with low < high")
    return target_range


def _without_repeats(values: tuple[float, ...]) -> tuple[float, ...]:
    if len(set(values)) < len(values):
        raise ValueError("a value is listed twice; list each once")
    return values


_EtaRange = Annotated[
    tuple[Positive, Positive], Field(strict=False), AfterValidator(_low_below_high)
]


class BuyerTable(_Table):
    """What the buyer decides beside the learner: the gammas to report, and constraints."""

    gamma: Positives
    cap: Annotated[float, Field(ge=1)] | None = None
    eta_range: _EtaRange | None = None

    @field_validator("gamma")
    @classmethod
    def _different(cls, gamma: tuple[float, ...]) -> tuple[float, ...]:
        return _without_repeats(gamma)


class ObjectiveTable(BuyerTable):
    """The buyer's objective: the gammas to report, candidates for mu and sigma, constraints."""

    mu: Positives
    sigma: Positives


class LearnerTable(_Table):
    """The private logistic regression: candidates for Lambda, noise draws, accounting."""

    regularization: Positives
    draws: Annotated[int, Field(ge=1, le=10_000)] = 15
    accounting: Accounting = "tight"
    calibration: Literal["noise", "total"] = "noise"


class RidgeTable(_Table):
    """The private ridge regression, and what is publicly assumed of the data it is trained on.

    Labels in ``target_range`` are mapped to [-1, 1]; ``bound``, ``label_noise``, ``coef_norm`` and
    ``smallest_eigenvalue`` are on that scale, and those of Theorem 3.6 of Acharya et al. They are
    declared here, never estimated from rows that are sold. So is ``typical_label``, in the units
    of the labels: what one would predict without a model.
    """

    regularization: Positives
    label_noise: Positive
    coef_norm: Positive
    smallest_eigenvalue: Nonnegative = 0.0
    delta: Share = 0.05
    sensitivity: Sensitivity = "tight"
    bound: Positive | None = None
    target_range: Annotated[
        tuple[float, float], Field(strict=False), AfterValidator(_low_under_high)
    ] = (-1.0, 1.0)
    typical_label: float | None = None
    draws: Annotated[int, Field(ge=2, le=10_000)] = 200

    @field_validator("regularization")
    @classmethod
    def _different(cls, regularization: tuple[float, ...]) -> tuple[float, ...]:
        return _without_repeats(regularization)


class UnitsTable(_Table):
    """What a report calls things: one unit of the labels is ``per_label`` of ``label``."""

    label: Annotated[str, Field(min_length=1, max_length=50)] = "units of the label"
    per_label: Positive = 1.0
    money: Annotated[str, Field(max_length=50)] = ""


class NaiveTable(_Table):
    """The naive model, mu = sigma = 0: the range of eta that makes it well posed, and its grid."""

    eta_range: _EtaRange
    grid: Annotated[int, Field(ge=1, le=1_000)] = 8


class RunTable(_Table):
    """How to run: the seed of every draw, and the number of parallel jobs (-1: all cores)."""

    seed: Annotated[int, Field(ge=0)] = 0
    jobs: Annotated[int, Field(ge=-1)] = 2

    @field_validator("jobs")
    @classmethod
    def _some_job(cls, jobs: int) -> int:
        if jobs == 0:
            raise ValueError("no job would do the work; give a number >= 1, or -1 for all cores")
        return jobs


class _Problem(_Table):
    """What every problem file says, whatever its kind."""

    kind: str
    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: str = ""
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()

    _source: ProblemSource | None = PrivateAttr(default=None)

    @property
    def source(self) -> ProblemSource | None:
        """The file that the problem was loaded from, if any."""
        return self._source


class TradeoffProblem(_Problem):
    """Error against payments over gamma: Algorithm 2 of A on a data set."""

    kind: Literal["tradeoff"]
    data: Annotated[WdbcData | SyntheticData | InlineData, Field(discriminator="source")]
    prior: PriorTable
    sellers: SellersTable = SellersTable()
    objective: ObjectiveTable
    learner: LearnerTable
    naive: NaiveTable
    run: RunTable = RunTable()

    @field_validator("sellers")
    @classmethod
    def _reports_fit(cls, sellers: SellersTable, info: ValidationInfo) -> SellersTable:
        """Check given sensitivities against the prior and against the rows of inline data."""
        data = _check_reports(sellers, info).get("data")
        given = sellers.sensitivities
        if given and isinstance(data, InlineData) and len(given) != len(data.labels):
            raise ValueError(
                f"there are {len(given)} sensitivities for {len(data.labels)} rows of data; "
                "give one for each"
            )
        return sellers


class RegressionMarketProblem(_Problem):
    """A market for ridge regression: mu and sigma follow from Theorem 3.6 of Acharya et al."""

    kind: Literal["regression-market"]
    data: Annotated[MedicalData | SyntheticRegressionData, Field(discriminator="source")]
    prior: PriorTable
    sellers: SellersTable = SellersTable()
    objective: BuyerTable
    learner: RidgeTable
    units: UnitsTable = UnitsTable()
    run: RunTable = RunTable()

    @field_validator("sellers")
    @classmethod
    def _reports_fit(cls, sellers: SellersTable, info: ValidationInfo) -> SellersTable:
        """Check given sensitivities against the prior."""
        _check_reports(sellers, info)
        return sellers


class MedicalRows(_Table):
    """The medical cost data; every draw splits the rows anew."""

    source: Literal["medical"]
    train_fraction: Share = 0.8
    ranges: Literal["public", "data"] = "public"


class SyntheticRows(_Table):
    """Uniform rows with a linear label; every draw makes them anew."""

    source: Literal["synthetic-regression"]
    n_rows: Annotated[int, Field(ge=2, le=100_000)] = 100
    n_features: Annotated[int, Field(ge=1, le=1_000)] = 30
    train_fraction: Share = 0.8
    label_noise: Nonnegative = 0.0


class PrivacyTable(_Table):
    """What the rows ask for: conservatives, mediums and liberals (R, section 4).

    Conservatives ask for a guarantee uniform in [eps_conservative, eps_medium], mediums uniform in
    [eps_medium, eps_liberal], and liberals, who are the rest, for eps_liberal.
    """

    eps_conservative: Positive = 0.01
    eps_medium: Positive = 0.2
    eps_liberal: Positive = 1.0
    f_conservative: Annotated[float, Field(ge=0, le=1)] = 0.34
    f_medium: Annotated[float, Field(ge=0, le=1)] = 0.43

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.eps_conservative <= self.eps_medium <= self.eps_liberal:
            raise ValueError(
                f"the levels {self.eps_conservative:g}, {self.eps_medium:g}, {self.eps_liberal:g} "
                "are not in order; give eps_conservative <= eps_medium <= eps_liberal"
            )
        if self.f_conservative + self.f_medium > 1 + 1e-9:
            raise ValueError(
                f"f_conservative + f_medium is {self.f_conservative + self.f_medium:g}; "
                "give fractions that sum to at most 1"
            )
        return self


class ComparisonTable(_Table):
    """How the compared regressions are trained, and what is publicly assumed for their bound."""

    regularization: Positive
    sensitivity: Sensitivity = "paper"
    label_noise: Nonnegative = 0.0
    coef_norm: Positive = 1.0
    smallest_eigenvalue: Nonnegative = 0.0
    delta: Share = 0.05


class PublishedTable(_Table):
    """Figures to compare with: a CSV file next to the problem file, and what it holds."""

    file: Annotated[str, Field(min_length=1, max_length=200)]
    statistic: Literal["mean", "std"] = "mean"


class SweepTable(_Table):
    """One parameter varied, the others as in [learner] and [privacy] or as said here."""

    parameter: Literal[
        "regularization",
        "eps_conservative",
        "eps_medium",
        "f_conservative",
        "row_fraction",
        "label_noise",
    ]
    values: Positives
    regularization: Positive | None = None
    privacy: PrivacyTable | None = None
    published: Annotated[tuple[PublishedTable, ...], Field(strict=False)] = ()

    @field_validator("values")
    @classmethod
    def _different(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        return _without_repeats(values)


class DrawsTable(RunTable):
    """How to run: besides, how many draws of the data and the levels, and of each sample."""

    draws: Annotated[int, Field(ge=1, le=1_000)] = 25
    samples: Annotated[int, Field(ge=2, le=1_000)] = 50


class RidgeComparisonProblem(_Problem):
    """Expected losses of private ridge regressions over a parameter: the experiments of R."""

    kind: Literal["ridge-comparison"]
    data: Annotated[MedicalRows | SyntheticRows, Field(discriminator="source")]
    privacy: PrivacyTable = PrivacyTable()
    learner: ComparisonTable
    sweeps: Annotated[tuple[SweepTable, ...], Field(strict=False, min_length=1, max_length=20)]
    run: DrawsTable = DrawsTable()

    def privacy_at(self, sweep: SweepTable, value: float) -> PrivacyTable:
        """Return the privacy levels of a sweep where its parameter has this value."""
        levels = sweep.privacy or self.privacy
        if sweep.parameter in PrivacyTable.model_fields:
            return PrivacyTable(**(levels.model_dump() | {sweep.parameter: value}))
        return levels

    @field_validator("sweeps")
    @classmethod
    def _sweeps_fit(
        cls, sweeps: tuple[SweepTable, ...], info: ValidationInfo
    ) -> tuple[SweepTable, ...]:
        """Check that every value of every sweep is one that its parameter can have."""
        for sweep in sweeps:
            levels = sweep.privacy or info.data.get("privacy") or PrivacyTable()
            for value in sweep.values:
                if sweep.parameter == "row_fraction" and value > 1:
                    raise ValueError(
                        f"row_fraction is a share of the rows, at most 1, not {value:g}"
                    )
                if sweep.parameter in PrivacyTable.model_fields:
                    try:
                        PrivacyTable(**(levels.model_dump() | {sweep.parameter: value}))
                    except ValidationError as error:
                        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
                        raise ValueError(f"at {sweep.parameter} = {value:g}, {reason}") from None
        return sweeps


def _check_reports(sellers: SellersTable, info: ValidationInfo) -> dict[str, Any]:
    """Check given sensitivities against the prior, and return the tables that were valid."""
    if sellers.sensitivities is not None and "prior" in info.data:
        info.data["prior"].check_reports(sellers.sensitivities)
    return info.data


Problem: TypeAlias = TradeoffProblem | RegressionMarketProblem | RidgeComparisonProblem

#: The experiments that a problem file can describe, by ``kind``.
KINDS: dict[str, type[Problem]] = {
    "tradeoff": TradeoffProblem,
    "regression-market": RegressionMarketProblem,
    "ridge-comparison": RidgeComparisonProblem,
}


#: What TOML calls the types that pydantic names in Python's words.
_EXPECTED = {
    "tuple_type": "should be a list",
    "too_short": "should have more entries",
    "too_long": "should have fewer entries",
    "model_type": "should be a table",
    "model_attributes_type": "should be a table",
}


def load_problem(path: str | Path, overrides: Iterable[str] = ()) -> Problem:
    """Read and validate a problem file.

    Parameters
    ----------
    path : path of a TOML file
    overrides : iterable of str
        ``"objective.gamma=[0.001, 0.01]"`` and the like: a key path and a TOML value, which
        replaces what the file says.

    Returns
    -------
    Problem

    Raises
    ------
    ProblemFileError
        If the file cannot be read, is not TOML, or does not follow the schema. There is one line
        for each mistake: the file, the key path, what was found and what is allowed.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ProblemFileError(f"{path}: {error.strerror}; give a problem file") from None
    if len(data) > LARGEST_FILE:
        raise ProblemFileError(
            f"{path}: {len(data)} bytes, but a problem file has at most {LARGEST_FILE}"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ProblemFileError(f"{path}: {error}; a TOML file is UTF-8 text") from None
    return parse_problem(text, overrides, path=str(path))


def parse_problem(text: str, overrides: Iterable[str] = (), path: str = "<text>") -> Problem:
    """Validate the text of a problem file; see :func:`load_problem`.

    Examples
    --------
    >>> parse_problem('kind = "tradeof"')
    Traceback (most recent call last):
    ...
    convexmarket.errors.ProblemFileError: <text>: kind is 'tradeof'; did you mean 'tradeoff'?
    """
    source = ProblemSource(path, text, tuple(overrides))
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProblemFileError(f"{path}: not valid TOML: {error}") from None
    for override in source.overrides:
        _override(table, override)
    if "kind" not in table:
        raise ProblemFileError(f"{path}: kind is missing; give one of {_listed(KINDS)}")
    model = KINDS.get(str(table["kind"]))
    if model is None:
        advice = _suggestion(str(table["kind"]), KINDS)
        raise ProblemFileError(f"{path}: kind is {table['kind']!r}; {advice}")
    try:
        problem = model.model_validate(table)
    except ValidationError as error:
        lines = [f"{path}: {_in_words(model, detail)}" for detail in _innermost(error)]
        raise ProblemFileError("\n".join(lines)) from None
    problem._source = source
    return problem


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema that every problem file follows."""
    schema = TypeAdapter(Annotated[Problem, Field(discriminator="kind")]).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _override(table: dict[str, Any], setting: str) -> None:
    """Replace one value of the parsed file, in place."""
    key, equals, value = setting.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise ProblemFileError(
            f"--set {setting}: write KEY=VALUE, such as --set objective.gamma=[0.001,0.01]"
        )
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        parsed = {}
    if parsed.keys() != {"value"}:
        raise ProblemFileError(
            f"--set {key}: {value.strip()!r} is not a TOML value; write numbers as 0.01, lists as "
            f"[0.001,0.01], and text in double quotes: --set '{key}=\"{value.strip()}\"'"
        )
    for depth, part in enumerate(path[:-1], start=1):
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ProblemFileError(
                f"--set {key}: {'.'.join(path[:depth])} is not a table, so it has no keys to set"
            )
    table[path[-1]] = parsed["value"]


def _innermost(error: ValidationError) -> list[ErrorDetails]:
    """Leave out errors about a list that only say again that one of its entries is wrong."""
    details = error.errors()
    inside = {detail["loc"][:depth] for detail in details for depth in range(len(detail["loc"]))}
    return [detail for detail in details if detail["loc"] not in inside or not detail["loc"]]


def _in_words(model: type[_Table], detail: ErrorDetails) -> str:
    """Return one of pydantic's errors as: key path, what was found, what is allowed."""
    keys, table = _resolve(model, detail["loc"])
    path = _dotted(keys) or "the file"
    context = detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            known = [] if table is None else list(table.model_fields)
            return f"{path} is not a known key; {_suggestion(str(keys[-1]), known)}"
        case "missing":
            return f"{path} is missing"
        case "union_tag_invalid":
            allowed = context["expected_tags"].replace("'", "").split(", ")
            key = f"{path}.{context['discriminator'].strip(chr(39))}"
            return f"{key} is {context['tag']!r}; {_suggestion(context['tag'], allowed)}"
        case "union_tag_not_found":
            return f"{path}.{context['discriminator'].strip(chr(39))} is missing"
        case "value_error":
            return f"{path}: {context['error']}"
        case "literal_error" if isinstance(detail["input"], str):
            allowed = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            return f"{path} is {detail['input']!r}; {_suggestion(detail['input'], allowed)}"
    expected = _EXPECTED.get(detail["type"], detail["msg"])
    for subject in ("Input", "String", "Tuple"):
        expected = expected.removeprefix(f"{subject} ")
    return f"{path} is {_short(detail['input'])}; it {expected}"


def _resolve(
    model: type[_Table], location: tuple[int | str, ...]
) -> tuple[list[int | str], type[_Table] | None]:
    """Return the key path of an error, and the table that its last key belongs to.

    Where a table is one of several kinds, pydantic's location holds the name of the kind too,
    which is not in the file.
    """
    path: list[int | str] = []
    tables: list[type[_Table]] = [model]
    owner: type[_Table] | None = model
    for step in location:
        if len(tables) > 1:
            tables = [table for table in tables if step in _kind_of(table)]
            continue
        owner = tables[0] if tables else None
        path.append(step)
        field = owner.model_fields.get(str(step)) if owner else None
        tables = _tables_in(field.annotation) if field else []
    if path and owner and len(tables) > 1:  # the error is about which kind it is
        owner = None
    return path, owner


def _kind_of(table: type[_Table]) -> tuple[Any, ...]:
    return get_args(next(iter(table.model_fields.values())).annotation)


def _tables_in(annotation: Any) -> list[type[_Table]]:
    members = get_args(annotation) or (annotation,)
    return [item for item in members if isinstance(item, type) and issubclass(item, _Table)]


def _dotted(keys: list[int | str]) -> str:
    """Return a key path as one writes it, ``objective.gamma[1]``."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else str(key)
    return text


def _suggestion(found: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(found, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {_listed(known)}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
