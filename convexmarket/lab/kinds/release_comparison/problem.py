"""Files of kind "release-comparison": ways to release predictions, side by side.

The file names rows and one kernel model, and lists releases of its predictions. All of them see the
same fitted models and the same questions, the test rows. What each loses against the model without
noise is measured over the number of rows and epsilon, and set beside what theory promises.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from convexmarket.lab.problem.base import (
    Nonnegative,
    Positive,
    Positives,
    ProblemModel,
    RunTable,
    Share,
    TableModel,
)
from convexmarket.lab.problem.classification import WdbcData
from convexmarket.lab.problem.completing import refusal
from convexmarket.lab.problem.rows import load_rows
from convexmarket.learners import KernelERM
from convexmarket.privacy import Accounting
from convexmarket.privacy.composition import Composition
from convexmarket.release.scales import NoiseKind

__all__ = [
    "CirclesData",
    "FunctionReleaseTable",
    "InteractiveReleaseTable",
    "NonInteractiveReleaseTable",
    "ObjectivePerturbationTable",
    "ReleaseComparisonProblem",
    "ReleaseModelTable",
    "ReleaseStudyTable",
    "ReleaseTable",
    "SemiInteractiveReleaseTable",
]

#: Numbers for every row of a kernel model: its kernels at the points that stand for all rows. How
#: many points that takes shows as they are chosen; 900 were measured for 200,000 rows.

Count = Annotated[int, Field(ge=1, le=10_000_000)]
Points = Annotated[int, Field(ge=1, le=5_000)]
Sizes = Annotated[tuple[Count, ...], Field(strict=False, min_length=1, max_length=30)]


def _increasing(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("the values do not increase; list them in order, each once")
    return values


class CirclesData(TableModel):
    """Two noisy circles, one inside the other, in the unit ball; every fit draws its own rows."""

    source: Literal["circles"]
    noise: Nonnegative = 0.15
    factor: Annotated[float, Field(ge=0, lt=1)] = 0.4
    n_test: Points = 500


#: Where the rows come from: ``source`` says.
ReleaseData: TypeAlias = Annotated[CirclesData | WdbcData, Field(discriminator="source")]


class ReleaseModelTable(TableModel):
    """The kernel model whose predictions are released; see :class:`convexmarket.KernelERM`."""

    loss: Literal["logistic", "hinge"] = "logistic"
    kernel: Literal["linear", "poly", "rbf", "laplacian", "cosine"] = "rbf"
    regularization: Positive
    gamma: Positive | None = None
    degree: Annotated[int, Field(ge=1, le=20)] = 3
    coef0: Nonnegative = 1.0
    data_norm: Positive = 1.0
    tol: Positive = 0.01

    def learner(self) -> KernelERM:
        """Return the model, not fitted."""
        return KernelERM(**self.model_dump())


class ReleaseStudyTable(TableModel):
    """How many rows and how much epsilon there are, and when a release counts as useful.

    Of every size so many data sets are drawn and fitted, and every release is drawn so often from
    each. In theory a release is useful where no prediction is further off than ``useful_error``
    (of "interactive" and "function" no answer to a test row, of "semi-interactive" on average);
    when measured, where it loses at most ``useful_loss`` of the accuracy of the model without
    noise.
    """

    sizes: Annotated[Sizes, AfterValidator(_increasing)]
    epsilons: Annotated[Positives, AfterValidator(_increasing)]
    delta: Share = 1e-6
    failure_probability: Share = 0.05
    fits: Annotated[int, Field(ge=1, le=1_000)] = 3
    draws: Annotated[int, Field(ge=1, le=1_000)] = 5
    useful_error: Positive = 0.3
    useful_loss: Annotated[float, Field(ge=0, lt=1)] = 0.02


class _ReleaseTable(TableModel):
    """A release and what the report calls it."""

    label: Annotated[str, Field(min_length=1, max_length=60)]


class InteractiveReleaseTable(_ReleaseTable):
    """One question after another (K, Algorithm 1).

    ``threshold`` is in multiples of the scale of the noise; theory's where it is left out.
    """

    kind: Literal["interactive"]
    max_updates: Count
    accounting: Composition = "tight"
    threshold: Nonnegative | None = None


class SemiInteractiveReleaseTable(_ReleaseTable):
    """Predictions at public points, and a fit to them (K, Algorithm 2).

    ``n_points`` public rows: of "circles" drawn for the purpose; of "wdbc" validation rows, all of
    them where it is left out.
    """

    kind: Literal["semi-interactive"]
    noise: NoiseKind = "process"
    accounting: Composition = "tight"
    n_points: Points | None = None

    @model_validator(mode="after")
    def _of_one_answer(self) -> Self:
        if self.noise == "process" and self.accounting == "paper":
            raise ValueError(
                'noise = "process" is one answer, which needs no composition; leave out '
                'accounting, or give noise = "laplace"'
            )
        return self


class NonInteractiveReleaseTable(_ReleaseTable):
    """Rounds of selection and measurement on a net of the ball (K, Algorithm 3)."""

    kind: Literal["non-interactive"]
    rounds: Annotated[int, Field(ge=1, le=10_000)]
    accounting: Composition = "tight"
    net_radius: Positive | None = None
    max_net: Count = 1_000_000


class FunctionReleaseTable(_ReleaseTable):
    """The whole function with a Gaussian process added."""

    kind: Literal["function"]


class ObjectivePerturbationTable(_ReleaseTable):
    """A linear model by objective perturbation, all weights equal: delta is zero.

    See :class:`convexmarket.PrivateLogisticRegression`; totals are at most epsilon.
    """

    kind: Literal["objective-perturbation"]
    regularization: Positive
    accounting: Accounting = "sharp"


#: What is released: ``kind`` says.
ReleaseTable: TypeAlias = Annotated[
    InteractiveReleaseTable
    | SemiInteractiveReleaseTable
    | NonInteractiveReleaseTable
    | FunctionReleaseTable
    | ObjectivePerturbationTable,
    Field(discriminator="kind"),
]


class ReleaseComparisonProblem(ProblemModel):
    """Releases of a kernel model's predictions, over how many rows and how much epsilon there is.

    Every release holds what it says for every row: epsilon, and the delta of the study.
    """

    kind: Literal["release-comparison"]
    data: ReleaseData
    model: ReleaseModelTable
    study: ReleaseStudyTable
    releases: Annotated[tuple[ReleaseTable, ...], Field(strict=False, min_length=1, max_length=40)]
    run: RunTable = RunTable()

    @field_validator("model")
    @classmethod
    def _holds_the_rows(cls, model: ReleaseModelTable, info: ValidationInfo) -> ReleaseModelTable:
        data = info.data.get("data")
        longest = data.data_norm if isinstance(data, WdbcData) else 1.0
        if data is not None and model.data_norm < longest:
            raise refusal(
                ("data_norm",),
                model.data_norm,
                f"rows have norms up to {longest:g}, and the public domain must hold them all; "
                f"give {longest:g} or more",
            )
        return model

    @field_validator("study")
    @classmethod
    def _enough_rows(cls, study: ReleaseStudyTable, info: ValidationInfo) -> ReleaseStudyTable:
        data = info.data.get("data")
        if not isinstance(data, WdbcData):
            return study
        n_rows = load_rows(data).y_train.size
        if study.sizes[-1] > n_rows:
            raise refusal(
                ("sizes",),
                study.sizes,
                f"{study.sizes[-1]} rows are asked for and there are {n_rows} training rows; "
                f"give sizes of at most {n_rows}",
            )
        return study

    @field_validator("releases")
    @classmethod
    def _told_apart(cls, releases: tuple[ReleaseTable, ...]) -> tuple[ReleaseTable, ...]:
        labels = [release.label for release in releases]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"label {label!r} is given to two of them; give each its own")
        return releases

    @field_validator("releases")
    @classmethod
    def _enough_points(
        cls, releases: tuple[ReleaseTable, ...], info: ValidationInfo
    ) -> tuple[ReleaseTable, ...]:
        data = info.data.get("data")
        for release in releases:
            if data is not None and isinstance(release, SemiInteractiveReleaseTable):
                _check_points(data, release)
        return releases


def _check_points(data: CirclesData | WdbcData, release: SemiInteractiveReleaseTable) -> None:
    """Refuse more public points than there are, and no number where there is no end of them."""
    if isinstance(data, CirclesData):
        if release.n_points is None:
            raise ValueError(
                f"n_points of {release.label!r} is missing, and circles have as many public points"
                " as wanted; say how many"
            )
        return
    there_are = load_rows(data).y_validation.size
    if release.n_points is not None and release.n_points > there_are:
        raise ValueError(
            f"n_points of {release.label!r} is {release.n_points}, and the public points are the"
            f" {there_are} validation rows; give {there_are} or fewer, or leave it out for all"
        )
