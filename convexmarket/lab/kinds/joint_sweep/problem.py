"""Files of kind "joint-sweep": one joint problem in which one thing is swept, over paired draws.

The file states a joint problem: rows, prior, given guarantees, objective, constraints, learner.
The sweep lists values for one key, or for several that vary together; every point of it is checked
as the complete problem that comes of it, so that an error names the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from convexmarket.lab.problem.base import Positive, PriorTable, ProblemModel, RunTable, TableModel
from convexmarket.lab.problem.classification import ClassificationData, InlineData, SyntheticData
from convexmarket.lab.problem.completing import plain, with_value
from convexmarket.lab.problem.joint import ClaimTable, JointTable
from convexmarket.lab.problem.pieces import (
    ConstraintsTable,
    TermsTable,
    objective_of,
)
from convexmarket.market import Market
from convexmarket.sellers import Sellers
from convexmarket.terms import GivenEpsilon

__all__ = [
    "JointLearnerTable",
    "JointPoint",
    "JointSweepProblem",
    "JointSweepTable",
    "Measure",
    "SweepClaimTable",
]

Floats = NDArray[np.float64]

#: What is measured at every point, for every draw.
Measure = Literal[
    "objective",
    "eta",
    "two_step_eta",
    "n_bought",
    "weight_variance",
    "two_step_weight_variance",
    "expected_payments",
    "train_error",
    "test_error",
    "noiseless_train_error",
    "noiseless_test_error",
    "empirical_loss",
    "mean_loss",
    "residual",
]

#: Levels at which the quantiles of a prior are taken for its variance.
_LEVELS = (np.arange(20_000) + 0.5) / 20_000


class JointLearnerTable(TableModel):
    """The logistic regression: its Lambda."""

    regularization: Positive = 0.01


class JointPoint(TableModel):
    """A joint problem, but for what is drawn: sensitivities, guarantees and noise."""

    data: ClassificationData
    prior: PriorTable
    guarantees: PriorTable | None = None
    objective: Annotated[TermsTable, Field(min_length=1)]
    constraints: ConstraintsTable = ConstraintsTable()
    joint: JointTable = JointTable()
    learner: JointLearnerTable = JointLearnerTable()

    @field_validator("constraints")
    @classmethod
    def _granted_once(cls, constraints: ConstraintsTable, info: ValidationInfo) -> ConstraintsTable:
        if constraints.given_epsilon is not None and info.data.get("guarantees") is not None:
            raise ValueError("given_epsilon says what [guarantees] draws; give one of both")
        return constraints

    @property
    def pays(self) -> bool:
        """Whether payments count in the objective."""
        return any(entry.build().privacy_cost is not None for entry in self.objective.values())

    @property
    def eta_fixed(self) -> bool:
        """Whether the range of eta leaves no choice."""
        given = self.constraints.eta_range
        return given is not None and given[0] == given[1]

    @property
    def prior_variance(self) -> float:
        """Variance of the sensitivities under the prior."""
        return float(np.var(self.prior.quantile(_LEVELS)))

    def market(self, levels: Floats, granted: Floats) -> Market:
        """Return the market of one draw.

        Parameters
        ----------
        levels : ndarray, shape (m,)
            At which the quantiles of the prior are the sensitivities. The same levels give a seller
            the same rank under every prior.
        granted : ndarray, shape (m,)
            The same for the largest guarantees, where there are any.
        """
        constraints = self.constraints.build()
        if self.guarantees is not None:
            constraints.append(GivenEpsilon(self.guarantees.quantile(granted)))
        sellers = Sellers(self.prior.quantile(levels), self.prior)
        return Market(sellers, objective_of(self.objective), constraints)

    def check(self) -> None:
        """Let the market say what it cannot be, as far as the number of rows is known."""
        match self.data:
            case SyntheticData(n_sellers=known):
                m = known
            case InlineData(labels=labels):
                m = len(labels)
            case _:
                return
        middle = np.full(m, 0.5)
        self.market(middle, middle)


class _Completed(TableModel):
    """What the values of a sweep are parts of."""

    values: JointPoint


def _flattened(values: Any) -> Any:
    """Return nested tables of lists as one table whose keys are paths, joined by dots."""
    if not isinstance(values, Mapping):
        return values
    found: dict[str, Any] = {}
    for path, items in _leaves(values):
        if path in found:
            raise ValueError(f"{path} is listed twice; list each key once")
        found[path] = items
    return found


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


MOST_KEYS = 20
FEWEST_VALUES, MOST_VALUES = 2, 200
SweptValues = Annotated[
    tuple[Any, ...], Field(strict=False, min_length=FEWEST_VALUES, max_length=MOST_VALUES)
]


class JointSweepTable(TableModel):
    """What is swept, what the axis of the figures shows, and how many draws each point averages.

    The axis shows the values of the first key, the lower end where they are ranges; or the variance
    of the prior.
    """

    completed_as: ClassVar[type[TableModel]] = _Completed

    label: Annotated[str, Field(min_length=1, max_length=100)]
    axis: Literal["value", "prior variance"] = "value"
    draws: Annotated[int, Field(ge=1, le=10_000)] = 20
    values: Annotated[
        dict[str, SweptValues],
        BeforeValidator(_flattened),
        Field(min_length=1, max_length=MOST_KEYS),
        WithJsonSchema(
            {
                "type": "object",
                "description": "Lists of values by key path, whole or as nested tables.",
                "minProperties": 1,
                "maxProperties": MOST_KEYS,
                "additionalProperties": {
                    "type": ["array", "object"],
                    "minItems": FEWEST_VALUES,
                    "maxItems": MOST_VALUES,
                },
            }
        ),
    ]

    _points: tuple[JointPoint, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _equally_long(self) -> JointSweepTable:
        lengths = {path: len(items) for path, items in self.values.items()}
        if len(set(lengths.values())) > 1:
            words = ", ".join(f"{path} {length}" for path, length in lengths.items())
            raise ValueError(f"the keys do not have as many values ({words}); give as many of each")
        return self

    @property
    def settings(self) -> tuple[dict[str, Any], ...]:
        """What the swept keys are at each point."""
        return tuple(
            dict(zip(self.values, row, strict=True))
            for row in zip(*self.values.values(), strict=True)
        )

    @property
    def points(self) -> tuple[JointPoint, ...]:
        """The complete problem at each point."""
        return self._points

    @property
    def axis_values(self) -> tuple[float, ...]:
        """Where each point stands on the axis."""
        if self.axis == "prior variance":
            return tuple(point.prior_variance for point in self.points)
        return tuple(_number(value) for value in next(iter(self.values.values())))


def _number(value: Any) -> float:
    """Return a value as a number; of a range, its lower end."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    if isinstance(first, bool) or not isinstance(first, int | float):
        raise ValueError(f"{value!r} has no place on an axis; the first key's values are numbers")
    return float(first)


def _complete(sweep: JointSweepTable, info: ValidationInfo) -> JointSweepTable:
    """Check the problem at every point."""
    if any(name not in info.data for name in JointPoint.model_fields):
        return sweep  # the base has errors of its own, which are reported
    base = {name: found for name in JointPoint.model_fields if (found := plain(info.data[name]))}
    points = []
    for settings in sweep.settings:
        table = base
        for path, value in settings.items():
            table = with_value(table, path, value, ("values",))
        points.append(_point(table))
        points[-1].check()
    sweep._points = tuple(points)
    steps = [high - low for low, high in pairwise(sweep.axis_values)]
    if not (all(step > 0 for step in steps) or all(step < 0 for step in steps)):
        raise ValueError("the points neither rise nor fall along the axis; put them in order")
    return sweep


def _point(table: Mapping[str, Any]) -> JointPoint:
    """Return a point; its errors are about the values of the sweep."""
    try:
        return JointPoint.model_validate(table)
    except ValidationError as error:
        details = [
            InitErrorDetails(
                type=detail["type"],
                loc=("values", *detail["loc"]),
                input=detail["input"],
                ctx=detail.get("ctx", {}),
            )
            for detail in error.errors()
        ]
        raise ValidationError.from_exception_data("sweep", details) from None


class SweepClaimTable(ClaimTable):
    """What a paper says of a measure, from the first point of the sweep to the last."""

    measure: Measure


class JointSweepProblem(JointPoint, ProblemModel):
    """A joint problem, swept over one thing and averaged over paired draws."""

    kind: Literal["joint-sweep"]
    run: RunTable = RunTable()
    sweep: Annotated[JointSweepTable, AfterValidator(_complete)]
    claims: Annotated[tuple[SweepClaimTable, ...], Field(strict=False, max_length=50)] = ()
