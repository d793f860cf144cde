"""Files of kind "ridge-comparison": private ridge regressions side by side."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from convexmarket.lab.problem.base import (
    Nonnegative,
    Positive,
    Positives,
    ProblemModel,
    RunTable,
    Share,
    TableModel,
    without_repeats,
)
from convexmarket.privacy import Sensitivity

__all__ = [
    "ComparisonTable",
    "MedicalRows",
    "PrivacyTable",
    "PublishedTable",
    "RidgeComparisonProblem",
    "SweepTable",
    "SyntheticRows",
]


class MedicalRows(TableModel):
    """The medical cost data; every draw splits the rows anew."""

    source: Literal["medical"]
    train_fraction: Share = 0.8
    ranges: Literal["public", "data"] = "public"


class SyntheticRows(TableModel):
    """Uniform rows with a linear label; every draw makes them anew."""

    source: Literal["synthetic-regression"]
    n_rows: Annotated[int, Field(ge=2, le=100_000)] = 100
    n_features: Annotated[int, Field(ge=1, le=1_000)] = 30
    train_fraction: Share = 0.8
    label_noise: Nonnegative = 0.0


class PrivacyTable(TableModel):
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
                "f_conservative + f_medium must be at most 1, got "
                f"{self.f_conservative + self.f_medium:g}"
            )
        return self

    def draw(self, n_rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw what every row asks for, shape (n_rows,).

        The same uniform numbers whatever the levels.
        """
        order, uniform = rng.permutation(n_rows), rng.random(n_rows)
        conservative = round(self.f_conservative * n_rows)
        medium = min(round(self.f_medium * n_rows), n_rows - conservative)
        low = np.full(n_rows, self.eps_liberal)
        high = low.copy()
        low[:conservative], high[:conservative] = self.eps_conservative, self.eps_medium
        middle = slice(conservative, conservative + medium)
        low[middle], high[middle] = self.eps_medium, self.eps_liberal
        return np.asarray((low + uniform * (high - low))[order])


class ComparisonTable(TableModel):
    """How the compared regressions are trained, and what is publicly assumed for their bound."""

    regularization: Positive
    sensitivity: Sensitivity = "paper"
    label_noise: Nonnegative = 0.0
    coef_norm: Positive = 1.0
    smallest_eigenvalue: Nonnegative = 0.0
    failure_probability: Share = 0.05
    #: Ways to perturb other than the output, under the same guarantees, whose losses are simulated.
    perturbations: Annotated[
        tuple[Literal["objective", "huber", "statistics"], ...],
        Field(strict=False, max_length=3),
    ] = ()


class PublishedTable(TableModel):
    """Figures to compare with: a CSV file next to the problem file, and what it holds."""

    file: Annotated[str, Field(min_length=1, max_length=200)]
    statistic: Literal["mean", "std"] = "mean"


class SweepTable(TableModel):
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
    published: Annotated[tuple[PublishedTable, ...], Field(strict=False, max_length=50)] = ()

    @field_validator("values")
    @classmethod
    def _different(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        return without_repeats(values)


class DrawsTable(RunTable):
    """How to run: besides, how many draws of the data and the levels, and of each sample."""

    draws: Annotated[int, Field(ge=1, le=1_000)] = 25
    samples: Annotated[int, Field(ge=2, le=1_000)] = 50


class RidgeComparisonProblem(ProblemModel):
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
