"""How far one curve lies above or below another, and where a curve is flat."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

__all__ = ["CLOSE", "at_equal", "compared", "flat_pieces"]

#: Relative differences between curves that interpolation does not tell from none.
CLOSE = 2e-3


def at_equal(known: pd.DataFrame, new: pd.DataFrame, equal: str, column: str) -> pd.DataFrame:
    """Compare the points of one curve with another curve at the same abscissa.

    Parameters
    ----------
    known, new : pandas.DataFrame
        The curves; ``known`` is interpolated, monotonely and on logarithmic scales, the ordinates
        on a linear one where some are not positive.
    equal : str
        The column in which they are made equal; positive.
    column : str
        The column that is compared.

    Returns
    -------
    pandas.DataFrame
        One row for each point of ``new``: variant, value, the two columns, ``there`` (the other
        curve at the same abscissa) and ``change`` (relative to its size); missing outside its
        range.
    """
    known = known[known[equal] > 0].sort_values(equal).drop_duplicates(equal)
    rows = new[["variant", "value", equal, column]].copy()
    if len(known) < 2:
        return rows.assign(there=np.nan, change=np.nan)
    logarithmic = bool((known[column] > 0).all())
    ordinates = np.log(known[column]) if logarithmic else known[column]
    curve = PchipInterpolator(np.log(known[equal]), ordinates, extrapolate=False)
    there = curve(np.log(rows[equal].where(rows[equal] > 0)))
    rows["there"] = np.exp(there) if logarithmic else there
    rows["change"] = (rows[column] - rows.there) / rows.there.abs()
    return rows


def compared(rows: pd.DataFrame) -> dict[str, Any]:
    """Say how a curve lies to another; ``rows`` are those of :func:`at_equal`.

    Returns
    -------
    dict
        ``how``: "apart" where the curves have no abscissa in common, "same" where no difference
        can be told from interpolation, else "above", "below" or "across"; ``n`` points were
        compared, of ``of``; the rows with the ``lowest`` and the ``highest`` change, and
        ``within``, of which none is more.

    Examples
    --------
    >>> rows = pd.DataFrame({"value": [1.0, 2.0, 3.0], "change": [-0.009, np.nan, -0.0001]})
    >>> found = compared(rows)
    >>> found["how"], found["n"], found["lowest"]["value"]
    ('below', 2, 1.0)
    """
    known = rows.dropna(subset=["change"])
    if known.empty:
        return {"how": "apart", "n": 0, "of": len(rows)}
    by_sign = known.sort_values("change", kind="stable").to_dict("records")
    lowest, highest = by_sign[0], by_sign[-1]
    farthest = max(-lowest["change"], highest["change"])
    if farthest < CLOSE:
        how = "same"
    elif lowest["change"] > -CLOSE:
        how = "above"
    else:
        how = "below" if highest["change"] < CLOSE else "across"
    return {
        "how": how,
        "n": len(known),
        "of": len(rows),
        "lowest": lowest,
        "highest": highest,
        "within": max(1, math.ceil(1e3 * farthest)) / 1e3,
    }


def flat_pieces(rows: pd.DataFrame) -> list[tuple[float, float]]:
    """Return the intervals of sensitivities on which a tabulated ironed virtual cost is flat.

    Parameters
    ----------
    rows : pandas.DataFrame
        Columns sensitivity and ironed of one prior, in order.

    Examples
    --------
    >>> flat_pieces(pd.DataFrame({"sensitivity": [1.0, 2.0, 3.0, 4.0], "ironed": [1, 5, 5, 7]}))
    [(2.0, 3.0)]
    """
    levels = rows.ironed.to_numpy(dtype=float)
    flat = np.isclose(np.diff(levels), 0.0, rtol=0.0, atol=1e-9 * np.abs(levels).max())
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flat, [0]))))
    c = rows.sensitivity.to_numpy(dtype=float)
    return [(float(c[start]), float(c[end])) for start, end in edges.reshape(-1, 2)]
