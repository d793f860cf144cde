r"""The damage of sellers who send false rows.

They gain no payment by it: payments depend on reports alone, and precede the rows. But an invented
row loses no privacy, so its sender keeps the :math:`c_i\varepsilon_i` of the payment.

The guarantee of a row bounds its damage. Replacing the row multiplies the probability of any event
by at most :math:`e^{\varepsilon_i}` (delta apart), hence any expected error, and the factors of
several rows multiply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_count, checked_numbers
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.base import unfitted
from convexmarket.privacy import Simulation

__all__ = ["false_rows"]

Floats = NDArray[np.float64]


def false_rows(
    learner: Any,
    X: ArrayLike,
    y: ArrayLike,
    X_public: ArrayLike,
    y_public: ArrayLike,
    *,
    epsilon: ArrayLike,
    liars: Sequence[int] = (1,),
    draws: int = 20,
) -> pd.DataFrame:
    """Measure the damage of false rows by the sellers who granted the most.

    All send the same kind of row: either the true one with the other label, or the longest row
    against the model without noise. Noise is the same with and without them.

    Parameters
    ----------
    learner : Learner
        A linear classifier of the labels -1 and 1, with a ``coef_``.
    X, y : array_like
        The honest rows and their labels. No false row is longer than the longest of them.
    X_public, y_public : array_like
        Rows on which errors are counted.
    epsilon : array_like of shape (n_rows,)
        Granted by each row.
    liars : sequence of int, default (1,)
        Numbers of false rows; a line each.
    draws : int, default 20
        Draws of the noise.

    Returns
    -------
    DataFrame
        ``liars``, their share of the total epsilon, mean errors ``honest``, with ``flipped``
        labels and with rows ``against`` the model, and the ``bound`` that epsilon puts on either.

    Raises
    ------
    ParameterError, DataError
        If there are fewer rows than liars, or rows or labels are not numbers.

    Examples
    --------
    >>> import convexmarket as cm
    >>> data = cm.datasets.wdbc(random_state=0)
    >>> public = data.X_test, data.y_test
    >>> learner = cm.PrivateLogisticRegression(0.1)
    >>> damage = cm.attacks.false_rows(
    ...     learner, data.X_train, data.y_train, *public, epsilon=1.0, liars=[20], draws=2
    ... )
    >>> list(damage.columns)
    ['liars', 'share', 'honest', 'flipped', 'against', 'bound']
    """
    rows, labels = checked_numbers("X", X, DataError), checked_numbers("y", y, DataError)
    granted = np.broadcast_to(checked_numbers("epsilon", epsilon), labels.shape)
    check_count("draws", draws)
    if not all(0 < count <= labels.size for count in liars):
        raise ParameterError(f"liars must be between 1 and {labels.size} rows, got {liars!r}")

    def fit(rows: Floats, labels: Floats, epsilon: ArrayLike, seed: int) -> Any:
        blank: Any = unfitted(learner)
        return blank.fit(rows, labels, epsilon=epsilon, random_state=Simulation(seed))

    def error(rows: Floats, labels: Floats) -> float:
        fits = (fit(rows, labels, granted, draw) for draw in range(draws))
        return float(np.mean([np.mean(model.predict(X_public) != y_public) for model in fits]))

    model = fit(rows, labels, np.inf, 0).coef_
    against = model / np.linalg.norm(model) * np.linalg.norm(rows, axis=1).max()
    honest, order, lines = error(rows, labels), np.argsort(-granted), []
    for count in liars:
        lying = np.isin(np.arange(labels.size), order[:count])
        lines.append(
            {
                "liars": count,
                "share": granted[lying].sum() / granted.sum(),
                "honest": honest,
                "flipped": error(rows, np.where(lying, -labels, labels)),
                "against": error(
                    np.where(lying[:, None], against, rows), np.where(lying, -1.0, labels)
                ),
                "bound": min(1.0, honest * float(np.exp(min(granted[lying].sum(), 700.0)))),
            }
        )
    return pd.DataFrame(lines)
