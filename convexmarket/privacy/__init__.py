"""Draw noise, describe guarantees, and account for privacy loss."""

from convexmarket.privacy.accountant import Account, AccountComposition, PrivacyAccountant
from convexmarket.privacy.active import RowAccount, account, reserve
from convexmarket.privacy.guarantee import Guarantee, Profile
from convexmarket.privacy.random_sources import (
    RandomSource,
    Simulation,
    noise_assumption,
    resolve_generator,
)
from convexmarket.privacy.selection import private_selection

__all__ = ["Account", "AccountComposition", "Guarantee", "PrivacyAccountant", "Profile"]
__all__ += ["RandomSource", "RowAccount", "Simulation", "account", "noise_assumption"]
__all__ += ["private_selection", "reserve", "resolve_generator"]
