"""Save released models as JSON documents, and load them without executing code."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, FailFast, Field, ValidationError, WithJsonSchema

from convexmarket.checks import check_choice, check_instance, is_number, shown
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import ConvexMarketError, DataError, NotSupportedError
from convexmarket.io import write_together
from convexmarket.learners.perturbed import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
)
from convexmarket.learners.predictor import Kernel, PublicPredictor
from convexmarket.learners.ridge import PersonalizedRidge
from convexmarket.privacy.guarantee import Guarantee, Law, Profile

LINEAR = PrivateLogisticRegression, PrivateLinearSVC, PrivateHuberRegressor
KINDS: dict[str, Any] = {x.__name__: x for x in (*LINEAR, PersonalizedRidge, PublicPredictor)}
#: Largest size of a file in bytes, and largest counts of JSON delimiters, which bound the memory.
LARGEST, MOST = 50_000_000, {b"[": 20_000, b":": 10_000, b",": 3_000_000}
FITTED = {"n_features_in_", "feature_names_in_", "classes_", "coef_", "intercept_"}
Detail = Literal["summary", "rows"]
NOT_KEPT = "epsilon is the largest of all rows, because the epsilons of single rows were not saved"
_WRONG = (ConvexMarketError, ArithmeticError, OSError, RecursionError, TypeError, ValueError)


def _public(value: Any) -> Any:
    if isinstance(value, list):
        return [_public(entry) for entry in value]
    number = isinstance(value, int | float) and abs(value) <= 1e150
    if not (value is None or number or (isinstance(value, str) and value.isprintable())):
        raise ValueError("not a JSON value, or a control sequence")
    return value


Public = Annotated[Any, AfterValidator(_public)]
Text = Annotated[str, AfterValidator(_public)]
Labels = Annotated[list[bool | int | float | Text], Field(min_length=2, max_length=2)]
Number = Annotated[float, Field(ge=-1e150, le=1e150)]
Numbers = Annotated[list[Number], FailFast()]
Epsilon = Annotated[float, Field(ge=0, strict=False), WithJsonSchema({"minimum": 0})]


class Document(BaseModel, strict=True, extra="forbid", ser_json_inf_nan="strings"):
    """Content of the file of a released model. The schema is ``docs/model.schema.json``."""

    format: Literal["convexmarket-model"] = "convexmarket-model"
    version: Literal[1] = 1
    convexmarket: Text
    kind: Literal[*KINDS]  # type: ignore[valid-type]
    parameters: dict[Text, Public]
    columns: dict[Text, Annotated[list[Public], FailFast()]] | None = None
    features: dict[Text, Public] = {}
    n_features_in_: Annotated[int, Field(ge=1, le=10_000_000)]
    feature_names_in_: Annotated[list[Text] | None, FailFast()] = None
    classes_: Labels | None = None
    dtype: Annotated[str, Field(pattern=r"^([<>|][biuf][1248]|[|]O|[<>]U\d{1,5})$")] | None
    points: Annotated[list[Numbers] | None, FailFast()] = None
    coef_: Numbers
    intercept_: Number = 0.0
    rows: Annotated[int, Field(ge=1, le=10_000_000)]
    epsilon: Annotated[list[Epsilon], FailFast()]  # of each row, or only the largest epsilon
    delta: Annotated[float, Field(ge=0, le=1)]
    law: Law  # fields of the profile of the privacy loss
    shift: Annotated[list[Epsilon], FailFast()]
    failure: Annotated[float, Field(ge=0, lt=1)]
    mechanism: Text
    accounting: Text
    assumptions: Annotated[list[Text], FailFast()]
    sha256: str = ""  # digest of all other keys in the format of json.dumps


def save_model(model: Any, path: str | Path, *, guarantee: Detail = "summary") -> Path:
    """Write a released model to a file that can be published.

    Parameters
    ----------
    model : private linear or ridge estimator, or PublicPredictor
        A fitted model. For a release of predictions, pass the release's ``predictor``.
    path : path
        An existing file is replaced atomically.
    guarantee : {"summary", "rows"}, default "summary"
        If ``"summary"``, only the largest epsilon is written. If ``"rows"``, the epsilons and given
        weights of all rows are written. They reveal the asks, which the guarantee does not cover.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    NotSupportedError
        If the class of the model has no guarantee that covers its publication.
    DataError
        If the model is not fitted or has no JSON form, or the file cannot be written.

    Examples
    --------
    >>> path = save_model(model, "model.json")  # doctest: +SKIP
    """
    check_choice("guarantee", guarantee, Detail)
    check_instance("path", path, (str, Path), "the path of a file")
    write_together({Path(path): saved_model(model, guarantee)})
    return Path(path)


def load_model(path: str | Path) -> Any:
    """Load a model that :func:`save_model` wrote. Its predictions equal those of the saved model.

    Parameters
    ----------
    path : path

    Returns
    -------
    object
        The model. If the file is a summary, the largest epsilon is used for each row.

    Raises
    ------
    DataError
        If the file is missing, too large, damaged or inconsistent, or has another version.

    Examples
    --------
    >>> load_model("model.json").predict([[0.5]])  # doctest: +SKIP
    """
    check_instance("path", path, (str, Path), "the path of a file")
    file = Path(path)
    try:
        if not file.is_file() or file.stat().st_size > LARGEST:
            raise ValueError(f"it is missing, or not a file of at most {LARGEST:,} bytes")
        return _loaded(file.read_bytes())
    except _WRONG as error:
        remedy = "give a file of save_model, and install the version of convexmarket that wrote it"
        raise _refusal(f"{path} cannot be loaded", error, remedy) from None


def saved_model(model: Any, guarantee: Detail = "summary") -> bytes:
    """Return the content of the file that :func:`save_model` writes."""
    name = type(model).__name__
    if KINDS.get(name) is not type(model):
        what = f"model is a {name}, which has no guarantee that covers its publication"
        raise NotSupportedError(f"{what}; give one of {', '.join(sorted(KINDS))}")
    try:
        if isinstance(model, PublicPredictor):
            parameters, promised = vars(model.kernel), model.guarantee
            content: Any = {"feature_names_in_": model.feature_names, "points": model.points}
            content |= {"coef_": model.coefficients, "classes_": model.classes}
            content["n_features_in_"] = model.points.shape[1]
        elif hasattr(model, "guarantee_"):
            parameters, promised = model.get_params(deep=False), model.guarantee_
            for private in ("epsilon", "random_state"):
                parameters.pop(private, None)
            content = {key: value for key, value in vars(model).items() if key in FITTED}
            if (features := parameters.pop("features", None)) is not None:
                content["features"] = features.get_params()
                content["columns"] = content["features"].pop("columns")
        else:
            raise ValueError("it is not fitted: call fit first")
        facts = vars(promised) | vars(promised.profile) | {"rows": promised.epsilon.size}
        del facts["profile"]
        if guarantee == "summary":
            for key in ("epsilon", "shift"):
                facts[key] = facts[key].max(keepdims=True)
            facts["assumptions"] = [*dict.fromkeys([*promised.assumptions, NOT_KEPT])]
            if not isinstance(parameters.get("weighting", ""), str):
                parameters["weighting"] = "withheld"
        facts["dtype"] = getattr(getattr(content.get("classes_"), "dtype", None), "str", None)
        facts |= {"kind": name, "convexmarket": version("convexmarket"), "parameters": parameters}
        plain = json.dumps(content | facts, default=lambda value: getattr(value, "tolist", dict)())
        content = json.loads(Document.model_validate(json.loads(plain)).model_dump_json())
        content["sha256"] = _digest(content)
        text = json.dumps(content, indent=1, ensure_ascii=False).encode()
        _loaded(text)
        return text
    except _WRONG as error:
        remedy = "use finite numbers and printable text, or guarantee='summary' for a smaller file"
        raise _refusal(f"the {name} cannot be saved", error, remedy) from None


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps({key: value for key, value in content.items() if key != "sha256"})
    return hashlib.sha256(text.encode()).hexdigest()


def _loaded(content: bytes) -> Any:
    if len(content) > LARGEST or any(content.count(mark) > most for mark, most in MOST.items()):
        raise ValueError("it has too many bytes, lists or numbers")
    plain = json.loads(content.decode())
    data = Document.model_validate(plain)
    if data.sha256 != _digest(plain):
        raise ValueError("it was changed after it was saved, so sha256 does not match")
    names, n_features, coef = data.feature_names_in_, data.n_features_in_, np.array(data.coef_)
    predicts = data.kind == "PublicPredictor"
    rows = (data.points or []) if predicts else [data.coef_]
    fits = [*map(len, rows)] == [n_features] * (coef.size if predicts else 1)
    fits &= names is None or len(set(names)) == len(names) == n_features
    if not fits or not len(data.epsilon) == len(data.shift) in (1, data.rows):
        raise ValueError("coef_, points, names, n_features_in_, epsilon and rows are inconsistent")
    epsilon, shift = (np.full(data.rows, np.array(x)) for x in (data.epsilon, data.shift))
    profile = Profile(data.law, shift, data.failure)
    about = data.mechanism, data.accounting, tuple(data.assumptions)
    guarantee = Guarantee(epsilon, data.delta, *about, profile)
    given = data.parameters.items()
    options: Any = {key: tuple(v) if isinstance(v, list) else v for key, v in given}
    if predicts:
        kernel = Kernel(**options)
        points = np.array(rows).reshape(coef.size, n_features)
        kernel.check_domain(points, "points")
        if not np.isfinite(kernel.feature_bound**2 * np.abs(coef).sum()):
            raise ValueError("coef_ is so large that predictions would overflow")
        lists: Any = [None if part is None else tuple(part) for part in (data.classes_, names)]
        return PublicPredictor(kernel, points, coef, guarantee, *lists)
    if data.columns is not None:
        pairs, both = data.columns.items(), [True, True]  # two numbers form a range
        columns: Any = {k: tuple(v) if [*map(is_number, v)] == both else v for k, v in pairs}
        options["features"] = PublicFeatures(columns, **data.features).fit()
    model = KINDS[data.kind](**options)
    model._check_parameters()
    if hasattr(model, "classes"):
        with np.errstate(over="ignore"):
            model.classes_ = np.array(data.classes_ or [], dtype=data.dtype)
        if data.classes_ is None or repr(model.classes_.tolist()) != repr(data.classes_):
            raise ValueError("dtype cannot represent classes_ exactly")
    model.coef_, model.intercept_, model.n_features_in_ = coef, data.intercept_, n_features
    model.guarantee_, model.epsilon_ = guarantee, guarantee.epsilon
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    if getattr(model, "data_norm", None) is not None:
        model.data_norm_ = float(model.data_norm)
    return model


def _refusal(what: str, error: Exception, remedy: str) -> DataError:
    reason = str(error)
    if isinstance(error, ValidationError):
        keys = error.errors(include_url=False, include_input=False)[0]["loc"][:2]
        reason = f"{'.'.join(map(str, keys))} has a value that is not allowed"
    return DataError(f"{what}: {shown(reason, str)}; {remedy}")
