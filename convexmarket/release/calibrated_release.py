"""Base classes of releases: a release has a fitted model, calibrated noise and a guarantee."""

from __future__ import annotations

import os
from copy import deepcopy
from typing import NoReturn, SupportsIndex

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from convexmarket.checks import aligned, check_choice, checked_numbers
from convexmarket.display import Shown
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.learners.predictor import PublicPredictor, check_rows
from convexmarket.privacy import (
    Account,
    Guarantee,
    RandomSource,
    noise_assumption,
    reserve,
    resolve_generator,
)
from convexmarket.privacy.composition import Composition
from convexmarket.privacy.guarantee import check_delta
from convexmarket.release.lattice_noise import ARITHMETIC, Noise

Floats = NDArray[np.float64]


class Release(Shown):
    """Base class of all releases."""

    guarantee: Guarantee
    scale: float
    _process_id: int

    def _open(
        self,
        erm: KernelERM,
        epsilon: ArrayLike,
        delta: float,
        accounting: Composition = "tight",
        why_delta: str = "",
    ) -> Floats:
        """Copy a fitted model, and return the permitted epsilon of each row, shape (n_rows,).

        ``why_delta`` states why delta must be positive. It is empty if delta can be zero.
        """
        if not isinstance(erm, KernelERM):
            raise DataError(f"erm must be a fitted KernelERM, got {erm!r}")
        try:
            check_is_fitted(erm)
        except NotFittedError as error:
            raise DataError("erm is not fitted: call erm.fit(X, y) first") from error
        self._erm, self._names = deepcopy(erm), None
        if hasattr(self._erm, "feature_names_in_"):
            self._names = tuple(self._erm.feature_names_in_.tolist())
            del self._erm.feature_names_in_  # releases pass rows as arrays
        self._delta, self._accounting = delta, accounting
        n_rows = erm.row_sensitivities_.size
        if erm._labels is not None:
            rows = {"the rows of erm": pd.Series(0, index=erm._labels), "epsilon": epsilon}
            epsilon = aligned(**rows)[1]
        given = checked_numbers("epsilon", epsilon)
        if given.shape not in ((), (1,), (n_rows,)):
            raise ParameterError(
                f"epsilon has shape {given.shape}; pass a number, or one for each of {n_rows} rows"
            )
        sold = np.broadcast_to(given, n_rows)
        if not np.all(sold >= 0) or not np.all(np.isfinite(sold)):
            raise ParameterError("epsilon must be nonnegative and finite")
        unsold = np.count_nonzero((sold == 0) & (erm.row_sensitivities_ > 0))
        if unsold:
            raise ParameterError(
                f"{unsold} rows have epsilon 0 but a positive weight, so no noise protects these "
                "rows; fit erm with epsilon 0 for them"
            )
        check_delta(delta, positive=bool(why_delta), why=why_delta)
        check_choice("accounting", accounting, Composition)
        return sold

    def _charge(
        self,
        noise: Noise,
        mechanism: str,
        assumption: str,
        accountant: Account | None,
        rows: ArrayLike | None,
        random_state: RandomSource,
    ) -> np.random.Generator:
        """Set the guarantee, charge it in full, and return the random generator of the noise.

        If a budget is exceeded, nothing is charged and ``random_state`` does not advance.
        """
        assumptions = (
            noise_assumption(random_state),
            f"the noise is exact on a lattice with step {noise.step:g}, and covers rounding "
            f"errors of at most {ARITHMETIC:g} times the sensitivity",
            *self._erm.assumptions_,
            "weights, kernel and all parameters do not depend on the private rows",
            *([assumption] if assumption else []),
            "the fitted model itself is not published",
        )
        about = mechanism, noise.accounting or self._accounting, assumptions, noise.profile
        self.guarantee = Guarantee(noise.epsilon, self._delta, *about)
        self._noise, self.scale, self._process_id = noise, noise.scale, os.getpid()
        names = self._erm.row_names_
        charge = reserve(self.guarantee, accountant, rows, names=names, random_state=random_state)
        generator = resolve_generator(random_state)
        charge()
        return generator

    def _checked_points(self, X: ArrayLike, name: str = "X") -> Floats:
        """Check that rows are in the public domain, and return them."""
        points = check_rows(X, self._erm.n_features_in_, self._names)
        self._erm.kernel_.check_domain(points, name)
        return points

    def _public(
        self, points: Floats | None = None, coefficients: Floats | None = None
    ) -> PublicPredictor:
        """Return a linear combination of kernels, by default the zero function, as a predictor."""
        erm = self._erm
        if points is None or coefficients is None:
            points, coefficients = np.zeros((0, erm.n_features_in_)), np.zeros(0)
        classes = tuple(erm.classes_.tolist()) if hasattr(erm, "classes_") else None
        return PublicPredictor(
            erm.kernel_, points, coefficients, self.guarantee, classes, self._names
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.guarantee.statement().partition(chr(10))[0]}>"


class FixedRelease(Release):
    """A release that consists of a public predictor."""

    predictor: PublicPredictor

    def predict(self, X: ArrayLike) -> Floats:
        """Predict at any rows without additional privacy cost, shape (n_samples,)."""
        return self.predictor.predict(X)


class SingleCopy(Release):
    """A release that contains secret noise and therefore must not be copied."""

    def _check_process(self) -> None:
        """Raise an error if this object was created in another process."""
        if os.getpid() != self._process_id:
            raise NotSupportedError(
                f"this {type(self).__name__} was created in another process, which draws the same "
                "noise for other questions; create and charge a release in each process, or "
                "publish .predictor"
            )

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise NotSupportedError(
            f"a {type(self).__name__} cannot be copied or pickled: a copy would repeat the noise, "
            "or draw it twice; publish .predictor, or create and charge a release in each process"
        )


def bounded_predictions(erm: KernelERM, points: Floats) -> Floats:
    """Compute the predictions of a model, clipped to their public bound, shape (n_points,).

    Clipping does not increase the distance between the predictions of two models. NaN is replaced
    by 0, because raising an error would reveal information about the rows.
    """
    largest = erm.feature_bound_ * erm.norm_bound_
    return np.clip(np.nan_to_num(erm.decision_function(points), nan=0.0), -largest, largest)
