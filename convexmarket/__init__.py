"""Convex modelling for markets in private data; the public names, nothing else."""

from importlib.metadata import version as _version

from convexmarket import datasets
from convexmarket.allocation import Allocation, SolveRecord, allocate, declare
from convexmarket.audit import (
    IncentiveAudit,
    PaymentIdentity,
    audit_incentives,
    check_payment_identity,
    truthful_payment,
    virtual_cost_payment,
)
from convexmarket.errors import (
    AllocationError,
    ConvexMarketError,
    CurvatureError,
    DataError,
    InfeasibleMarketError,
    NotSupportedError,
    ParameterError,
    PriorError,
    PrivacyLeakWarning,
    ProblemFileError,
    SellersError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.learners import PrivateLogisticRegression, logistic_risk_constants
from convexmarket.market import Market, StandardForm
from convexmarket.payments import payments
from convexmarket.priors import (
    Beta,
    EmpiricalPrior,
    Exponential,
    Gamma,
    LogNormal,
    Power,
    Prior,
    TruncatedNormal,
    Uniform,
    parse_prior,
)
from convexmarket.sellers import Sellers
from convexmarket.terms import (
    Cap,
    Constraint,
    EtaRange,
    Noise,
    Objective,
    Payments,
    Quantities,
    Spread,
    Term,
)

__version__ = _version("convexmarket")

__all__ = [
    "Allocation",
    "AllocationError",
    "Beta",
    "Cap",
    "Constraint",
    "ConvexMarketError",
    "CurvatureError",
    "DataError",
    "EmpiricalPrior",
    "EtaRange",
    "Exponential",
    "Gamma",
    "IncentiveAudit",
    "InfeasibleMarketError",
    "LogNormal",
    "Market",
    "Noise",
    "NotSupportedError",
    "Objective",
    "ParameterError",
    "PaymentIdentity",
    "Payments",
    "Power",
    "Prior",
    "PriorError",
    "PrivacyLeakWarning",
    "PrivateLogisticRegression",
    "ProblemFileError",
    "Quantities",
    "Sellers",
    "SellersError",
    "SolveRecord",
    "SolverError",
    "Spread",
    "StandardForm",
    "Term",
    "TruncatedNormal",
    "UnattainedOptimumError",
    "Uniform",
    "allocate",
    "audit_incentives",
    "check_payment_identity",
    "datasets",
    "declare",
    "logistic_risk_constants",
    "parse_prior",
    "payments",
    "truthful_payment",
    "virtual_cost_payment",
]
