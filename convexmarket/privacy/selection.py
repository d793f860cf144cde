"""Choice among models by their scores on private rows."""

from __future__ import annotations

from collections.abc import Sized
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import check_positives, checked_numbers, is_iterable
from convexmarket.errors import DataError, ParameterError
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.active import admit, names_of
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.noise import RandomSource, noise_assumption, resolve_generator

__all__ = ["private_selection"]


def private_selection(
    scores: ArrayLike,
    X: Any,
    *,
    epsilon: float,
    sensitivity: float,
    accountant: Account | None = None,
    rows: ArrayLike | None = None,
    random_state: RandomSource = None,
) -> int:
    r"""Choose one of several candidates by its score on private rows.

    Candidates are asked in random order; one whose score is d below the best is taken with
    probability :math:`e^{-\epsilon d/(2\Delta)}`, drawn exactly. On average it loses no
    more than the exponential mechanism, and down to half of that. It costs every row epsilon, and
    the candidates themselves have to be private: each fit is charged too.

    Parameters
    ----------
    scores : array_like of shape (n_candidates,)
        The larger, the better. Finite.
    X : DataFrame or array_like of shape (n_rows, ...)
        The rows that were scored, of which nothing is read but their number and index.
    epsilon : float
        Of the choice, for each of these rows. Positive, in nats.
    sensitivity : float
        By how much a score may move where one row is replaced; of a share of right answers
        ``1 / len(X)``. Positive, public.
    accountant, rows
        As for a fit: what is charged, by default the accounts that are open.
    random_state : None, Simulation or another source, optional
        Of the choice.

    Returns
    -------
    int
        Position of the candidate.

    Raises
    ------
    ParameterError
        If a score or an argument is out of its range.
    DataError
        If there are no rows.
    BudgetExceededError
        If a row cannot pay; nothing is chosen then.

    References
    ----------
    McKenna and Sheldon, Permute-and-Flip: A new mechanism for differentially private selection;
    Canonne, Kamath and Steinke, The Discrete Gaussian for Differential Privacy, Algorithm 1.

    Examples
    --------
    >>> rows = np.zeros((200, 3))
    >>> private_selection([0.70, 0.95, 0.60], rows, epsilon=1.0, sensitivity=1 / 200)
    1
    """
    values = checked_numbers("scores", scores)
    if values.ndim != 1 or not values.size or not np.all(np.isfinite(values)):
        raise ParameterError(f"scores must be a nonempty list of finite numbers, got {scores!r}")
    check_positives(epsilon=epsilon, sensitivity=sensitivity)
    n_rows = len(X) if is_iterable(X) and isinstance(X, Sized) else 0
    if n_rows == 0:
        raise DataError("X has no rows; give the rows that were scored")
    guarantee = Guarantee(
        np.full(n_rows, float(epsilon)),
        0.0,
        f"a choice among {values.size} candidates by their scores",
        "permute and flip",
        (
            noise_assumption(random_state),
            f"one row moves a score by at most {sensitivity:g}, whatever the candidate",
            "the candidates depend on these rows in no other way than their own guarantees say",
        ),
    )
    charge = admit(guarantee, accountant, rows, names=names_of(X), random_state=random_state)
    rng = resolve_generator(random_state)
    charge()
    exact = [Fraction(value) for value in values.tolist()]
    per_unit = Fraction(float(epsilon)) / (2 * Fraction(float(sensitivity)))
    best = max(exact)
    for candidate in rng.permutation(values.size).tolist():
        if _survives((best - exact[candidate]) * per_unit, rng):
            return int(candidate)
    raise AssertionError("the best candidate is always taken")


def _survives(rate: Fraction, rng: np.random.Generator) -> bool:
    """Return True with probability ``exp(-rate)``, exactly."""
    whole, part = divmod(rate, 1)
    for _ in range(whole):
        if not _survives_at_most_one(Fraction(1), rng):
            return False
    return _survives_at_most_one(part, rng)


def _survives_at_most_one(rate: Fraction, rng: np.random.Generator) -> bool:
    """Go on with chance rate / k in round k: the last round is odd with chance exp(-rate)."""
    round_ = 1
    while _below(rate.denominator * round_, rng) < rate.numerator:
        round_ += 1
    return round_ % 2 == 1


def _below(limit: int, rng: np.random.Generator) -> int:
    """Draw a whole number from zero to below a limit of any size, all alike."""
    bits = limit.bit_length()
    while True:
        drawn = int.from_bytes(rng.bytes((bits + 7) // 8)) >> (-bits % 8)
        if drawn < limit:
            return drawn
