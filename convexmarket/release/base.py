"""What all releases share: a fitted model, a scale of noise, and the guarantee that follows."""

from __future__ import annotations

import os
from copy import deepcopy
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from convexmarket.checks import aligned, check_choice, checked_numbers
from convexmarket.display import Shown
from convexmarket.errors import (
    DataError,
    NotSupportedError,
    ParameterError,
)
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.learners.predictor import PublicPredictor
from convexmarket.privacy import (
    Account,
    Guarantee,
    RandomSource,
    noise_assumption,
    resolve_generator,
)
from convexmarket.privacy import admit as admit_release
from convexmarket.privacy.composition import Composition
from convexmarket.privacy.guarantee import check_delta
from convexmarket.release.noise import ARITHMETIC

__all__ = [
    "Release",
    "SingleCopy",
    "admit",
    "assumptions_of",
    "bounded_predictions",
    "check_terms",
    "classes_of",
    "empty_predictor",
    "fitted_copy",
]

Floats = NDArray[np.float64]


class Release(Shown):
    """What has been released, and the guarantee that it carries."""

    guarantee: Guarantee

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.guarantee.statement().partition(chr(10))[0]}>"


class SingleCopy(Release):
    """A release whose state is its noise: a copy would repeat it, or draw it twice."""

    _process_id: int

    def _stay_here(self) -> None:
        """Remember the process, as a fork is a copy too."""
        self._process_id = os.getpid()

    def _check_process(self) -> None:
        """Refuse to answer in a process that was forked from the one that made the release."""
        if os.getpid() != self._process_id:
            raise NotSupportedError(
                f"this {type(self).__name__} was made in another process, which draws the same "
                "noise for other questions; make a release in each process, and charge all of "
                "them, or publish .predictor"
            )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotSupportedError(
            f"a {type(self).__name__} cannot be copied or pickled: a copy would repeat its noise, "
            "or draw it twice. Publish .predictor, or make a release in each process and charge "
            "both"
        )


def admit(
    erm: KernelERM,
    guarantee: Guarantee,
    accountant: Account | None,
    rows: ArrayLike | None,
    random_state: RandomSource,
) -> np.random.Generator:
    """Charge a release in full, and return the source of its noise.

    Warns
    -----
    PrivacyLeakWarning
        If the noise is of a known seed, unless it is a simulation.

    Raises
    ------
    BudgetExceededError
        If a row cannot pay; nothing is charged then, and ``random_state`` has not advanced.
    ParameterError
        If the rows are not those of the accountant, or ``random_state`` is no source.
    """
    charge = admit_release(
        guarantee, accountant, rows, names=erm.row_names_, random_state=random_state
    )
    generator = resolve_generator(random_state)
    charge()
    return generator


def fitted_copy(erm: KernelERM) -> tuple[KernelERM, tuple[str, ...] | None]:
    """Return a copy of a fitted model, which nobody fits again, and the names of its columns.

    Raises
    ------
    DataError
        If it is not fitted.
    """
    if not isinstance(erm, KernelERM):
        raise DataError(f"erm must be a fitted KernelERM, got {erm!r}")
    try:
        check_is_fitted(erm)
    except NotFittedError as error:
        raise DataError("erm is not fitted: call erm.fit(X, y) first") from error
    copied = deepcopy(erm)
    if not hasattr(copied, "feature_names_in_"):
        return copied, None
    names = tuple(copied.feature_names_in_.tolist())
    del copied.feature_names_in_  # rows come as arrays from here on
    return copied, names


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
    if erm._labels is not None:
        rows = {"the rows of erm": pd.Series(0, index=erm._labels), "epsilon": epsilon}
        epsilon = aligned(**rows)[1]
    given = checked_numbers("epsilon", epsilon)
    if given.shape not in ((), (1,), (n_rows,)):
        raise ParameterError(
            f"epsilon has shape {given.shape}; pass one number, or one per row ({n_rows})"
        )
    sold = np.broadcast_to(given, n_rows)
    if not np.all(sold >= 0) or not np.all(np.isfinite(sold)):
        raise ParameterError("epsilon must be nonnegative and finite")
    unsold = np.count_nonzero((sold == 0) & (erm.row_sensitivities_ > 0))
    if unsold:
        raise ParameterError(
            f"{unsold} rows have epsilon 0 but a positive weight: no noise hides them. Fit erm "
            "with an epsilon that is zero there"
        )
    check_delta(delta, positive=bool(why_delta), why=why_delta)
    check_choice("accounting", accounting, Composition)
    return sold


def bounded_predictions(erm: KernelERM, points: Floats) -> Floats:
    """Return a model's predictions, clamped to the public bound on them, shape (n_points,).

    Clamping moves two models' predictions no further apart. Not a number counts as 0: an error
    would reveal the rows.
    """
    largest = erm.feature_bound_ * erm.norm_bound_
    return np.clip(np.nan_to_num(erm.decision_function(points), nan=0.0), -largest, largest)


def assumptions_of(
    erm: KernelERM, random_state: RandomSource, step: float, *others: str
) -> tuple[str, ...]:
    """List the assumptions of a release of a model's predictions."""
    return (
        noise_assumption(random_state),
        f"the noise is exact, on a lattice of step {step:g}, and double precision evaluates"
        f" predictions to within {ARITHMETIC:g} sensitivities, which the noise covers",
        *erm.assumptions_,
        "weights, kernel, regularization and everything else that was chosen does not depend on"
        " the private rows",
        *others,
        "of the fitted model itself nothing is published",
    )


def classes_of(erm: KernelERM) -> tuple[Any, Any] | None:
    """Return the label set, where the loss classifies."""
    return tuple(erm.classes_.tolist()) if hasattr(erm, "classes_") else None


def empty_predictor(
    erm: KernelERM, guarantee: Guarantee, names: tuple[str, ...] | None
) -> PublicPredictor:
    """Return the predictor that says zero everywhere."""
    points = np.zeros((0, erm.n_features_in_))
    return PublicPredictor(erm.kernel_, points, np.zeros(0), guarantee, classes_of(erm), names)
