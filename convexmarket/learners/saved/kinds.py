"""Which objects can be saved: each kind says what it publishes, and how it is built again."""

from __future__ import annotations

import inspect
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from convexmarket.arguments import check_positives
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.learners.logistic import PrivateLogisticRegression
from convexmarket.learners.objective import ObjectiveClassifier, ObjectiveRelease
from convexmarket.learners.other_losses import PrivateHuberRegressor, PrivateLinearSVC
from convexmarket.learners.ridge import PersonalizedRidge
from convexmarket.learners.ridge_baselines import NonPersonalizedRidge, SampledRidge
from convexmarket.learners.ridge_release import RidgeRelease
from convexmarket.learners.ridge_statistics import StatisticsRidge
from convexmarket.learners.saved.document import (
    MOST_ROWS,
    Document,
    Features,
    Labels,
    LinearModel,
    SavedGuarantee,
)
from convexmarket.privacy.guarantee import Guarantee

__all__ = [
    "KINDS",
    "Detail",
    "Kind",
    "kind_of",
    "labels_of",
    "read_guarantee",
    "read_labels",
    "register",
    "versions",
    "written_guarantee",
]

#: How much of the guarantee is written: the largest epsilon only, or that of each row.
Detail = Literal["summary", "rows"]

WITHHELD = "withheld"
NOT_KEPT = "epsilon is the largest of all rows: those of single rows were not saved"
#: Parameters that have no place in a file: what single rows granted tells what they asked for it.
_NEVER = {"epsilon"}
_LIBRARIES = ("convexmarket", "numpy", "scikit-learn")


@dataclass(frozen=True)
class Kind:
    """How objects of one class become documents, and come back.

    Parameters
    ----------
    describe : callable
        Given the object and how much of the guarantee to write, returns the document.
    build : callable
        Given a document of this kind, returns the object.
    """

    describe: Callable[[Any, Detail], Document]
    build: Callable[[Document], Any]


KINDS: dict[type[Any], Kind] = {}


def register(cls: type[Any], kind: Kind) -> None:
    """Let objects of a class be saved, under the name of the class."""
    KINDS[cls] = kind


def kind_of(model: object) -> Kind:
    """Return how a model is saved.

    Raises
    ------
    NotSupportedError
        If it is not among what may be published.
    """
    if type(model) in KINDS:
        return KINDS[type(model)]
    names = ", ".join(sorted(cls.__name__ for cls in KINDS))
    hint = "save its predictor instead" if hasattr(model, "predictor") else f"these are: {names}"
    raise NotSupportedError(
        f"model is a {type(model).__name__}, which carries no guarantee of its own that covers "
        f"publishing it, so it is not saved; {hint}"
    )


@cache
def versions() -> dict[str, str]:
    """Return the versions of what computes predictions."""
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


# -------------------------------------------------------------------------------- guarantees


def written_guarantee(guarantee: Guarantee, detail: Detail) -> SavedGuarantee:
    """Return what is written of a guarantee.

    Raises
    ------
    NotSupportedError
        If it is of more rows than a file may speak of.
    """
    if guarantee.epsilon.size > MOST_ROWS:
        raise NotSupportedError(
            f"the guarantee is of {guarantee.epsilon.size:,} rows, and a saved model speaks of "
            f"{MOST_ROWS:,} at most"
        )
    return SavedGuarantee(
        rows=guarantee.epsilon.size,
        largest_epsilon=float(guarantee.epsilon.max()),
        epsilon=np.array(guarantee.epsilon) if detail == "rows" else None,
        delta=float(guarantee.delta),
        mechanism=guarantee.mechanism,
        accounting=guarantee.accounting,
        assumptions=list(guarantee.assumptions),
    )


def read_guarantee(written: SavedGuarantee) -> Guarantee:
    """Return the guarantee; where single rows were left out, each has the largest epsilon."""
    epsilon, assumptions = written.epsilon, tuple(written.assumptions)
    if epsilon is None:
        epsilon = np.full(written.rows, written.largest_epsilon)
        assumptions = tuple(dict.fromkeys([*assumptions, NOT_KEPT]))
    return Guarantee(epsilon, written.delta, written.mechanism, written.accounting, assumptions)


# ------------------------------------------------------------------------------------- labels


def labels_of(classes: Any) -> Labels | None:
    """Return two labels, in an array or a tuple, as what JSON can hold."""
    if classes is None:
        return None
    if isinstance(classes, np.ndarray):
        dtype = "str" if classes.dtype.kind == "U" else str(classes.dtype)
        return _labels(dtype, classes.tolist())
    return _labels("tuple", [c.item() if isinstance(c, np.generic) else c for c in classes])


def _labels(dtype: str, values: list[Any]) -> Labels:
    try:
        return Labels(dtype=dtype, values=values)
    except ValueError as error:
        raise DataError(
            f"the labels are {values!r} of type {dtype}, which cannot be written; use two "
            "different numbers or texts"
        ) from error


def read_labels(labels: Labels | None) -> Any:
    """Return the labels as they were.

    Raises
    ------
    DataError
        If they are not of the type that is named.
    """
    if labels is None:
        return None
    if labels.dtype == "tuple":
        return tuple(labels.values)
    kinds = {"b": bool, "i": int, "u": int, "f": float, "U": str, "O": object}
    dtype = np.dtype(labels.dtype)
    if not all(type(value) is kinds[dtype.kind] or dtype.kind == "O" for value in labels.values):
        raise DataError(f"labels.values are {labels.values!r}, which are not of {labels.dtype}")
    try:
        with np.errstate(over="ignore"):
            found = np.array(labels.values, dtype=dtype)
    except OverflowError:
        raise DataError(f"labels.values are {labels.values!r}: too large for {dtype}") from None
    if found.tolist() != labels.values:
        raise DataError(f"labels.values are {labels.values!r}, which {dtype} cannot hold exactly")
    return found


# --------------------------------------------------------------------------------- estimators


def _parameters(model: Any, detail: Detail) -> dict[str, Any]:
    """Return the public parameters, without those of single rows unless they are asked for."""
    found = {
        name: value for name, value in model.get_params(deep=False).items() if name not in _NEVER
    }
    if not isinstance(found.get("weights", ""), str) and detail != "rows":
        found["weights"] = WITHHELD
    return {name: _plain(name, value) for name, value in found.items()}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, PublicFeatures):
        value = _declaration(value)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(name, item) for item in value]
    infinite = isinstance(value, float) and not math.isfinite(value)
    if value is None or (isinstance(value, bool | int | float | str) and not infinite):
        return value
    raise ParameterError(
        f"{name} must be finite numbers or text to be written to a file, got {value!r:.60}"
    )


def _constructed(cls: type[Any], parameters: dict[str, Any]) -> Any:
    known = set(inspect.signature(cls).parameters) - _NEVER
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise DataError(
            f"parameters has {unknown[0]!r}, which {cls.__name__} of this version does not know"
        )
    built = {name: _tuples(value) for name, value in parameters.items()}
    if built.get("features") is not None:
        built["features"] = _declared(built["features"])
    return cls(**built)


def _declaration(features: PublicFeatures) -> list[list[Any]]:
    """Return what is public of a table's columns as lists that begin with what they are."""
    lists: list[list[Any]] = []
    for name, public in features.columns.items():
        lists.append(["range" if isinstance(public, tuple) else "categories", name, *public])
    lists += [[key, getattr(features, key)] for key in ("missing", "intercept", "data_norm")]
    return lists


def _declared(lists: Any) -> PublicFeatures:
    """Return the features that were written so.

    Raises
    ------
    DataError
        If they were not.
    """
    columns: dict[str, Any] = {}
    options: dict[str, Any] = {}
    try:
        for what, name, *public in lists:
            if what in ("range", "categories"):
                columns[name] = tuple(public) if what == "range" else public
            else:
                options[what] = name
        return PublicFeatures(columns, **options).fit()
    except (TypeError, ValueError) as error:
        raise DataError(f"parameters.features are no public features: {error}") from None


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _features(model: Any) -> Features:
    names = getattr(model, "feature_names_in_", None)
    return Features(
        count=int(model.n_features_in_), names=None if names is None else [*map(str, names)]
    )


def _document(model: Any, detail: Detail, intercept: float, labels: Labels | None) -> Document:
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise DataError(f"the {type(model).__name__} is not fitted: call fit first") from error
    return Document(
        kind=type(model).__name__,
        parameters=_parameters(model, detail),
        features=_features(model),
        labels=labels,
        model=LinearModel(coefficients=np.array(model.coef_), intercept=intercept),
        guarantee=written_guarantee(model.guarantee_, detail),
        versions=versions(),
    )


def _restored(cls: type[Any], document: Document) -> tuple[Any, float]:
    """Return an estimator that predicts, with what both kinds have in common; its intercept."""
    if not isinstance(document.model, LinearModel):
        raise DataError(f"a {document.kind} has coefficients of features, and no points")
    model = _constructed(cls, dict(document.parameters))
    model._check_parameters()
    model.n_features_in_ = document.features.count
    if document.features.names is not None:
        model.feature_names_in_ = np.array(document.features.names, dtype=object)
    model.coef_ = document.model.coefficients
    model.guarantee_ = read_guarantee(document.guarantee)
    model.epsilon_ = model.guarantee_.epsilon
    return model, document.model.intercept


def _describe_objective(model: ObjectiveRelease, detail: Detail) -> Document:
    return _document(model, detail, 0.0, labels_of(getattr(model, "classes_", None)))


def _build_objective(cls: type[ObjectiveRelease]) -> Callable[[Document], ObjectiveRelease]:
    def build(document: Document) -> ObjectiveRelease:
        model, intercept = _restored(cls, document)
        classifies = issubclass(cls, ObjectiveClassifier)
        if classifies and (document.labels is None or document.labels.dtype == "tuple"):
            raise DataError(f"labels are missing, and {cls.__name__} predicts them")
        if not classifies and document.labels is not None:
            raise DataError(f"there are labels, and {cls.__name__} predicts numbers")
        if intercept != 0.0:
            raise DataError(f"intercept is not zero, and {cls.__name__} has none")
        if classifies:
            model.classes_ = read_labels(document.labels)
        model.intercept_ = intercept
        if model.data_norm is not None:
            check_positives(data_norm=model.data_norm)
            model.data_norm_ = float(model.data_norm)
        return model

    return build


def _describe_ridge(model: RidgeRelease, detail: Detail) -> Document:
    return _document(model, detail, float(getattr(model, "intercept_", 0.0)), None)


def _build_ridge(cls: type[RidgeRelease]) -> Callable[[Document], RidgeRelease]:
    def build(document: Document) -> RidgeRelease:
        model, intercept = _restored(cls, document)
        if document.labels is not None:
            raise DataError("there are labels, and ridge regression predicts numbers")
        model.intercept_ = intercept
        return model

    return build


for _objective in (PrivateLogisticRegression, PrivateLinearSVC, PrivateHuberRegressor):
    register(_objective, Kind(_describe_objective, _build_objective(_objective)))
for _ridge in (PersonalizedRidge, NonPersonalizedRidge, SampledRidge, StatisticsRidge):
    register(_ridge, Kind(_describe_ridge, _build_ridge(_ridge)))
