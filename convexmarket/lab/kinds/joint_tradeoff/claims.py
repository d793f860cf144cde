"""The papers' claims about the joint problem over gamma, tested on paired draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.lab.claims import (
    Change,
    Claim,
    Verdict,
    check_shape,
    paired_change,
)

__all__ = ["compare_models", "tradeoff_claims"]

Floats = NDArray[np.float64]

#: Overall errors that differ by more than this, relative to that with independent sensitivities,
#: do not count as similar.
_SIMILAR = 0.10
_COMPARED = ["error", "payments", "overall", "low", "high", "verdict"]


class Draws:
    """The draws of every answer, by scenario, model and gamma.

    Parameters
    ----------
    frame : DataFrame
        Columns scenario, model, gamma, draw, payments (the same for all draws) and test_error.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        self._rows: dict[tuple[Any, ...], pd.DataFrame] = {}
        if len(frame):
            groups = frame.groupby(["scenario", "model", "gamma"], sort=False)
            self._rows = {key: rows.sort_values("draw") for key, rows in groups}

    def __contains__(self, key: tuple[str, str, float]) -> bool:
        return key in self._rows

    def gammas(self, scenario: str, *models: str) -> list[float]:
        """Return where all these models have an answer, in increasing order."""
        known = [{g for s, m, g in self._rows if (s, m) == (scenario, model)} for model in models]
        return sorted(set.intersection(*known))

    def errors(self, scenario: str, model: str, gamma: float) -> Floats:
        """Return the test errors."""
        return self._rows[scenario, model, gamma].test_error.to_numpy()

    def payments(self, scenario: str, model: str, gamma: float) -> float:
        """Return the expected payments."""
        return float(self._rows[scenario, model, gamma].payments.iloc[0])

    def overall(self, scenario: str, model: str, gamma: float) -> Floats:
        """Return the overall errors, test error plus gamma times payments."""
        key = (scenario, model, gamma)
        return self.errors(*key) + gamma * self.payments(*key)


def compare_models(draws: pd.DataFrame) -> pd.DataFrame:
    """Return by how much the joint model differs from the two others, at every gamma.

    Parameters
    ----------
    draws : DataFrame
        Columns scenario, model, gamma, draw, payments and test_error.

    Returns
    -------
    DataFrame
        scenario, gamma, other; error, payments and overall (joint minus other); low and high (95%
        interval of ``overall``, paired over draws; infinite with one draw); verdict ("lower",
        "higher" or "not told apart"). Only where both models have an answer.
    """
    found = Draws(draws)
    scenarios = list(dict.fromkeys(draws.scenario)) if len(draws) else []
    rows = [
        {"scenario": scenario, "gamma": gamma, "other": other}
        | _compared(found, (scenario, "joint", gamma), (scenario, other, gamma))
        for scenario in scenarios
        for other in ("two-step", "naive")
        for gamma in found.gammas(scenario, "joint", other)
    ]
    return pd.DataFrame(rows, columns=["scenario", "gamma", "other", *_COMPARED])


def _compared(
    draws: Draws, ours: tuple[str, str, float], theirs: tuple[str, str, float]
) -> dict[str, Any]:
    change = paired_change(draws.overall(*theirs), draws.overall(*ours))
    verdict = "lower" if change.falls else "higher" if change.rises else "not told apart"
    return {
        "error": float(draws.errors(*ours).mean() - draws.errors(*theirs).mean()),
        "payments": draws.payments(*ours) - draws.payments(*theirs),
        "overall": change.mean,
        "low": change.low,
        "high": change.high,
        "verdict": verdict,
    }


def tradeoff_claims(
    draws: pd.DataFrame,
    gammas: list[float],
    scenarios: list[str],
    remarks: Mapping[str, str],
) -> tuple[Claim, ...]:
    """Test what A and B say of their Fig. 2 on the joint model.

    Parameters
    ----------
    draws : DataFrame
        Columns scenario, model, gamma, draw, payments and test_error.
    gammas, scenarios : list
        Of the problem, whether there are answers or not.
    remarks : mapping of str to str
        Why a claim was not reproduced, by its key; used where it was not.
    """
    known, gammas = Draws(draws), sorted(gammas)
    found: dict[str, Claim] = {}
    for scenario in scenarios:
        where = f"{scenario} sensitivities"
        if len(gammas) > 1:
            found[f"tradeoff_{scenario}"] = Claim(
                "A and B, Fig. 2a",
                f"As γ rises, the test error rises and payments fall, {where}",
                *_tradeoff(known, scenario, gammas),
            )
        found[f"naive_{scenario}"] = Claim(
            "A and B, Fig. 2b",
            f"The overall error is below that of the naive model at every γ, {where}",
            *_below_naive(known, scenario, gammas),
        )
    if {"independent", "correlated"} <= set(scenarios):
        found["similar"] = Claim(
            "B, section 5",
            "With sensitivities correlated with the data the performance is similar (at every γ "
            f"the overall error differs by at most {_SIMILAR:.0%})",
            *_similar(known, gammas),
        )
    return tuple(
        claim if claim.verdict == "reproduced" else replace(claim, remark=remarks.get(key, ""))
        for key, claim in found.items()
    )


def _tradeoff(draws: Draws, scenario: str, gammas: list[float]) -> tuple[Verdict, str]:
    known = draws.gammas(scenario, "joint")
    if len(known) < 2:
        return "not reproduced", f"fewer than two values of γ have an answer, of {len(gammas)}"
    errors = np.array([draws.errors(scenario, "joint", gamma) for gamma in known])
    paid = np.array([draws.payments(scenario, "joint", gamma) for gamma in known])
    error, rise = check_shape(errors.T, "rises")
    payment, _ = check_shape(np.array([paid, paid]), "falls")  # the same in all draws
    words = f"test error {rise}; expected payments from {paid[0]:.3g} to {paid[-1]:.3g}"
    if payment != "reproduced":
        words += f", rising at {int((np.diff(paid) > 0).sum())} of {paid.size - 1} steps"
    verdicts, missing = {error, payment}, _missing(known, gammas)
    if verdicts == {"not reproduced"}:
        return "not reproduced", words + missing
    whole = verdicts == {"reproduced"} and not missing
    return ("reproduced" if whole else "reproduced in part"), words + missing


def _below_naive(draws: Draws, scenario: str, gammas: list[float]) -> tuple[Verdict, str]:
    known = draws.gammas(scenario, "joint", "naive")
    changes = {
        gamma: paired_change(
            draws.overall(scenario, "naive", gamma), draws.overall(scenario, "joint", gamma)
        )
        for gamma in known
    }
    lower = sum(change.falls for change in changes.values())
    words = f"lower at {lower} of {len(gammas)} values of γ{_extreme(changes)}"
    return _counted(lower, len(gammas)), words + _missing(known, gammas)


def _similar(draws: Draws, gammas: list[float]) -> tuple[Verdict, str]:
    known = sorted(
        set(draws.gammas("independent", "joint")) & set(draws.gammas("correlated", "joint"))
    )
    changes, close = {}, 0
    for gamma in known:
        plain = draws.overall("independent", "joint", gamma)
        changes[gamma] = paired_change(plain, draws.overall("correlated", "joint", gamma))
        close += abs(changes[gamma].mean) <= _SIMILAR * plain.mean()
    words = f"within {_SIMILAR:.0%} at {close} of {len(gammas)} values of γ"
    words += _extreme(changes, lambda change: abs(change.mean))
    return _counted(close, len(gammas)), words + _missing(known, gammas)


def _extreme(
    changes: Mapping[float, Change], size: Callable[[Change], float] = lambda change: change.mean
) -> str:
    """Say where a change is largest, by the mean unless told otherwise."""
    if not changes:
        return ""
    gamma = max(changes, key=lambda key: size(changes[key]))
    return f"; the largest difference is at γ = {gamma:g}: {changes[gamma]}"


def _counted(number: int, whole: int) -> Verdict:
    if number == whole:
        return "reproduced"
    return "reproduced in part" if number else "not reproduced"


def _missing(known: list[float], gammas: list[float]) -> str:
    missing = len(gammas) - len(known)
    return f"; {missing} of {len(gammas)} values of γ have no answer" if missing else ""
