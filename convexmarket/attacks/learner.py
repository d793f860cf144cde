"""The audit of any learner: what it publishes after many fits on neighbouring data.

Of the learner nothing is known but the protocol. So all the numbers that a fitted one shows are
what it publishes, and their frequencies are what is compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.attacks.checks import quietly
from convexmarket.attacks.releases import audit_draws
from convexmarket.attacks.result import AuditCheck, PrivacyAudit
from convexmarket.errors import ParameterError
from convexmarket.learners.base import Learner, unfitted
from convexmarket.learners.granted import Granted
from convexmarket.privacy.accountant import PrivacyAccountant
from convexmarket.privacy.guarantee import Guarantee
from convexmarket.privacy.noise import Simulation

__all__ = ["audit_learner", "published_numbers"]

Floats = NDArray[np.float64]

#: Relative; a guarantee may exceed what was granted by its own rounding.
ROUNDING = 1e-9


def audit_learner(
    mechanism: Learner,
    X: Floats,
    y: NDArray[Any],
    rows: NDArray[np.intp] | None,
    draws: int,
    confidence: float,
    rng: np.random.Generator,
    *,
    epsilon: ArrayLike | None = None,
    view: Callable[[Any], ArrayLike] | None = None,
    replacements: tuple[ArrayLike, ArrayLike] | None = None,
) -> PrivacyAudit:
    """Audit by frequencies; see :func:`~convexmarket.audit_privacy`."""
    granted = Granted.of(X, epsilon, getattr(mechanism, "epsilon", None)).epsilon
    simulates = "random_state" in signature(mechanism.fit).parameters

    def prepare(X: Floats, y: NDArray[Any]) -> Callable[[int], Learner]:
        def release(seed: int) -> Learner:
            source: dict[str, Any] = {"random_state": Simulation(seed)}
            if not simulates:  # what is drawn is published nowhere: no open account pays for it
                source = {"accountant": PrivacyAccountant(np.full(granted.size, np.inf))}
            return unfitted(mechanism).fit(X, y, epsilon=granted, **source)

        return release

    audit = audit_draws(
        prepare, X, y, rows, draws, confidence, rng,
        view=view or published_numbers, replacements=replacements,
    )  # fmt: skip
    claimed = quietly(lambda: prepare(X, y)(0))[0].guarantee_.epsilon
    over = np.count_nonzero(claimed > granted * (1.0 + ROUNDING))
    kept = AuditCheck(
        "the guarantee is at most what each row granted",
        not over,
        f"{over} of {granted.size} rows exceed it",
    )
    return replace(audit, checks=(*audit.checks, kept))


def published_numbers(model: Any) -> Floats:
    """Return every number that a fitted learner shows in an attribute whose name ends in ``_``.

    Raises
    ------
    ParameterError
        If there is none.
    """
    shown = []
    for name, value in sorted(vars(model).items()):
        if not name.endswith("_") or name.startswith("_") or isinstance(value, Guarantee):
            continue
        array = np.asarray(value)
        if array.dtype.kind in "fiub":
            shown.append(np.asarray(array, dtype=np.float64).ravel())
    if not shown:
        raise ParameterError(
            f"a fitted {type(model).__name__} shows no numbers to attack; keep what is published "
            "in attributes whose names end in an underscore, such as coef_"
        )
    return np.concatenate(shown)
