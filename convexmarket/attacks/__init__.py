"""Attacks on the guarantees of learners and releases, and how near they come to what is claimed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.attacks.false_rows import false_rows
from convexmarket.attacks.learner import audit_learner
from convexmarket.attacks.objective import audit_objective, audit_objective_ridge
from convexmarket.attacks.releases import Mechanism, audit_draws
from convexmarket.attacks.result import AuditCheck, Neighbours, PrivacyAudit
from convexmarket.attacks.ridge import audit_ridge
from convexmarket.checks import aligned, check_count, check_share, checked_numbers
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners import Learner, PersonalizedRidge
from convexmarket.learners.linear import ObjectiveLearner
from convexmarket.privacy import RandomSource
from convexmarket.privacy.noise import open_generator

__all__ = ["AuditCheck", "Neighbours", "PrivacyAudit", "audit_privacy", "false_rows"]

Floats = NDArray[np.float64]


def audit_privacy(
    mechanism: Learner | Mechanism,
    X: ArrayLike,
    y: ArrayLike,
    *,
    others: Literal["worst", "given"] = "worst",
    rows: ArrayLike | None = None,
    n_rows: int = 5,
    draws: int = 200,
    confidence: float = 0.999,
    random_state: RandomSource = None,
    **arguments: Any,
) -> PrivacyAudit:
    r"""Attack the guarantee of a learner or of a release.

    Where the privacy loss is a formula it is maximised over outputs and over neighbouring data
    sets, and what the formula rests on is tested by running the mechanism. Elsewhere releases are
    drawn on neighbouring data sets, and what the frequencies of an event prove is a lower bound on
    epsilon that holds with probability ``confidence``.

    Parameters
    ----------
    mechanism : Learner, or callable
        A learner, fitted or not: its parameters count. Those of the package's that perturb their
        objective or their output are attacked by their formula, any other
        :class:`~convexmarket.learners.Learner` by what it publishes, which is every number in an
        attribute whose name ends in ``_``. Or, for a release, a function ``mechanism(X, y)`` that
        fits what needs no noise and returns a function from an integer seed to a release.
    X : array_like of shape (n_rows, n_features)
        Rows in the mechanism's public domain.
    y : array_like of shape (n_rows,)
    others : {"worst", "given"}, default "worst"
        The rows that stay: ``"worst"`` looks for the worst ones too, since the guarantee is for
        every data set; ``"given"``, not for other losses than the logistic one, keeps those of X
        and y. Draws always keep them.
    rows : array_like of int, optional
        Positions of the rows to audit. By default ``n_rows`` used rows of small to large
        guarantees, or the one of the largest guarantee where releases are drawn.
    n_rows : int, default 5
    draws : int, default 200
        Releases drawn on each data set. A frequency cannot prove more than about
        ``log(draws / 10)``: draw thousands where releases are audited.
    confidence : float, default 0.999
        With which each check, and each statistical bound, is right.
    random_state : None, int, SeedSequence, Generator or RandomState, default None
        Source of starts and seeds.
    **arguments
        For a learner ``epsilon``, as its ``fit`` takes it, and for one of a user's own ``view``
        and ``replacements`` as below. For a function: ``points``, where releases are asked for
        predictions, or ``view``, from a release to the numbers that it publishes; ``guarantee``,
        if the release does not carry one; and ``replacements``, rows and labels that an audited
        row may be, such as the corners of the
        public domain, by default made of the data.

    Returns
    -------
    PrivacyAudit

    Raises
    ------
    DataError
        If the data are malformed, or outside the mechanism's domain.
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    Objective perturbation: the density of the released model is known
    (:func:`~convexmarket.learners.objective_perturbation_log_density`), and the difference of two
    of them is the loss at an output. Output perturbation: the loss is the distance of two models
    times the noise's rate. What is not seen here: timing, the digits of floating point, and
    whatever happens outside the mechanism.

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-0.5, 0.5, (40, 3))
    >>> y = np.where(X[:, 0] > 0, 1, -1)
    >>> learner = cm.PrivateLogisticRegression(0.1)
    >>> audit = cm.audit_privacy(learner, X, y, epsilon=1.0, n_rows=1, draws=40, random_state=0)
    >>> audit.passed, bool(audit.ratio > 0.9)
    (True, True)
    """
    each = {name: arguments[name] for name in ("weights", "epsilon") if name in arguments}
    X, y, *given = aligned(X=X, y=y, **each)
    arguments |= dict(zip(each, given, strict=True))
    matrix, labels = _checked_data(X, y)
    check_share("confidence", confidence)
    draws, n_rows = check_count("draws", draws), check_count("n_rows", n_rows)
    if others not in ("worst", "given"):
        raise ParameterError(f"others must be 'worst' or 'given', got {others!r}")
    places = None if rows is None else _checked_rows(rows, len(matrix))
    rng = open_generator(random_state)
    run, drawn = _auditor(mechanism)
    terms: tuple[Any, ...] = (places, draws, confidence, rng)
    if not drawn:
        terms = (places, n_rows, others == "worst", draws, confidence, rng)
    _check_arguments(run, arguments)
    return run(mechanism, matrix, labels, *terms, **arguments)


def _auditor(mechanism: object) -> tuple[Callable[..., PrivacyAudit], bool]:
    """Return what audits a mechanism, and whether it only draws releases."""
    if isinstance(mechanism, ObjectiveLearner):
        return audit_objective, False
    if isinstance(mechanism, PersonalizedRidge):
        if mechanism.perturbation in ("auto", "objective"):
            return audit_objective_ridge, False
        if mechanism.perturbation == "output" and not mechanism.fit_intercept:
            return audit_ridge, False
        return partial(audit_learner, view=_coefficients), True  # there is no formula
    if callable(getattr(mechanism, "fit", None)):
        return audit_learner, True
    if callable(mechanism):
        return audit_draws, True
    raise ParameterError(
        "mechanism must be a learner, with fit and guarantee_, or a function from (X, y) to a "
        f"function from a seed to a release, got {mechanism!r:.80}"
    )


def _coefficients(model: PersonalizedRidge) -> Floats:
    return np.append(model.coef_, model.intercept_)


def _check_arguments(run: Callable[..., PrivacyAudit], arguments: dict[str, Any]) -> None:
    """Refuse arguments that the mechanism's audit does not take, or does not get."""
    own = {
        name: parameter
        for name, parameter in signature(run).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    unknown = sorted(set(arguments) - set(own))
    missing = sorted(
        name for name, p in own.items() if p.default is p.empty and name not in arguments
    )
    if unknown or missing:
        wrong = f"{unknown[0]}= is unknown" if unknown else f"{missing[0]}= is missing"
        raise ParameterError(f"{wrong}: for this mechanism, audit_privacy takes {', '.join(own)}")


def _checked_data(X: ArrayLike, y: ArrayLike) -> tuple[Floats, NDArray[Any]]:
    """Return finite rows and their labels."""
    matrix = np.array(checked_numbers("X", X, DataError, truth_values=True))
    labels = np.array(y)
    if matrix.ndim != 2 or matrix.size == 0 or not np.all(np.isfinite(matrix)):
        raise DataError(
            f"X must be a nonempty table of finite numbers; its shape is {matrix.shape}"
        )
    if labels.shape != (len(matrix),):
        raise DataError(
            f"y has shape {labels.shape} for {len(matrix)} rows; give one label per row"
        )
    return matrix, labels


def _checked_rows(rows: ArrayLike, n_rows: int) -> NDArray[np.intp]:
    """Return positions of rows."""
    places = np.atleast_1d(np.asarray(rows))
    integers = places.ndim == 1 and places.size > 0 and np.issubdtype(places.dtype, np.integer)
    if not integers or places.min() < 0 or places.max() >= n_rows:
        raise ParameterError(f"rows must be positions from 0 to {n_rows - 1}, got {rows!r:.80}")
    return places.astype(np.intp)
