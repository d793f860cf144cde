"""Files of kind "regression-market": error against payments, for a ridge regression."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from convexmarket.lab.problem.base import (
    Nonnegative,
    Positive,
    Positives,
    PriorTable,
    ProblemModel,
    RunTable,
    Seed,
    Share,
    TableModel,
    low_under_high,
    without_repeats,
)
from convexmarket.lab.problem.limits import COPIES, PER_SELLER
from convexmarket.lab.problem.market import BuyerTable, SellersTable, check_reports
from convexmarket.lab.problem.own import OwnRegression
from convexmarket.lab.problem.purchase import Purchase, limits_of, the_one
from convexmarket.learners import PersonalizedRidge
from convexmarket.privacy import Sensitivity

__all__ = [
    "MedicalData",
    "RegressionMarketProblem",
    "RidgeTable",
    "SyntheticRegressionData",
    "UnitsTable",
]


#: Rows and features of the medical cost data.
MEDICAL_SHAPE = (1338, 9)


class MedicalData(TableModel):
    """Insurance charges of patients, with labels in [0, 1]; the training rows are the sellers."""

    source: Literal["medical"]
    train_fraction: Share = 0.8
    split_seed: Seed = 0

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and features there are."""
        return MEDICAL_SHAPE


class SyntheticRegressionData(TableModel):
    """Uniform rows in [0, 1]^d with labels that are linear in them; the training rows sell."""

    source: Literal["synthetic-regression"]
    n_rows: Annotated[int, Field(ge=2, le=1_000_000)]
    n_features: Annotated[int, Field(ge=1, le=10_000)]
    train_fraction: Share = 0.8
    label_noise: Nonnegative = 0.0
    data_seed: Seed = 0

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows and features there are."""
        return self.n_rows, self.n_features


class RidgeTable(TableModel):
    """The private ridge regression, and what is publicly assumed of the data it is trained on.

    Labels in ``target_range`` are mapped to [-1, 1]; ``max_norm``, ``label_noise``, ``coef_norm``
    and ``smallest_eigenvalue`` are on that scale, and those of Theorem 3.6 of Acharya et al. They
    are declared here, never estimated from rows that are sold. So is ``typical_label``, in the
    units of the labels: what one would predict without a model.
    """

    regularization: Positives
    label_noise: Positive
    coef_norm: Positive
    smallest_eigenvalue: Nonnegative = 0.0
    failure_probability: Share = 0.05
    sensitivity: Sensitivity = "tight"
    max_norm: Positive | None = None
    target_range: Annotated[
        tuple[float, float], Field(strict=False), AfterValidator(low_under_high)
    ] = (-1.0, 1.0)
    typical_label: float | None = None
    draws: Annotated[int, Field(ge=2, le=10_000)] = 200

    @field_validator("regularization")
    @classmethod
    def _different(cls, regularization: tuple[float, ...]) -> tuple[float, ...]:
        return without_repeats(regularization)


class UnitsTable(TableModel):
    """What a report calls things: one unit of the labels is ``per_label`` of ``label``."""

    label: Annotated[str, Field(min_length=1, max_length=50)] = "units of the label"
    per_label: Positive = 1.0
    money: Annotated[str, Field(max_length=50)] = ""


class RegressionMarketProblem(ProblemModel):
    """A market for ridge regression: mu and sigma follow from Theorem 3.6 of Acharya et al."""

    kind: Literal["regression-market"]
    data: Annotated[
        MedicalData | SyntheticRegressionData | OwnRegression, Field(discriminator="source")
    ]
    prior: PriorTable
    sellers: SellersTable = SellersTable()
    objective: BuyerTable
    learner: RidgeTable
    units: UnitsTable = UnitsTable()
    run: RunTable = RunTable()

    def memory(self) -> dict[str, float]:
        """Return how many numbers a run holds at once, by the keys whose product they are."""
        n_rows, n_features = self.data.shape
        markets = len(self.sellers.scenarios) * len(self.objective.gamma)
        return {
            "data.n_rows x data.n_features": COPIES * n_rows * n_features,
            "data.n_features x data.n_features": self.run.workers * COPIES * n_features**2,
            "data.n_features x learner.draws": self.run.workers * n_features * self.learner.draws,
            "data.n_rows x objective.gamma x learner.regularization": (
                PER_SELLER * n_rows * markets * len(self.learner.regularization)
            ),
        }

    def purchase(self) -> Purchase:
        """Return the one purchase that the file asks for: one lambda, mu and sigma of its risk."""
        told, features = self.learner, getattr(self.data, "public_features", None)
        model = PersonalizedRidge(
            the_one("learner.regularization", told.regularization),
            max_norm=told.max_norm,
            sensitivity=told.sensitivity,
            target_range=told.target_range,
            features=features,
        )
        width = self.data.shape[1] if features is None else features.n_features_out_
        mu, sigma = model.risk(
            width, label_noise=told.label_noise, failure_probability=told.failure_probability
        )
        return Purchase(model, mu, sigma, limits_of(self.objective), self.objective.gamma)

    @field_validator("sellers")
    @classmethod
    def _reports_fit(cls, sellers: SellersTable, info: ValidationInfo) -> SellersTable:
        """Check given sensitivities against the prior."""
        check_reports(sellers, info)
        return sellers
