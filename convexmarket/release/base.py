"""What all releases share: a fitted model, a scale of noise, and the guarantee that follows."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.privacy import Guarantee, PrivacyAccountant, RandomSource
from convexmarket.privacy.composition import Composition, check_delta
from convexmarket.release.predictor import PublicPredictor

__all__ = [
    "assumptions_of",
    "charge",
    "check_fitted",
    "check_terms",
    "classes_of",
    "empty_predictor",
]

Floats = NDArray[np.float64]


def charge(
    guarantee: Guarantee, accountant: PrivacyAccountant | None, rows: ArrayLike | None
) -> Guarantee:
    """Charge a release in full, before any noise is drawn, and return its guarantee.

    Raises
    ------
    BudgetExceededError
        If a row cannot pay; nothing is charged then.
    ParameterError
        If the rows are not those of the accountant.
    """
    if accountant is not None:
        accountant.charge(guarantee, rows)
    elif rows is not None:
        raise ParameterError("rows are positions in an accountant: pass accountant= as well.")
    return guarantee


def check_fitted(erm: KernelERM) -> KernelERM:
    """Return a fitted model.

    Raises
    ------
    DataError
        If it is not fitted.
    """
    try:
        check_is_fitted(erm)
    except (NotFittedError, TypeError) as error:
        raise DataError("erm is not fitted: call erm.fit(X, y) first.") from error
    return erm


def check_terms(
    erm: KernelERM, epsilon: ArrayLike, delta: float, accounting: str, why_delta: str
) -> Floats:
    """Return what each row may lose, shape (n_rows,); one number holds for all rows.

    Parameters
    ----------
    why_delta : str
        What needs a positive delta; empty where zero will do.

    Raises
    ------
    ParameterError
        If an argument is out of its range.
    """
    n_rows = erm.row_sensitivities_.size
    try:
        sold = np.broadcast_to(np.asarray(epsilon, dtype=np.float64), n_rows)
    except ValueError as error:
        raise ParameterError(
            f"epsilon has shape {np.shape(epsilon)}: pass one number, or one per row ({n_rows})."
        ) from error
    if not np.all(sold >= 0) or not np.all(np.isfinite(sold)):
        raise ParameterError("epsilon must be nonnegative and finite.")
    unsold = np.count_nonzero((sold == 0) & (erm.row_sensitivities_ > 0))
    if unsold:
        raise ParameterError(
            f"{unsold} rows have epsilon 0 but a positive weight: no noise hides them. Fit with"
            " weights that are zero there."
        )
    check_delta(delta, positive=bool(why_delta), why=why_delta)
    if accounting not in get_args(Composition):
        raise ParameterError(
            f"accounting must be one of {get_args(Composition)}, not {accounting!r}."
        )
    return sold


def assumptions_of(erm: KernelERM, random_state: RandomSource, *others: str) -> tuple[str, ...]:
    """Return what every release of a model's predictions rests on."""
    kernel = erm.kernel_
    domain = f"features of private and of queried rows have norm at most {kernel.feature_bound:g}"
    if kernel.data_norm is not None:
        domain += f", rows have norm at most {kernel.data_norm:g}"
    assumptions = [f"{domain}: a public domain"]
    if erm.classes is None and hasattr(erm, "classes_"):
        assumptions.append("VIOLATED: the label set was inferred from the private labels")
    elif hasattr(erm, "classes_"):
        assumptions.append(f"the label set {tuple(erm.classes_.tolist())} is public")
    noise = "the noise comes from a fresh seed of the operating system, and is never published"
    if random_state is not None:
        noise = "the random_state that was passed stays secret and is used for no other release"
    return (
        *assumptions,
        "weights, kernel, regularization and everything else that was chosen does not depend on"
        " the private rows",
        f"predictions are within {erm.tolerance:g} sensitivities of the exact minimiser's, which"
        " the noise covers",
        *others,
        noise,
        "noise and predictions are real numbers: they are computed in double precision",
        "of the fitted model itself nothing is published",
    )


def classes_of(erm: KernelERM) -> tuple[Any, Any] | None:
    """Return the label set, where the loss classifies."""
    return tuple(erm.classes_.tolist()) if hasattr(erm, "classes_") else None


def empty_predictor(erm: KernelERM, guarantee: Guarantee) -> PublicPredictor:
    """Return the predictor that says zero everywhere."""
    points = np.zeros((0, erm.n_features_in_))
    return PublicPredictor(erm.kernel_, points, np.zeros(0), guarantee, classes_of(erm))
