"""Tables for the pieces of a market: each builds the term or the constraint that it describes.

What a piece may be is checked by the piece itself. A table only says which key is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema

from convexmarket.problems.base import EtaRange, Nonnegative, Positive, TableModel
from convexmarket.problems.limits import MOST_ENTRIES
from convexmarket.terms import (
    Budget,
    Cap,
    Constraint,
    CVaR,
    EffectiveSize,
    ExponentialCost,
    Fairness,
    GivenEpsilon,
    GroupShare,
    LinearCost,
    MaxEpsilon,
    Moments,
    NegativeEntropy,
    Noise,
    Objective,
    Payments,
    PowerCost,
    PrivacyCost,
    QuadraticSpread,
    RobustCosts,
    Spread,
    SquaredNoise,
    SquaredSpread,
    Term,
    TieredCost,
)
from convexmarket.terms import EtaRange as EtaRangeConstraint
from convexmarket.terms.risk import Of

__all__ = [
    "CVaRTable",
    "ConstraintsTable",
    "FairnessTable",
    "GroupShareTable",
    "MomentsTable",
    "NegativeEntropyTable",
    "NoiseTable",
    "Number",
    "PaymentsTable",
    "QuadraticSpreadTable",
    "RobustCostsTable",
    "SpreadTable",
    "SquaredNoiseTable",
    "SquaredSpreadTable",
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
    if isinstance(cost, PowerCost):
        return {"power": cost.power}
    if isinstance(cost, TieredCost):
        return {"slopes": list(cost.slopes), "thresholds": list(cost.thresholds)}
    return next(name for name, known in _NAMED_COSTS.items() if known == cost)


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


class _TermTable(TableModel):
    """A term and its weight in the objective."""

    weight: Nonnegative

    def build(self) -> Term:
        """Return the term."""
        raise NotImplementedError

    def build_for(self, groups: NDArray[np.str_] | None) -> Term:
        """Return the term for sellers of these groups, shape (m,), if they have groups."""
        return self.build()


class _CheckedTable(_TermTable):
    """A term whose arguments are the other keys; it says itself whether it can be that."""

    builds: ClassVar[Callable[..., Term]]

    def build(self) -> Term:
        """Return the term."""
        keys = {name: value for name, value in self if name not in ("term", "weight")}
        return self.builds(**keys)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        self.build()
        return self


class SpreadTable(_CheckedTable):
    """The norm of the weights, ``||a||_p``, or of what they are off a reference; p may be inf."""

    builds = Spread
    term: Literal["spread"]
    p: Annotated[float, Field(gt=1, allow_inf_nan=True)] = 2.0
    reference: Numbers | None = None


class SquaredSpreadTable(_TermTable):
    """The squared Euclidean norm of the weights."""

    term: Literal["squared-spread"]

    def build(self) -> Term:
        """Return the term."""
        return SquaredSpread()


class QuadraticSpreadTable(_CheckedTable):
    """A quadratic form of the weights, with a covariance of the sellers' rows."""

    builds = QuadraticSpread
    term: Literal["quadratic-spread"]
    Sigma: Rows


class NegativeEntropyTable(_CheckedTable):
    """The negative entropy of the weights, or their divergence from a reference."""

    builds = NegativeEntropy
    term: Literal["negative-entropy"]
    reference: Numbers | None = None


class NoiseTable(_TermTable):
    """The reciprocal of the total privacy bought."""

    term: Literal["noise"]

    def build(self) -> Term:
        """Return the term."""
        return Noise()


class SquaredNoiseTable(_CheckedTable):
    """The square of the reciprocal of the total privacy bought."""

    builds = SquaredNoise
    term: Literal["squared-noise"]


class CVaRTable(_CheckedTable):
    """The average guarantee, or payment, of the worst share of the sellers."""

    builds = CVaR
    term: Literal["cvar"]
    level: Number
    of: Annotated[str, Field(json_schema_extra={"enum": [*get_args(Of)]})] = "epsilon"


class FairnessTable(_TermTable):
    """The largest average guarantee of any group of the sellers."""

    term: Literal["fairness"]
    kind: Literal["minimax"] = "minimax"

    def build_for(self, groups: NDArray[np.str_] | None) -> Term:
        """Return the term."""
        return Fairness(self.kind, _needed(groups, "the term fairness"))


class RobustCostsTable(_CheckedTable):
    """The expected payments at worst, over a set of virtual costs."""

    builds = RobustCosts
    term: Literal["robust-costs"]
    kind: Literal["box", "budget", "ellipsoid"]
    radius: OneOrEach
    budget: Number | None = None


class PaymentsTable(_TermTable):
    """The expected payments, with the sellers' privacy cost."""

    term: Literal["payments"]
    weight: Positive
    privacy_cost: PrivacyCostEntry = LinearCost()

    def build(self) -> Term:
        """Return the term."""
        return Payments(self.privacy_cost)


def _needed(groups: NDArray[np.str_] | None, by: str) -> NDArray[np.str_]:
    if groups is None:
        raise ValueError(f"{by} needs groups; give sellers.groups, each with a name and a count")
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


_TERM_NAMES = (
    "spread",
    "squared-spread",
    "quadratic-spread",
    "negative-entropy",
    "noise",
    "squared-noise",
    "cvar",
    "fairness",
    "payments",
    "robust-costs",
)

#: Terms by label. A label that is the name of a term need not repeat it.
TermsTable = Annotated[
    dict[
        str,
        Annotated[
            SpreadTable
            | SquaredSpreadTable
            | QuadraticSpreadTable
            | NegativeEntropyTable
            | NoiseTable
            | SquaredNoiseTable
            | CVaRTable
            | FairnessTable
            | PaymentsTable
            | RobustCostsTable,
            Field(discriminator="term"),
        ],
    ],
    BeforeValidator(_named_by_label),
    Field(max_length=50),
    _LabelsNameTerms(),
]


def objective_of(
    terms: Mapping[str, _TermTable], groups: NDArray[np.str_] | None = None
) -> Objective:
    """Return the weighted sum of the terms, in the order of the file, for sellers of groups."""
    weighted = [entry.weight * entry.build_for(groups) for entry in terms.values()]
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
