"""Exceptions and warnings of the package; each message names argument, value and remedy.

All exceptions derive from :class:`ConvexMarketError`; those about a bad value from ``ValueError``
as well.
"""

from __future__ import annotations


# fmt: off
class ConvexMarketError(Exception):
    """Base class of every error raised on purpose by this package."""
class ParameterError(ConvexMarketError, ValueError):
    """An argument has a value that the function cannot take."""
class PriorError(ConvexMarketError, ValueError):
    """A prior has no virtual cost, or a sensitivity lies outside its support."""
class SellersError(ConvexMarketError, ValueError):
    """The list of sellers is empty, inconsistent, or holds values that are not sensitivities."""
class DataError(ConvexMarketError, ValueError):
    """Training data or a data file violates an assumption of the mechanism."""
class DataTypeError(DataError, TypeError):
    """Data hold an entry that is not a real number, such as text or a complex number."""
class CurvatureError(ConvexMarketError, ValueError):
    """A term or constraint is not convex where the problem needs it to be."""
class ProblemFileError(ConvexMarketError, ValueError):
    """A problem file does not follow the schema."""
class NotSupportedError(ConvexMarketError):
    """The request is well formed, but this method does not support it."""
class BudgetExceededError(ConvexMarketError):
    """A release would cost some row more than its owner sold; no result was released."""
class ReleaseChargedError(ConvexMarketError):
    """A ledger has charged a release of this name before; it may have been published."""
class ReleaseExhaustedError(ConvexMarketError):
    """An interactive release has ended; ``answers`` has the answers of the same call."""

    def __init__(self, message: str, answers: tuple[float, ...] = ()) -> None:
        super().__init__(message)
        self.answers = answers
class QueriesExhaustedError(ReleaseExhaustedError):
    """More questions than the release was set up for."""
class UpdatesExhaustedError(ReleaseExhaustedError):
    """The public model was corrected as often as the release was set up for."""
class MarketClosedError(ConvexMarketError):
    """The online market accepts no more sellers: it is full or closed."""
class OfferError(ConvexMarketError, ValueError):
    """A seller is unknown, was quoted at another report, or has given the opposite answer."""
class AllocationError(ConvexMarketError):
    """The buyer's problem has no answer to return."""
class InfeasibleMarketError(AllocationError):
    """The constraints of the market contradict each other."""
class UnattainedOptimumError(AllocationError):
    """The objective has an infimum that no finite, positive amount of privacy attains."""
class SolverError(AllocationError):
    """A numerical solver failed; the message contains its name and its status."""
class LooseCertificateWarning(UserWarning):
    """The gap of an allocation exceeds the requested gap; the bound is valid."""
class PriorFromReportsWarning(UserWarning):
    """A prior is a sample that contains the reports, so a report may affect its own price."""
class PrivacyLeakWarning(UserWarning):
    """A public quantity was computed from private rows, so no guarantee covers it."""
class UselessModelWarning(UserWarning):
    """The noise of a model that was bought exceeds the error of a constant prediction."""
class WeakGuaranteeWarning(UserWarning):
    """A guarantee is above epsilon 10, where the protection is negligible."""
# fmt: on

__all__ = sorted(name for name in dir() if name.endswith(("Error", "Warning")))
