"""Choose the default learner of a purchase, and compute the error of its model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from sklearn.base import is_classifier

from convexmarket.checks import warn_user
from convexmarket.errors import ParameterError, UselessModelWarning
from convexmarket.learners.perturbed import PrivateLogisticRegression
from convexmarket.learners.private_learner import PrivateLearner
from convexmarket.learners.ridge import PersonalizedRidge


def default_learner(
    labels: pd.Series[Any], features: Any, classes: Any, target_range: Any
) -> PrivateLearner:
    """Choose a regression or classification learner. Missing domains are computed from rows."""
    if classes is not None and target_range is not None:
        raise ParameterError("give classes or target_range, not both")
    numbers = is_numeric_dtype(labels) and not is_bool_dtype(labels)
    if target_range is not None or (classes is None and numbers and labels.nunique() > 2):
        box: Any = {} if features is not None else {"feature_range": None}
        return PersonalizedRidge(target_range=target_range, features=features, **box)
    if features is None:
        example = "pass features=PublicFeatures({column: (low, high), ...})"
        raise ParameterError(f"features is missing: a classifier needs public ranges; {example}")
    return PrivateLogisticRegression(classes=classes, features=features)


def expected_error(learner: Any, epsilon: NDArray[np.float64], n_features: int) -> float | None:
    """Compute the effect of the noise, and warn if a constant would be as accurate as the model."""
    if not hasattr(learner, "noise_effect"):
        return None
    try:
        expected = float(learner.noise_effect(epsilon, n_features))
        limit = learner.noise_limit(epsilon, n_features)
    except ParameterError:  # the domain is not public, or fit raises the same error
        return None
    if expected > limit:
        why = f"the noise adds a standard deviation of {expected:.3g} to each prediction, and above"
        _useless(f"{why} {limit:.3g} the regularized model predicts no better than a constant")
    return expected


def _useless(why: str) -> None:
    remedy = "buy more privacy (a larger budget), or use fewer features"
    warn_user(f"{why}: {remedy}", UselessModelWarning)


def model_errors(model: Any, X: Any, y: ArrayLike) -> dict[str, float]:
    """Compute the errors of the model and the best constant on public rows, and compare them."""
    predicted, labels = np.asarray(model.predict(X)), np.asarray(y)
    if is_classifier(model):
        error = float(np.mean(predicted != labels))
        constant = 1.0 - float(pd.Series(labels).value_counts(normalize=True).iloc[0])
    else:
        error = float(np.sqrt(np.mean((predicted - labels) ** 2)))
        constant = float(np.std(labels))
    if error >= constant > 0.0:  # a constant has no error on rows with equal labels
        why = f"on the test rows the error of the model is {error:.4g}, and that of a constant is"
        _useless(f"{why} {constant:.4g}")
    return {"model": error, "constant": constant}
