"""What the papers claim of sellers who arrive one by one, tested on paired draws; and powers of m.

Draws in which a policy bought nothing have an infinite loss. They are left out of a test, and the
test says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.lab.claims import Claim, Verdict, check_shape, paired_change, power_fit
from convexmarket.lab.kinds.online_study.problem import OnlineStudyProblem, StudyClaimTable

__all__ = ["CLOSE_TO_ONE", "study_claims"]

Floats = NDArray[np.float64]

#: A ratio that is this close to 1 has come to 1, if it comes closer all the while.
CLOSE_TO_ONE = 0.01
#: Distances to 1 that are smaller are rounding.
_ROUNDING = 1e-12


def study_claims(problem: OnlineStudyProblem, draws: pd.DataFrame) -> tuple[Claim, ...]:
    """Test every claim of the file, at each fraction (or each size) by itself.

    Parameters
    ----------
    problem : OnlineStudyProblem
    draws : DataFrame
        Columns policy, fraction, size, draw, and the measures.
    """
    return tuple(_tested(table, problem, draws) for table in problem.claims)


def _tested(table: StudyClaimTable, problem: OnlineStudyProblem, draws: pd.DataFrame) -> Claim:
    policy = table.policy or problem.study.policies[0]
    along, at = ("size", "fraction") if table.over == "sizes" else ("fraction", "size")
    symbol = "ξ" if at == "fraction" else "m"
    verdicts: list[Verdict] = []
    words: list[str] = []
    groups = draws[draws.policy == policy].groupby(at, sort=True)
    for place, rows in groups:
        wide = rows.pivot_table(index="draw", columns=along, values=table.measure, dropna=False)
        verdict, found = _tested_curves(table, wide)
        verdicts.append(verdict)
        words.append(f"{symbol} = {place:,g}: {found}" if len(groups) > 1 else found)
    return Claim(table.source, table.says, _together(verdicts), "; ".join(words), table.remark)


def _tested_curves(table: StudyClaimTable, wide: pd.DataFrame) -> tuple[Verdict, str]:
    """Test one curve per draw; what has a gap is left out and counted."""
    known = np.isfinite(wide.to_numpy(dtype=float))
    if table.exponent is not None:
        full = wide.loc[:, known.all(axis=0)]
        verdict, found = _power(full, table)
        if gaps := wide.shape[1] - full.shape[1]:
            found += f" ({gaps} of {wide.shape[1]} sizes left out: some draw bought nothing)"
        return verdict, found
    kept = wide[known.all(axis=1)].to_numpy(dtype=float)
    if len(kept) == 0:
        return "not reproduced", "no draw to test: in each, nothing was bought somewhere"
    if table.shape == "approaches 1":
        verdict, found = _to_one(kept)
    else:
        verdict, found = check_shape(kept, table.shape)
    if len(kept) < len(wide):
        found += f" ({len(kept)} of {len(wide)} draws; in the others nothing was bought somewhere)"
    return verdict, found


def _to_one(values: Floats) -> tuple[Verdict, str]:
    """Check that the distance to 1 falls, by its logarithms, and how much of it is left.

    Some draws are far off for small m, so that a mean of distances says little about the others.
    """
    distance = np.abs(values - 1.0)
    logs = np.log(np.maximum(distance, _ROUNDING))
    verdict, _ = check_shape(logs, "falls")
    first, last = distance.mean(axis=0)[[0, -1]]
    if verdict == "reproduced" and last > CLOSE_TO_ONE:
        verdict = "reproduced in part"
    fall = paired_change(logs[:, 0], logs[:, -1])
    factor, low, high = np.exp([fall.mean, fall.low, fall.high])
    return verdict, (
        f"distance to 1 from {first:.3g} to {last:.3g}; its geometric mean to {factor:.2%} of what "
        f"it was (95% interval {low:.2%} to {high:.2%})"
    )


def _power(wide: pd.DataFrame, table: StudyClaimTable) -> tuple[Verdict, str]:
    """Check that means fall at least as fast as a power; in part where the interval allows it."""
    exponent = table.exponent or 0.0
    offset = 1.0 if table.measure == "ratio" else 0.0
    fit = power_fit(wide.columns, wide.mean(axis=0) - offset)
    if fit.n_points < 3:
        return "not reproduced", f"{fit.n_points} sizes are too few to fit a power to"
    if fit.high <= exponent:
        return "reproduced", str(fit)
    return ("reproduced in part" if fit.low <= exponent else "not reproduced"), str(fit)


def _together(verdicts: Sequence[Verdict]) -> Verdict:
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return "reproduced in part"
