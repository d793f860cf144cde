# fmt: off
# ruff: noqa: I001
from . import (
    allocation as allocation, attacks as attacks, errors as errors, incentives as incentives,
    joint as joint, learners as learners, online as online, priors as priors, privacy as privacy,
    release as release, terms as terms,
)
from .allocation import (
    Allocation as Allocation, allocate as allocate, allocate_together as allocate_together,
    declare as declare,
)
from .attacks import audit_privacy as audit_privacy
from .data import PublicFeatures as PublicFeatures, datasets as datasets
from .deal import Deal as Deal, buy as buy, price as price
from .errors import ConvexMarketError as ConvexMarketError, PrivacyLeakWarning as PrivacyLeakWarning
from .incentives import (
    audit_incentives as audit_incentives, calibrate_gamma as calibrate_gamma, payments as payments,
)
from .joint import JointMarket as JointMarket, allocate_jointly as allocate_jointly
from .learners import (
    KernelERM as KernelERM, PersonalizedRidge as PersonalizedRidge,
    PrivateLogisticRegression as PrivateLogisticRegression, load_model as load_model,
    save_model as save_model,
)
from .ledger import Ledger as Ledger
from .market import Market as Market
from .online import (
    OnlineMarket as OnlineMarket, OnlinePolicy as OnlinePolicy, run_online as run_online,
)
from .priors import (
    Beta as Beta, EmpiricalPrior as EmpiricalPrior, Prior as Prior, Uniform as Uniform,
)
from .privacy import Guarantee as Guarantee, PrivacyAccountant as PrivacyAccountant
from .release import InteractiveRelease as InteractiveRelease, TestSetRelease as TestSetRelease
from .report import Report as Report
from .sellers import Sellers as Sellers
from .studies import Runs as Runs, Study as Study, compare_solvers as compare_solvers
from .terms import (
    Budget as Budget, Cap as Cap, EtaRange as EtaRange, GroupShare as GroupShare, Losses as Losses,
    MaxEpsilon as MaxEpsilon, Noise as Noise, Payments as Payments, PowerCost as PowerCost,
    Spread as Spread, Term as Term,
)

__version__: str
