"""What a learner is to a market: its risk, its fit, its guarantee."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Protocol, Self

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from convexmarket.privacy.accountant import Account
from convexmarket.privacy.guarantee import Guarantee

__all__ = ["Learner", "unfitted"]


class Learner(Protocol):
    """A model that is trained under what each row granted, and says what it keeps of it.

    Any class that has these three is a learner, a user's own included; nothing has to be
    inherited. docs/howto/learners.md has one whole. :func:`~convexmarket.audit_privacy` attacks it.

    Attributes
    ----------
    guarantee_ : Guarantee
        After ``fit``: one epsilon for each row that was passed, at most what it granted, and zero
        where it granted nothing.
    """

    guarantee_: Guarantee

    def risk(self, n_features: int) -> tuple[float, float]:
        """Return (mu, sigma): the learner's excess risk is ``mu * ||a|| + sigma / eta``.

        With them it enters a market: ``mu * Spread() + sigma * Noise() + gamma * Payments()``.

        Parameters
        ----------
        n_features : int

        Returns
        -------
        mu, sigma : float
            How the spread of the weights a and the noise of a total eta hurt it, from public
            quantities alone.
        """
        ...

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        epsilon: ArrayLike,
        rows: ArrayLike | None = None,
        accountant: Account | None = None,
    ) -> Self:
        """Release a model of the rows, each under what it granted.

        Parameters
        ----------
        X, y : array_like
            Private rows and their labels.
        epsilon : array_like of shape (n_rows,), or float
            What each row granted, in nats. A row that granted 0 is not used: it is dropped before
            anything looks at it.
        rows : array_like of int, optional
            Positions of the rows in the account; all of its rows by default.
        accountant : Account, optional
            Asked before a row is looked at, and charged with the guarantee before noise is drawn.
        """
        ...


def unfitted(learner: Learner) -> Learner:
    """Return a learner of the same parameters that has seen no rows."""
    return clone(learner) if isinstance(learner, BaseEstimator) else deepcopy(learner)
