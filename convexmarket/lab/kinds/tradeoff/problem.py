"""Files of kind "tradeoff": error against payments, for the learner that the file names."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

import convexmarket.learners as shipped
from convexmarket.errors import ParameterError
from convexmarket.lab.problem.base import (
    EtaRange,
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
from convexmarket.lab.problem.classification import ClassificationMarket, TrainingTable
from convexmarket.lab.problem.limits import (
    LONGEST_KEY,
    LONGEST_TEXT,
    MOST_KEYS,
)
from convexmarket.lab.problem.market import BuyerTable, SellersTable, check_reports
from convexmarket.lab.problem.own import OwnRegression
from convexmarket.lab.problem.purchase import Purchase, limits_of, the_one
from convexmarket.lab.problem.risk import WithRisk
from convexmarket.learners import PersonalizedRidge
from convexmarket.privacy import Accounting, Sensitivity
from convexmarket.studies.plugins import load_plugin

__all__ = [
    "ClassificationTradeoff",
    "LearnerTable",
    "MedicalData",
    "NaiveTable",
    "ObjectiveTable",
    "RegressionTradeoff",
    "RidgeTable",
    "SyntheticRegressionData",
    "TradeoffProblem",
    "UnitsTable",
]


#: The learner of a file that names none.
LOGISTIC = "PrivateLogisticRegression"

LearnerName = Annotated[str, Field(min_length=1, max_length=LONGEST_KEY)]
Option = bool | float | Annotated[str, Field(max_length=LONGEST_TEXT)]


class ObjectiveTable(BuyerTable, WithRisk):
    """The buyer's objective: the gammas to report, candidates for mu and sigma, constraints."""

    mu: Positives
    sigma: Positives


class LearnerTable(TrainingTable):
    """A learner of classes: candidates for Lambda, noise draws, accounting.

    ``name`` is that of a class of :mod:`convexmarket.learners`, and ``options`` what its
    constructor takes besides ``regularization``. On the command line, where files name no code, it
    may be ``"module:Class"`` of a learner of the user's own.
    """

    name: LearnerName = LOGISTIC
    options: Annotated[dict[LearnerName, Option], Field(max_length=MOST_KEYS)] = Field(
        default_factory=dict
    )
    accounting: Accounting = "sharp"
    calibration: Literal["total", "noise"] = "total"
    tuning: Literal["free", "charged"] = "free"

    @model_validator(mode="after")
    def _charge_what_is_kept(self) -> Self:
        if self.tuning == "charged" and self.calibration == "noise":
            raise ValueError(
                "tuning must be 'free' with calibration = 'noise', got 'charged': a search keeps "
                "what was sold; take calibration = 'total'"
            )
        ours = {"accounting", "calibration", "tuning"} & self.model_fields_set
        if self.name != LOGISTIC and ours:
            raise ValueError(
                f"{', '.join(sorted(ours))} is for {LOGISTIC}; leave it out with {self.name!r}, "
                "and tell that what its constructor takes by options"
            )
        return self


class NaiveTable(TableModel):
    """The naive model, mu = sigma = 0: the range of eta that makes it well posed, and its grid."""

    eta_range: EtaRange
    grid: Annotated[int, Field(ge=1, le=1_000)] = 8


class ClassificationTradeoff(ClassificationMarket):
    """A learner of classes: Algorithm 2 of A on a data set."""

    kind: Literal["tradeoff"]
    objective: ObjectiveTable
    learner: LearnerTable
    naive: NaiveTable
    run: RunTable = RunTable()

    @field_validator("learner")
    @classmethod
    def _risk_is_its_own(cls, learner: LearnerTable, info: ValidationInfo) -> LearnerTable:
        if learner.name != LOGISTIC and getattr(info.data.get("objective"), "risk", None):
            raise ValueError(
                f"objective.risk is the bound of {LOGISTIC}; give mu and sigma, which are what "
                f"the method risk of {learner.name!r} returns"
            )
        return learner

    def learner_of(self, regularization: float, **arguments: Any) -> Any:
        """Return the learner for one regularisation, told what its constructor has a name for."""
        told, made = self.learner, class_named(self.learner.name)
        known = signature(made).parameters
        public: dict[str, Any] = {
            "data_norm": self.data.data_norm,
            "cap": self.objective.cap,
            "tol": 1e-9,
        }
        public |= arguments
        if told.name == LOGISTIC:
            public |= {"accounting": told.accounting, "calibration": told.calibration}
        public = {name: value for name, value in public.items() if name in known}
        try:
            return made(regularization=regularization, **(public | told.options))
        except TypeError as error:
            raise ParameterError(
                f"learner.name is {told.name!r}, which cannot be made: {error}; it has to take"
                " regularization and all of learner.options"
            ) from None

    def purchase(self) -> Purchase:
        """Return the one purchase that the file asks for: one mu, sigma and Lambda."""
        model = self.learner_of(
            the_one("learner.regularization", self.learner.regularization),
            features=getattr(self.data, "public_features", None),
            classes=getattr(self.data, "classes", None),
        )
        mu = the_one("objective.mu", self.objective.mu)
        sigma = the_one("objective.sigma", self.objective.sigma)
        return Purchase(model, mu, sigma, limits_of(self.objective), self.objective.gamma)


def class_named(name: str) -> Any:
    """Return the learner that a file names.

    Raises
    ------
    ParameterError
        If there is no such class, or its module cannot be imported.
    """
    of = "a class with fit and risk"
    found = load_plugin(name, "learner", of) if ":" in name else vars(shipped).get(name)
    if not (isinstance(found, type) and hasattr(found, "fit") and hasattr(found, "risk")):
        raise ParameterError(
            f"learner.name is {name!r}, which is no learner; give a class of convexmarket.learners,"
            f' or on the command line "module:Class" of {of}'
        )
    return found


class MedicalData(TableModel):
    """Insurance charges of patients, with labels in [0, 1]; the training rows are the sellers."""

    source: Literal["medical"]
    train_fraction: Share = 0.8
    split_seed: Seed = 0

    @property
    def n_features(self) -> int:
        """How many features there are."""
        return 9


class SyntheticRegressionData(TableModel):
    """Uniform rows in [0, 1]^d with labels that are linear in them; the training rows sell."""

    source: Literal["synthetic-regression"]
    n_rows: Annotated[int, Field(ge=2, le=1_000_000)]
    n_features: Annotated[int, Field(ge=1, le=10_000)]
    train_fraction: Share = 0.8
    label_noise: Nonnegative = 0.0
    data_seed: Seed = 0


class RidgeTable(TableModel):
    """The private ridge regression, and what is publicly assumed of the data it is trained on.

    Labels in ``target_range`` are mapped to [-1, 1]; ``max_norm``, ``label_noise``, ``coef_norm``
    and ``smallest_eigenvalue`` are on that scale, and those of Theorem 3.6 of Acharya et al. They
    are declared here, never estimated from rows that are sold. So is ``typical_label``, in the
    units of the labels: what one would predict without a model.
    """

    name: Literal["PersonalizedRidge"]
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


class RegressionTradeoff(ProblemModel):
    """A learner of numbers: mu and sigma follow from Theorem 3.6 of Acharya et al."""

    kind: Literal["tradeoff"]
    data: Annotated[
        MedicalData | SyntheticRegressionData | OwnRegression, Field(discriminator="source")
    ]
    prior: PriorTable
    sellers: SellersTable = SellersTable()
    objective: BuyerTable
    learner: RidgeTable
    units: UnitsTable = UnitsTable()
    run: RunTable = RunTable()

    def learner_of(self, regularization: float, **arguments: Any) -> PersonalizedRidge:
        """Return the learner for one regularisation."""
        told = self.learner
        return PersonalizedRidge(
            regularization,
            perturbation="output",
            fit_intercept=False,
            max_norm=told.max_norm,
            sensitivity=told.sensitivity,
            target_range=told.target_range,
            **arguments,
        )

    def risk(self, learner: PersonalizedRidge, n_features: int) -> tuple[float, float]:
        """Return mu and sigma: how spread and noise hurt the learner."""
        told = self.learner
        return learner.risk(
            n_features, label_noise=told.label_noise, failure_probability=told.failure_probability
        )

    def purchase(self) -> Purchase:
        """Return the one purchase that the file asks for: one lambda, mu and sigma of its risk."""
        value, data = the_one("learner.regularization", self.learner.regularization), self.data
        features = data.public_features if isinstance(data, OwnRegression) else None
        width = (
            data.n_features
            if not isinstance(data, OwnRegression)
            else (data.public_features.n_features_out_)
        )
        limits = limits_of(self.objective)
        model = self.learner_of(value, features=features)
        return Purchase(model, *self.risk(model, width), limits, self.objective.gamma)

    @field_validator("sellers")
    @classmethod
    def _reports_fit(cls, sellers: SellersTable, info: ValidationInfo) -> SellersTable:
        """Check given sensitivities against the prior."""
        check_reports(sellers, info)
        return sellers


def _learns(file: Any) -> str:
    """Return what the learner of a file learns; without a name it is the logistic regression."""
    learner = file.get("learner") if isinstance(file, Mapping) else file.learner
    name = learner.get("name") if isinstance(learner, Mapping) else getattr(learner, "name", None)
    return "RegressionTradeoff" if name == "PersonalizedRidge" else "ClassificationTradeoff"


#: Its learner says which.
TradeoffProblem: TypeAlias = Annotated[
    Annotated[ClassificationTradeoff, Tag("ClassificationTradeoff")]
    | Annotated[RegressionTradeoff, Tag("RegressionTradeoff")],
    Discriminator(_learns),
]
