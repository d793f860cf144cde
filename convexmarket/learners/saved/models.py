"""Saving a released model, and loading it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from convexmarket.arguments import check_choice, check_instance, shown
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.learners.saved.document import FORMAT, VERSION, Document
from convexmarket.learners.saved.files import CHECKSUM, packed, read, unpacked
from convexmarket.learners.saved.kinds import KINDS, Detail, kind_of
from convexmarket.writing import write_together

__all__ = ["load_model", "save_model"]


def save_model(model: Any, path: str | Path, *, guarantee: Detail = "summary") -> Path:
    """Write a released model to a file that may be published.

    What is written is what the guarantee covers and what is public: coefficients, labels, names of
    features, parameters, the guarantee with its assumptions, versions and a checksum. Noise, seeds,
    diagnostics of the fit and rows are not.

    Parameters
    ----------
    model : PrivateLogisticRegression, PersonalizedRidge, NonPersonalizedRidge, SampledRidge or \
PublicPredictor
        Fitted. Of a release of predictions, its predictor.
    path : path
        Of suffix ``.json``. A file that is there is replaced, at once or not at all.
    guarantee : {"summary", "rows"}, default "summary"
        ``"summary"``: the largest epsilon and the number of rows. ``"rows"``: the epsilon of every
        row as well, and weights that were given row by row. What single sellers sold tells what
        they asked for it, which no guarantee covers, so it is written on request only.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    NotSupportedError
        If the model carries no guarantee, such as :class:`NonPrivateRidge`.
    ParameterError
        If an argument is out of its range.
    DataError
        If the model is not fitted, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from convexmarket.learners import PersonalizedRidge
    >>> X, y = np.array([[0.1], [0.9]]), np.array([0.0, 0.5])
    >>> model = PersonalizedRidge().fit(X, y, epsilon=[1.0, 2.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loaded = load_model(save_model(model, Path(folder, "model.json")))
    >>> bool(np.all(loaded.predict(X) == model.predict(X))), loaded.epsilon_.round(2).tolist()
    (True, [2.0, 2.0])
    """
    check_choice("guarantee", guarantee, Detail)
    check_instance("path", path, (str, Path), "the path of a file")
    target = Path(path)
    write_together({target: saved_model(model, target, guarantee)})
    return target


def saved_model(model: Any, path: Path, guarantee: Detail = "summary") -> bytes:
    """Return what :func:`save_model` writes, which raises as it does."""
    kind = kind_of(model)
    try:
        document = kind.describe(model, guarantee)
    except ValidationError as error:
        raise DataError(f"the {type(model).__name__} cannot be saved: {_first(error)}") from error
    return packed(document, path)


def load_model(path: str | Path) -> Any:
    """Return the model that :func:`save_model` wrote, after checking all of its file.

    It predicts bit for bit what the saved one does. Whatever a file holds, nothing of it is run.

    Parameters
    ----------
    path : path
        A ``.json`` file; from anybody.

    Returns
    -------
    object
        Of the class that was saved. Where single rows' epsilon were left out, each row of its
        guarantee has the largest.

    Raises
    ------
    DataError
        If the file is missing, too large, damaged, changed after it was saved, or says what does
        not fit together.
    NotSupportedError
        If it is of a newer version or an unknown kind.
    ParameterError
        If the suffix is not ``.json``.

    Notes
    -----
    The checksum finds accidents. It is no signature: an attacker who changes a file can write a
    new one, so take models from those you trust, or compare the checksum with theirs.

    Examples
    --------
    >>> import convexmarket as cm
    >>> model = cm.PersonalizedRidge().fit([[0.1], [0.9]], [0.0, 0.5], epsilon=[1.0, 2.0])
    >>> path = cm.save_model(model, "ridge.json")  # doctest: +SKIP
    >>> cm.load_model(path).predict([[0.5]])  # doctest: +SKIP
    """
    check_instance("path", path, (str, Path), "the path of a file")
    file = Path(path)
    found = unpacked(read(file), file)
    _check_version(found, file)
    stated = found.pop(CHECKSUM, None)
    try:
        document = Document.model_validate(found)
    except (ValidationError, RecursionError) as error:
        reason = _first(error) if isinstance(error, ValidationError) else "nested too deeply"
        raise DataError(
            f"{file} is no saved model: {reason}. Get it again from where it was saved"
        ) from None
    if stated != document.checksum():
        raise DataError(
            f"{file} was changed after it was saved: its checksum is another. Get it again from "
            "where it was saved"
        )
    build = {cls.__name__: kind.build for cls, kind in KINDS.items()}.get(document.kind)
    if build is None:
        raise NotSupportedError(
            f"{file} holds a {document.kind[:60]!r}, which this version does not know: install the "
            f"convexmarket {document.versions.get('convexmarket', '')[:20]} that wrote it"
        )
    try:
        return build(document)
    except (DataError, ParameterError, NotSupportedError) as error:
        raise DataError(f"{file}: {error}; get it again from where it was saved") from None


def _check_version(found: dict[str, Any], file: Path) -> None:
    if found.get("format") != FORMAT:
        raise DataError(
            f"{file} is no saved model: its format is {found.get('format')!r:.60}, not {FORMAT!r}. "
            "Give a file that save_model wrote"
        )
    version = found.get("version")
    if type(version) is not int:
        raise DataError(
            f"{file} is no saved model: its version is {version!r:.60}, not a whole number. Give a "
            "file that save_model wrote"
        )
    if version > VERSION:
        raise NotSupportedError(
            f"{file} is of version {version}, and this convexmarket reads {VERSION}: install a "
            "newer one"
        )


def _first(error: ValidationError) -> str:
    """Say in a line what is wrong first."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    return shown(f"{where}: {first['msg']}" if where else first["msg"], str)
