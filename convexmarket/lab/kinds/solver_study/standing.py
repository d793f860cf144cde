"""What is fastest in a solver study, what decides, and where solvers break: only what numbers show.

The exact method is no solver: what is said of the fastest is said of the others. A difference in
time is called one only if its 95% interval excludes 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem
from convexmarket.lab.report.parts import select
from convexmarket.lab.report.words import listing
from convexmarket.lab.result import Result
from convexmarket.studies.measure import EXACT
from convexmarket.studies.metrics import CONTENDER, COUNTED, counted
from convexmarket.studies.pairs import time_ratio

__all__ = [
    "EVERY",
    "Standing",
    "breaks",
    "choice",
    "contender_name",
    "ranked",
    "settings",
    "standing",
    "worst_claim",
]

#: What stands for the sizes of a contender that breaks at all of several.
EVERY = "every size"


def contender_name(solver: str, formulation: str) -> str:
    """Write solver and formulation.

    Examples
    --------
    >>> contender_name("CLARABEL", "projection"), contender_name("exact", "exact")
    ('CLARABEL, projection', 'exact')
    """
    return solver if solver == formulation else f"{solver}, {formulation}"


def settings(result: Result[SolverStudyProblem]) -> list[str]:
    """Return the settings in which something ran, in the order of the problem file."""
    ran = set(counted(result.tables["runs"]).setting)
    return [name for name in result.problem.study.settings if name in ran]


def ranked(result: Result[SolverStudyProblem], problem_class: str, setting: str) -> pd.DataFrame:
    """Return means and rates of a group's contenders, all sizes together, the fastest first."""
    place = {"problem_class": problem_class, "setting": setting}
    means, rates = (
        table[table["size"].isna()].drop(columns="size")
        for table in (
            select(result.tables["means"], **place),
            select(result.tables["rates"], **place),
        )
    )
    both = means.merge(rates, on=[*place, *CONTENDER], validate="one_to_one")
    names = [contender_name(*pair) for pair in both[CONTENDER].itertuples(index=False)]
    return both.assign(name=names).sort_values("total_s", kind="stable", ignore_index=True)


def choice(means: pd.DataFrame) -> pd.DataFrame:
    """Return by which factor the formulation and the solver change the mean time, in each group.

    Parameters
    ----------
    means : DataFrame
        Of :func:`convexmarket.studies.metrics.means`.

    Returns
    -------
    DataFrame
        For each class and setting, and for each of "formulation" and "solver" as what changes
        while the other stays: how many pairs, and the geometric mean, the least and the largest of
        the ratios of the slower to the faster. Groups without pairs of both are left out.
    """
    means = means[means["size"].isna() & (means.solver != EXACT) & means.total_s.notna()]
    rows = []
    for place, group in means.groupby(["problem_class", "setting"], sort=False):
        key = dict(zip(("problem_class", "setting"), place, strict=True))
        for changed, kept in (CONTENDER[::-1], CONTENDER):
            factors = [
                max(pair) / min(pair)
                for _, own in group.groupby(kept)
                for pair in combinations(own.total_s, 2)
            ]
            if factors:
                ends = {"low": min(factors), "high": max(factors)}
                factor = float(np.exp(np.log(factors).mean()))
                rows.append(
                    {**key, "changed": changed, "pairs": len(factors), "factor": factor, **ends}
                )
    columns = ["problem_class", "setting", "changed", "pairs", "factor", "low", "high"]
    table = pd.DataFrame(rows, columns=columns)
    return table[table.duplicated(["problem_class", "setting"], keep=False)]


def breaks(rates: pd.DataFrame) -> pd.DataFrame:
    """Return where contenders break: the sizes at which less than half is solved.

    Parameters
    ----------
    rates : DataFrame
        Of :func:`convexmarket.studies.metrics.rates`.

    Returns
    -------
    DataFrame
        One row per class, setting and contender that breaks: sizes (in words), solved and runs at
        these sizes together, and the most frequent other outcome there.
    """
    key = ["problem_class", "setting", *CONTENDER]
    rows = []
    for contender, own in rates[rates["size"].notna()].groupby(key, sort=False):
        low = own[own.success < 0.5]
        if low.empty:
            continue
        every = len(low) == len(own) > 1
        others = {name: int(low[name.replace(" ", "_")].sum()) for name in COUNTED[1:]}
        rows.append(
            {
                **dict(zip(key, contender, strict=True)),
                "sizes": EVERY if every else listing([f"{size:,.0f}" for size in low["size"]]),
                "solved": int(low.solved.sum()),
                "runs": int(low.runs.sum()),
                "outcome": max(others, key=lambda name: others[name]),
            }
        )
    return pd.DataFrame(rows, columns=[*key, "sizes", "solved", "runs", "outcome"])


def worst_claim(wrong: pd.DataFrame) -> dict[Any, Any]:
    """Return the run that is wrong by most, with what is wrong about it.

    Of its two solves that is the first if the first is wrong: another that failed has an infinite
    error. ``again``, ``says``, ``error`` and ``best`` are of the solve that is spoken of.
    """
    errors = wrong.accuracy.where(wrong.accuracy > wrong.tolerance, wrong.again_accuracy)
    run = wrong.iloc[int(np.argmax(errors))]
    again = bool(run.accuracy <= run.tolerance)
    prefix = "again_" if again else ""
    return run.to_dict() | {
        "name": contender_name(run.solver, run.formulation),
        "again": again,
        "says": run[f"{prefix}status"],
        "error": run[f"{prefix}accuracy"],
        "best": run[f"{prefix}reference"],
    }


# ------------------------------------------------------------------------------ who is fastest


@dataclass(frozen=True)
class Standing:
    """The least mean of a group, and how the times of the others compare with it, in order.

    Attributes
    ----------
    problem_class : str
    everyone : DataFrame
        Of :func:`ranked`.
    best : mapping or None
        The solver of the least mean, if one has any.
    others : list of mapping
        The others that solve something: their rows, with ``ratio`` of their time to the best's
        where both solve, and its 95% interval ``low`` to ``high``.
    exact : mapping or None
        The exact method, with the ratio of the best's time to its own.
    largest : mapping or None
        The least mean at the largest size at which some solver solves half, where there are
        several sizes; ``beyond`` is whether larger ones were tried.
    """

    problem_class: str
    everyone: pd.DataFrame
    best: Mapping[Any, Any] | None
    others: list[dict[Any, Any]]
    exact: dict[Any, Any] | None = None
    largest: dict[Any, Any] | None = None

    @property
    def quicker(self) -> list[dict[Any, Any]]:
        """Those measurably faster where both solve."""
        return [row for row in self.others if row["high"] < 1.0]

    @property
    def level(self) -> list[dict[Any, Any]]:
        """Those that show no difference."""
        return [row for row in self.others if row["low"] <= 1.0 <= row["high"]]

    @property
    def slower(self) -> list[dict[Any, Any]]:
        """Those measurably slower where both solve."""
        return [row for row in self.others if row["low"] > 1.0]

    @property
    def incomparable(self) -> list[dict[Any, Any]]:
        """Those with too few solved instances in common."""
        return [row for row in self.others if np.isnan(row["low"])]

    @property
    def verdict(self) -> Literal["fastest", "unclear", "few", "alone", "none"]:
        """Return "fastest" only if all that can be compared, and the next in rank, are slower."""
        if self.best is None:
            return "none"
        if not self.others:
            return "alone"
        if self.quicker or self.level:
            return "unclear"
        return "few" if np.isnan(self.others[0]["low"]) else "fastest"


def standing(result: Result[SolverStudyProblem], problem_class: str, setting: str) -> Standing:
    """Compare the solvers that solve something with the one of the least mean, if one has any."""
    everyone = ranked(result, problem_class, setting)
    solving = everyone[everyone.solved > 0]
    solvers, exact = solving[solving.solver != EXACT], solving[solving.solver == EXACT]
    if not solvers.total_s.notna().any():
        return Standing(problem_class, everyone, None, [])
    best, *others = solvers.to_dict("records")  # those without a mean come last
    runs = select(counted(result.tables["runs"]), problem_class=problem_class, setting=setting)
    return Standing(
        problem_class,
        everyone,
        best,
        [row | time_ratio(runs, row, best) for row in others],
        next((row | time_ratio(runs, best, row) for row in exact.to_dict("records")), None),
        _largest(result, problem_class, setting),
    )


def _largest(
    result: Result[SolverStudyProblem], problem_class: str, setting: str
) -> dict[Any, Any] | None:
    place = {"problem_class": problem_class, "setting": setting}
    means = select(result.tables["means"], **place).merge(
        result.tables["rates"], on=[*place, "size", *CONTENDER]
    )
    means = means[means["size"].notna() & (means.solver != EXACT)]
    half = means[means.success >= 0.5]
    able = half[half.total_s.notna()]
    if able["size"].nunique() < 2:
        return None
    last = able[able["size"] == able["size"].max()]
    first = last.loc[last.total_s.idxmin()]
    return {
        **first.to_dict(),
        "name": contender_name(first.solver, first.formulation),
        "beyond": bool(means["size"].max() > half["size"].max()),
    }
