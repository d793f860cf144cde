"""Exceptions and warnings of the package. Messages contain the argument, the value and a remedy.

All exceptions derive from :class:`ConvexMarketError`. Exceptions about invalid values also derive
from ``ValueError``.
"""

from __future__ import annotations


# fmt: off
class ConvexMarketError(Exception):
    """Base class of all errors that this package raises deliberately."""
class ParameterError(ConvexMarketError, ValueError):
    """An argument has an invalid value."""
class PriorError(ConvexMarketError, ValueError):
    """A prior has no virtual cost, or a sensitivity lies outside its support."""
class SellersError(ConvexMarketError, ValueError):
    """The list of sellers is empty, inconsistent, or contains values that are not sensitivities."""
class DataError(ConvexMarketError, ValueError):
    """Training data or a data file violates an assumption of the mechanism."""
class DataTypeError(DataError, TypeError):
    """Data contain an entry that is not a real number, such as text or a complex number."""
class CurvatureError(ConvexMarketError, ValueError):
    """A term or constraint is not convex, but the problem requires convexity."""
class ProblemFileError(ConvexMarketError, ValueError):
    """A problem file does not follow the schema."""
class NotSupportedError(ConvexMarketError):
    """A method does not support a valid request."""
class BudgetExceededError(ConvexMarketError):
    """A release would exceed the epsilon sold by the owner of a row. No result was released."""
class ReleaseChargedError(ConvexMarketError):
    """A ledger has already charged this release, which may have been published."""
class ReleaseExhaustedError(ConvexMarketError):
    """An interactive release has ended. ``answers`` contains the answers of the failed call."""

    def __init__(self, message: str, answers: tuple[float, ...] = ()) -> None:
        super().__init__(message)
        self.answers = answers
class QueriesExhaustedError(ReleaseExhaustedError):
    """The number of questions exceeds the limit of the release."""
class UpdatesExhaustedError(ReleaseExhaustedError):
    """The release has made all permitted updates of its public model."""
class MarketClosedError(ConvexMarketError):
    """The online market does not quote new sellers, because it is full or closed."""
class OfferError(ConvexMarketError, ValueError):
    """A seller is unknown, was quoted at another report, or has given the opposite answer."""
class AllocationError(ConvexMarketError):
    """No allocation can be returned for the buyer's problem."""
class InfeasibleMarketError(AllocationError):
    """The constraints of the market contradict each other."""
class UnattainedOptimumError(AllocationError):
    """The objective has an infimum that no finite, positive amount of privacy attains."""
class SolverError(AllocationError):
    """A numerical solver failed. The message contains the solver's name and status."""
class LooseCertificateWarning(UserWarning):
    """The gap of an allocation exceeds the requested gap, but the lower bound is valid."""
class PriorFromReportsWarning(UserWarning):
    """A prior is a sample that contains the reports, so a report can affect its own price."""
class PrivacyLeakWarning(UserWarning):
    """A public quantity was computed from private rows, so no guarantee covers it."""
class UselessModelWarning(UserWarning):
    """A purchased model predicts no better than a constant."""
class WeakGuaranteeWarning(UserWarning):
    """The epsilon of a guarantee exceeds 10, so the protection is negligible."""
# fmt: on

__all__ = sorted(name for name in dir() if name.endswith(("Error", "Warning")))
