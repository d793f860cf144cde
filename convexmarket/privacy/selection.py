"""Choose a model privately by its score on private rows."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import check_positives, checked_numbers
from convexmarket.errors import DataError, ParameterError
from convexmarket.privacy import lattice
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.active import reserve
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.random_sources import RandomSource, noise_assumption, resolve_generator

__all__ = ["private_selection"]

FINEST = 2.0**-30  # rounding step of the scores, in units of the sensitivity


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
    r"""Choose a candidate by its score on private rows, and return the candidate's position.

    Candidates are visited in random order. A candidate with a score d below the best is accepted
    with probability :math:`e^{-\epsilon d/(2\Delta)}` (McKenna and Sheldon, Permute-and-Flip). The
    candidates must be fitted privately, and their fits are charged separately.

    Parameters
    ----------
    scores : array_like of shape (n_candidates,)
        Finite scores. Candidates with larger scores are preferred.
    X : array_like of shape (n_rows, ...)
        The private rows, of which only the number and the index are read.
    epsilon : float
        Positive epsilon of the choice for each row, in nats.
    sensitivity : float
        Public bound on the change of a score when one row is replaced; ``1 / len(X)`` for accuracy.
    accountant, rows, random_state
        As in ``fit`` of a learner.

    Returns
    -------
    int

    Raises
    ------
    ParameterError
        If an argument is out of range.
    DataError
        If X is empty.
    BudgetExceededError
        If the choice would exceed the budget of a row. In this case, no candidate is chosen.

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
    n_rows = len(X) if isinstance(X, Sized) else 0
    if n_rows == 0:
        raise DataError("X has no rows; pass the rows that determine the scores")
    assumptions = (
        noise_assumption(random_state),
        f"one row changes the score of any candidate by at most {sensitivity:g}",
        "guarantees of the candidates cover their dependence on these rows",
    )
    name = f"a choice among {values.size} candidates by their scores (permute and flip)"
    guarantee = Guarantee.pure(np.full(n_rows, float(epsilon)), name, assumptions)
    charge = reserve(guarantee, accountant, rows, names=X, random_state=random_state)
    step = lattice.lattice_step(sensitivity * FINEST)
    whole = lattice.whole_steps(values, step, np.inf)
    moves = 2.0 * lattice.lattice_moves([sensitivity], step, 1)  # both compared scores can change
    scale = lattice.lattice_scale(moves, epsilon)
    rng = resolve_generator(random_state)
    charge()
    order = rng.permutation(values.size)
    accepted = lattice.accept_exponential((whole.max() - whole)[order], scale, rng)
    return int(order[np.argmax(accepted)])  # the best candidate is always accepted
