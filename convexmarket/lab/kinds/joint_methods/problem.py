"""Files of kind "joint-methods": the ways to solve the joint problem, side by side."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from convexmarket.lab.problem.base import (
    Positive,
    PriorTable,
    ProblemModel,
    RunTable,
    SolverName,
    TableModel,
)
from convexmarket.lab.problem.classification import ClassificationData, SyntheticData
from convexmarket.lab.problem.joint import JointTable

__all__ = [
    "AlternatingTable",
    "ExponentialTable",
    "GradientTable",
    "JointGroupTable",
    "JointMethodTable",
    "JointMethodsProblem",
    "JointMethodsRunTable",
    "NonlinearTable",
    "SizesTable",
]

Name = Annotated[str, Field(min_length=1, max_length=60)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Range = Annotated[tuple[Count, Count], Field(strict=False)]


class _MethodTable(TableModel):
    """A method of :func:`convexmarket.allocate_jointly`, by the name that the report gives it.

    What is left out is as the method has it; ``starts`` is then that of the table ``joint``. A
    method that is ``isolated`` runs in a process of its own, which ends after the run's
    ``time_limit``.
    """

    name: Name
    starts: Annotated[int, Field(ge=1, le=100)] | None = None
    isolated: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What the file says of the method's own options."""
        said = self.model_dump(exclude={"name", "method", "starts", "isolated"})
        return {key: value for key, value in said.items() if value is not None}


class AlternatingTable(_MethodTable):
    """The best model and the best purchases in turn; with a conic solver in place of exact ones."""

    method: Literal["alternating"]
    solver: SolverName | None = None
    tol: Positive | None = None
    max_iterations: Count | None = None


class ExponentialTable(_MethodTable):
    """The variables z = log(a), by the convex-concave procedure."""

    method: Literal["exponential"]
    solver: SolverName | None = None
    tol: Positive | None = None
    max_iterations: Count | None = None


class NonlinearTable(_MethodTable):
    """The whole problem as one nonlinear program; a solve that hangs is ended."""

    method: Literal["nlp"]
    isolated: bool = True


class GradientTable(_MethodTable):
    """The papers' projected gradient descent on a grid of eta, in the weights or logarithms."""

    method: Literal["projected_gradient"]
    variables: Literal["weights", "logarithms"] | None = None
    grid: Count | None = None
    eps_max: Positive | None = None
    step: Positive | None = None
    tol: Positive | None = None
    max_iterations: Count | None = None


JointMethodTable: TypeAlias = Annotated[
    AlternatingTable | ExponentialTable | NonlinearTable | GradientTable,
    Field(discriminator="method"),
]
_EVERY: tuple[JointMethodTable, ...] = (
    AlternatingTable(name="alternating", method="alternating"),
    ExponentialTable(name="exponential", method="exponential"),
    NonlinearTable(name="nlp", method="nlp"),
    GradientTable(name="projected gradient", method="projected_gradient"),
)


class SizesTable(TableModel):
    """Ranges that the size of each synthetic instance is drawn from, ends included."""

    n_sellers: Range
    n_features: Range

    @model_validator(mode="after")
    def _low_first(self) -> Self:
        for name, (low, high) in (("n_sellers", self.n_sellers), ("n_features", self.n_features)):
            if low > high:
                raise ValueError(f"{name} goes from {low} to {high}; give [low, high]")
        return self


class JointGroupTable(TableModel):
    """Instances that differ in their rows, in their sensitivities and perhaps in their size.

    Each instance of synthetic data takes the next ``data_seed``, each of "wdbc" the next
    ``split_seed``. ``convexity`` chooses Lambda so that every instance has this
    :func:`convexmarket.joint.convexity_ratio`: convex for each eta below 1.
    """

    name: Name
    data: ClassificationData
    instances: Annotated[int, Field(ge=1, le=10_000)] = 1
    sizes: SizesTable | None = None
    spread: Literal["norm", "squared"] = "norm"
    mu: Positive
    sigma: Positive
    gamma: Positive
    cap: Annotated[float, Field(ge=1)] | None = None
    regularization: Positive | None = None
    convexity: Positive | None = None
    methods: (
        Annotated[tuple[Name, ...], Field(strict=False, min_length=1, max_length=50)] | None
    ) = None

    @model_validator(mode="after")
    def _well_defined(self) -> Self:
        if (self.regularization is None) == (self.convexity is None):
            raise ValueError(
                "give either regularization (Lambda) or convexity, the ratio to choose it by"
            )
        if self.sizes is not None and not isinstance(self.data, SyntheticData):
            raise ValueError(f'sizes are those of synthetic data, not of "{self.data.source}"')
        return self


class JointMethodsRunTable(RunTable):
    """How to run; ``time_limit`` is for isolated methods, in seconds.

    ``restarts`` is how many descents start from random models at the best eta found, to see
    whether they end at one point.
    """

    time_limit: Positive = 120.0
    restarts: Annotated[int, Field(ge=2, le=1_000)] = 5


class JointMethodsProblem(ProblemModel):
    """Methods for the joint problem on groups of instances: who finds what, and how fast."""

    kind: Literal["joint-methods"]
    prior: PriorTable
    joint: JointTable = JointTable()
    run: JointMethodsRunTable = JointMethodsRunTable()
    methods: Annotated[
        tuple[JointMethodTable, ...], Field(strict=False, min_length=1, max_length=50)
    ] = _EVERY
    groups: Annotated[
        tuple[JointGroupTable, ...], Field(strict=False, min_length=1, max_length=100)
    ]

    @model_validator(mode="after")
    def _names_are_told_apart(self) -> Self:
        for kind, names in (
            ("methods", [method.name for method in self.methods]),
            ("groups", [group.name for group in self.groups]),
        ):
            twice = [name for name, times in Counter(names).items() if times > 1]
            if twice:
                raise ValueError(f"two {kind} are named {twice[0]!r}; give each its own name")
        known = {method.name for method in self.methods}
        for group in self.groups:
            for name in group.methods or ():
                if name not in known:
                    raise ValueError(
                        f"the group {group.name!r} names the method {name!r}, which is not one of "
                        f"{', '.join(repr(method.name) for method in self.methods)}"
                    )
        return self

    def methods_of(self, group: JointGroupTable) -> tuple[JointMethodTable, ...]:
        """Return the methods that run on a group, in the order of the file."""
        return tuple(
            method
            for method in self.methods
            if group.methods is None or method.name in group.methods
        )
