"""Two labels as signs, from a label set that is public."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from convexmarket.checks import warn_user
from convexmarket.errors import DataError, ParameterError, PrivacyLeakWarning

__all__ = ["binary_signs", "check_classes"]


def check_classes(classes: tuple[Any, Any] | None) -> None:
    """Refuse a label set that does not hold two different labels.

    Raises
    ------
    ParameterError
        If it does not.
    """
    if classes is None:
        return
    labels = list(classes) if isinstance(classes, (tuple, list, np.ndarray)) else []
    single = not any(isinstance(label, (tuple, list, dict, np.ndarray)) for label in labels)
    if len(labels) != 2 or not single or labels[0] == labels[1]:
        raise ParameterError(f"classes must be two different labels, got {classes!r}")


def binary_signs(
    y: NDArray[Any], classes: tuple[Any, Any] | None
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the label set, and the labels as -1 and 1.

    Parameters
    ----------
    y : ndarray of shape (n_rows,)
        Private labels.
    classes : pair of labels or None
        The public label set, whose second label is the positive one. ``None`` infers it, with a
        :class:`~convexmarket.errors.PrivacyLeakWarning`.

    Raises
    ------
    ParameterError
        If the label set does not hold two different labels.
    DataError
        If a label is not in it.
    """
    check_classes(classes)
    known = _inferred(y) if classes is None else np.asarray(classes)
    positive = np.asarray(y == known[1])
    unknown = ~(positive | np.asarray(y == known[0]))
    if np.any(unknown):
        raise DataError(
            f"{np.count_nonzero(unknown)} labels are none of the public classes "
            f"{tuple(known.tolist())}; pass classes=(negative, positive)"
        )
    return known, np.where(positive, 1.0, -1.0)


def _inferred(y: NDArray[Any]) -> NDArray[Any]:
    """Return the two labels found in y, which leaks them."""
    check_classification_targets(y)
    classes = np.unique(y)
    if classes.size != 2:
        raise DataError(
            f"Only binary classification is supported. y holds {classes.size} classes; pass the "
            "public label set as classes=(negative, positive)"
        )
    warn_user(
        "the classes were inferred from the private labels, so no guarantee covers them: pass"
        " classes=(negative, positive).",
        PrivacyLeakWarning,
    )
    return classes
