"""Result of a privacy audit: claimed epsilons, measured losses and checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.display import Shown

__all__ = ["AuditCheck", "Neighbours", "PrivacyAudit"]

Floats = NDArray[np.float64]

ROUNDING = 1e-9  # largest relative excess of a measured loss over the claim due to rounding


class AuditCheck(NamedTuple):
    """Result of a test of an assumption on which the measured losses rely."""

    name: str
    passed: bool
    detail: str  # description of the measurement


class Neighbours(NamedTuple):
    """Two data sets that differ in one row, and the output that best distinguishes them."""

    row: int
    X: Floats
    y: NDArray[Any]
    X_other: Floats
    y_other: NDArray[Any]
    output: Floats | None = None  # None if the loss does not depend on outputs


@dataclass(frozen=True, eq=False)
class PrivacyAudit(Shown):
    """Claimed epsilons and largest measured privacy losses of rows.

    Measured losses are lower bounds. An audit can refute a guarantee, but it cannot prove one.

    Attributes
    ----------
    mechanism, method : str
        Description of the mechanism, and "exact" if losses are computed by a formula, or
        "statistical" if frequencies bound the losses.
    rows, claimed, measured : ndarray of shape (n_audited,)
        Positions of the audited rows, their epsilons, and the largest measured losses, in nats.
    delta, confidence : float
        Delta of the guarantee, and probability with which each check or bound is correct.
    checks, witnesses : tuple of AuditCheck, tuple of Neighbours

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 2))
    >>> y, learner = np.where(X[:, 0] > 0, 1, -1), cm.PrivateLogisticRegression(0.1)
    >>> audit = cm.audit_privacy(learner, X, y, epsilon=1.0, n_rows=1, draws=40, random_state=0)
    >>> audit.method, audit.passed
    ('exact', True)
    """

    mechanism: str
    method: Literal["exact", "statistical"]
    rows: NDArray[np.intp]
    claimed: Floats
    measured: Floats
    delta: float
    confidence: float
    checks: tuple[AuditCheck, ...]
    witnesses: tuple[Neighbours, ...]

    @property
    def witness(self) -> Neighbours:
        """Neighbouring data sets with the largest ratio of measured loss to claimed epsilon."""
        return self.witnesses[int(np.argmax(self.ratios))]

    @property
    def ratios(self) -> Floats:
        """Ratios of measured losses to claimed epsilons, shape (n_audited,), where 0/0 is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.measured == 0.0, 0.0, self.measured / self.claimed)

    @property
    def ratio(self) -> float:
        """Largest ratio of measured loss to claimed epsilon. A ratio above 1 refutes the claim."""
        return float(self.ratios.max())

    @property
    def passed(self) -> bool:
        """Whether no measured loss exceeds its claimed epsilon and every check passed."""
        return self.ratio <= 1.0 + ROUNDING and all(check.passed for check in self.checks)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each audited row."""
        columns = {"row": self.rows, "claimed": self.claimed, "measured": self.measured}
        return pd.DataFrame(columns | {"ratio": self.ratios})

    def statement(self) -> str:
        """Describe the result in text, with one line for each check."""
        kind = "lower bound" if self.method == "statistical" else "exact loss, checks"
        verdict = "was not refuted" if self.passed else "is REFUTED"
        largest = f"The largest ratio of measured loss to claimed epsilon is {self.ratio:.3f} "
        largest += f"({kind} with confidence {self.confidence:g}; audited rows: {self.rows.size})."
        lines = [f"- {'ok' if c.passed else 'FAILED'}: {c.name}: {c.detail}" for c in self.checks]
        return "\n".join([f"{self.mechanism}: the guarantee {verdict}.", largest, *lines])

    __str__ = statement
