"""Attack the guarantees of learners and releases by measuring privacy losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.attacks.audit_result import PrivacyAudit
from convexmarket.attacks.draws import Mechanism, View, audit_draws, audit_learner
from convexmarket.attacks.formula_audits import audit_by_formula
from convexmarket.checks import aligned, check_count, check_share, checked_numbers
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners import Learner, PersonalizedRidge
from convexmarket.learners.perturbed import ObjectiveLearner
from convexmarket.privacy import Guarantee, RandomSource
from convexmarket.privacy.random_sources import resolve_generator

__all__ = ["PrivacyAudit", "audit_privacy"]


def audit_privacy(
    mechanism: Learner | Mechanism,
    X: ArrayLike,
    y: ArrayLike,
    *,
    epsilon: ArrayLike | None = None,
    view: View | None = None,
    points: ArrayLike | None = None,
    guarantee: Guarantee | None = None,
    replacements: tuple[ArrayLike, ArrayLike] | None = None,
    rows: ArrayLike | None = None,
    n_rows: int = 5,
    draws: int = 200,
    confidence: float = 0.999,
    random_state: RandomSource = None,
) -> PrivacyAudit:
    r"""Attack the guarantee of a learner or of a release.

    If the privacy loss has a formula, the audit maximises the loss over outputs and neighbouring
    data sets, and runs the mechanism to test the conditions of the formula. Otherwise, the
    frequencies of an event in releases on neighbouring data sets prove a lower bound on epsilon.
    The audit does not test timing or the last digits of floating-point numbers.

    Parameters
    ----------
    mechanism : Learner, or callable
        A fitted or unfitted learner. Learners with objective or output perturbation are audited by
        formula. For any other :class:`~convexmarket.learners.Learner`, the audit uses the numbers
        in attributes whose names end in ``_``. For a release, pass a function ``mechanism(X, y)``
        that fits all parts without noise and returns a function from an integer seed to a release.
    X, y : array_like of shape (n_rows, n_features) and (n_rows,)
        Rows in the public domain of the mechanism, and labels.
    epsilon : array_like of shape (n_rows,) or float, optional
        The epsilons that are passed to ``fit`` of a learner.
    view, points : callable, array_like, optional
        For statistical audits, a function from a release to its numbers, or the points to predict.
    guarantee : Guarantee, optional
        Claimed guarantee of a release without the attribute ``guarantee``.
    replacements : pair of array_like, optional
        For statistical audits, rows and labels that replace an audited row.
    rows, n_rows : array_like of int, int, optional
        Positions of the audited rows, or their number. By default, 5 used rows with small to large
        guarantees are audited by formula, and the row with the largest guarantee statistically.
    draws : int, default 200
        Number of releases on each data set, which prove at most an epsilon near ``log(draws/10)``.
    confidence : float, default 0.999
        Probability with which each check and each statistical bound is correct.
    random_state : None, int, SeedSequence or Generator, default None

    Returns
    -------
    PrivacyAudit

    Raises
    ------
    DataError
        If the data are outside the domain.
    ParameterError
        If an argument does not apply to the mechanism.

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 3))
    >>> y, learner = np.where(X[:, 0] > 0, 1, -1), cm.PrivateLogisticRegression(0.1)
    >>> audit = cm.audit_privacy(learner, X, y, epsilon=1.0, n_rows=1, draws=40, random_state=0)
    >>> audit.passed, bool(audit.ratio > 0.9)
    (True, True)
    """
    run, names = _attack(mechanism)
    options: dict[str, Any] = {"view": view, "points": points, "guarantee": guarantee}
    options |= {"epsilon": epsilon, "replacements": replacements}
    passed = {name: value for name, value in options.items() if value is not None}
    if unknown := [name for name in passed if name not in names]:
        raise ParameterError(
            f"{unknown[0]}= is not supported for this mechanism; use one of {', '.join(names)}"
        )
    vectors = {"epsilon": passed.pop("epsilon")} if epsilon is not None else {}
    X, y, *given = aligned(X=X, y=y, **vectors)
    passed |= dict(zip(vectors, given, strict=True))
    matrix = np.array(checked_numbers("X", X, DataError, truth_values=True))
    labels = np.array(y)
    if matrix.ndim != 2 or labels.shape != matrix.shape[:1] or not np.isfinite(matrix).all():
        raise DataError(f"X must be a finite table with one label per row, got {labels.shape}")
    check_share("confidence", confidence)
    draws, n_rows = check_count("draws", draws), check_count("n_rows", n_rows)
    if "n_rows" in names:
        passed["n_rows"] = n_rows
    places, last = None if rows is None else np.atleast_1d(np.asarray(rows)), len(labels) - 1
    valid = places is None or (places.size and places.dtype.kind in "iu" and places.ndim == 1)
    if not valid or (places is not None and np.any(places != places.clip(0, last))):
        raise ParameterError(f"rows must be positions from 0 to {last}, got {rows!r:.80}")
    terms = places, draws, confidence, resolve_generator(random_state, protective=False)
    return run(mechanism, matrix, labels, *terms, **passed)


def _attack(mechanism: object) -> tuple[Callable[..., PrivacyAudit], tuple[str, ...]]:
    """Return the audit function for a mechanism, and the names of its options."""
    if isinstance(mechanism, PersonalizedRidge):
        centred = mechanism.perturbation == "output" and mechanism.fit_intercept
        if centred or mechanism.perturbation == "statistics":
            audit = partial(audit_learner, view=lambda model: [*model.coef_, model.intercept_])
            return audit, ("epsilon", "replacements")
    if isinstance(mechanism, (ObjectiveLearner, PersonalizedRidge)):
        return audit_by_formula, ("epsilon", "n_rows")
    if hasattr(mechanism, "risk") and not isinstance(mechanism, type):
        return audit_learner, ("epsilon", "view", "replacements")
    if callable(mechanism) and not isinstance(mechanism, type):
        return audit_draws, ("points", "view", "guarantee", "replacements")
    raise ParameterError(
        "mechanism must be a learner with risk, fit and guarantee_, or a function of (X, y) that "
        f"returns a function from seeds to releases, got {mechanism!r:.80}"
    )
