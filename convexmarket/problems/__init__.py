"""Problem files: one TOML file per experiment, one schema, errors that name the key.

A problem file is data, never code. Its ``kind`` says which experiment it describes; each kind is
one model here, and everything else about the file (syntax, overrides, errors, the published
schema) is shared. Every model forbids keys that it does not know, so that a misspelt key is an
error and not a default in disguise.
"""

from convexmarket.problems.base import ProblemSource, RunTable
from convexmarket.problems.classification import (
    ClassificationData,
    ClassificationMarket,
    InlineData,
    SyntheticData,
    TrainingTable,
    WdbcData,
)
from convexmarket.problems.joint_methods import (
    JointGroupTable,
    JointMethodsProblem,
    JointMethodTable,
)
from convexmarket.problems.joint_sweep import JointPoint, JointSweepProblem, JointSweepTable
from convexmarket.problems.joint_tradeoff import JointTradeoffProblem
from convexmarket.problems.loading import (
    KINDS,
    Problem,
    json_schema,
    load_problem,
    parse_problem,
    rows_setting,
)
from convexmarket.problems.market import BuyerTable, SellersTable
from convexmarket.problems.online_market import (
    CsvRows,
    OnlineBuyerTable,
    OnlineData,
    OnlineLearnerTable,
    OnlineMarketProblem,
    PlanTable,
    SimulationTable,
)
from convexmarket.problems.online_study import (
    OnlineStudyProblem,
    StudyBuyerTable,
    StudyClaimTable,
    StudyTable,
)
from convexmarket.problems.regression_market import (
    MedicalData,
    RegressionMarketProblem,
    RidgeTable,
    SyntheticRegressionData,
    UnitsTable,
)
from convexmarket.problems.release_comparison import (
    CirclesData,
    FunctionReleaseTable,
    InteractiveReleaseTable,
    NonInteractiveReleaseTable,
    ObjectivePerturbationTable,
    ReleaseComparisonProblem,
    ReleaseModelTable,
    ReleaseStudyTable,
    ReleaseTable,
    SemiInteractiveReleaseTable,
)
from convexmarket.problems.ridge_comparison import (
    MedicalRows,
    PrivacyTable,
    PublishedTable,
    RidgeComparisonProblem,
    SweepTable,
)
from convexmarket.problems.solver_study import (
    LimitsTable,
    SettingTable,
    SolverStudyProblem,
    SolverStudyTable,
    StudyRunTable,
)
from convexmarket.problems.tradeoff import (
    LearnerTable,
    NaiveTable,
    ObjectiveTable,
    TradeoffProblem,
)
from convexmarket.problems.variants import (
    MarketTable,
    ReportsTable,
    SweptKey,
    VariantsProblem,
    VariantTable,
)

__all__ = [
    "KINDS",
    "BuyerTable",
    "CirclesData",
    "ClassificationData",
    "ClassificationMarket",
    "CsvRows",
    "FunctionReleaseTable",
    "InlineData",
    "InteractiveReleaseTable",
    "JointGroupTable",
    "JointMethodTable",
    "JointMethodsProblem",
    "JointPoint",
    "JointSweepProblem",
    "JointSweepTable",
    "JointTradeoffProblem",
    "LearnerTable",
    "LimitsTable",
    "MarketTable",
    "MedicalData",
    "MedicalRows",
    "NaiveTable",
    "NonInteractiveReleaseTable",
    "ObjectivePerturbationTable",
    "ObjectiveTable",
    "OnlineBuyerTable",
    "OnlineData",
    "OnlineLearnerTable",
    "OnlineMarketProblem",
    "OnlineStudyProblem",
    "PlanTable",
    "PrivacyTable",
    "Problem",
    "ProblemSource",
    "PublishedTable",
    "RegressionMarketProblem",
    "ReleaseComparisonProblem",
    "ReleaseModelTable",
    "ReleaseStudyTable",
    "ReleaseTable",
    "ReportsTable",
    "RidgeComparisonProblem",
    "RidgeTable",
    "RunTable",
    "SellersTable",
    "SemiInteractiveReleaseTable",
    "SettingTable",
    "SimulationTable",
    "SolverStudyProblem",
    "SolverStudyTable",
    "StudyBuyerTable",
    "StudyClaimTable",
    "StudyRunTable",
    "StudyTable",
    "SweepTable",
    "SweptKey",
    "SyntheticData",
    "SyntheticRegressionData",
    "TradeoffProblem",
    "TrainingTable",
    "UnitsTable",
    "VariantTable",
    "VariantsProblem",
    "WdbcData",
    "json_schema",
    "load_problem",
    "parse_problem",
    "rows_setting",
]
