"""How time grows with size: the exponent of a power, fitted by least squares."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student

from convexmarket.lab.study.metrics import (
    CONTENDER,
    contender_key,
    groups,
    resolve_seconds,
    seconds,
)

__all__ = ["Exponent", "fit_exponent", "scaling"]

_CONFIDENCE = 0.95


class Exponent(NamedTuple):
    """An exponent, the ends of its 95% interval, and what it rests on."""

    exponent: float
    low: float
    high: float
    sizes: int
    runs: int


def fit_exponent(sizes: pd.Series, times: pd.Series, family: pd.Series) -> Exponent:
    """Fit ``log(time) = level of the family + exponent * log(size)``.

    Parameters
    ----------
    sizes, times : Series
        Positive and finite, one entry per run.
    family : Series
        What the run is of. Each family has a level of its own, so that a hard problem that was run
        at large sizes only does not pass for growth.

    Returns
    -------
    Exponent
        Only families of two sizes or more say anything of growth. With an interval from the
        scatter of the runs around the lines where these have three sizes or more among them;
        without one (NaN) for two; all NaN where there is no such family.
    """
    frame = pd.DataFrame({"x": np.log(sizes), "y": np.log(times)})
    x, y = (frame - frame.groupby(family).transform("mean")).to_numpy().T
    different = int(sizes.nunique())
    telling = sizes[sizes.groupby(family).transform("nunique") > 1]
    if telling.empty:
        return Exponent(np.nan, np.nan, np.nan, different, len(frame))
    exponent = float(x @ y / (x @ x))
    half, freedom = np.nan, len(frame) - family.nunique() - 1
    if telling.nunique() > 2 and freedom > 0:
        residuals = y - exponent * x
        error = np.sqrt(residuals @ residuals / freedom / (x @ x))
        half = float(student.ppf((1.0 + _CONFIDENCE) / 2.0, freedom)) * float(error)
    return Exponent(exponent, exponent - half, exponent + half, different, len(frame))


def scaling(runs: pd.DataFrame) -> pd.DataFrame:
    """Fit how the time of the solved runs of every contender grows with size.

    Parameters
    ----------
    runs : DataFrame

    Returns
    -------
    DataFrame
        One row per class, setting, contender and solve ("first" or "again"): exponent, low, high
        (95%), sizes and runs. Every problem and named instance has a level of its own.
    """
    table = []
    for place, rows in groups(runs):
        rows = rows.assign(
            family=rows.problem + "/" + rows.instance,
            first=seconds(rows),
            again=resolve_seconds(rows),
        )
        for contender, own in rows.groupby(CONTENDER, sort=False):
            for solve in ("first", "again"):
                kept = own[np.isfinite(own[solve]) & (own[solve] > 0)]
                fit = fit_exponent(kept["size"], kept[solve], kept.family)
                key = {**place, **contender_key(contender)}
                table.append({**key, "solve": solve, **fit._asdict()})
    return pd.DataFrame(table)
