"""Compare averages over random noise up to their standard errors."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ERRORS", "apart_by_chance"]

#: Largest allowed ratio of a difference of averages to its standard error.
ERRORS = 4.0


def apart_by_chance(stored: dict[str, Any], new: dict[str, Any], at: str) -> list[str]:
    """Compare two lists of averages (``mean``) up to their standard errors (``error``)."""
    means = np.array(stored["mean"], dtype=float), np.array(new["mean"], dtype=float)
    if means[0].shape != means[1].shape:
        return [f"{at}: stored {means[0].shape} averages, now {means[1].shape}"]
    errors = np.array([stored["error"], new["error"]], dtype=float)
    error = np.hypot(*np.nan_to_num(errors))  # the error of a single draw is NaN
    distance = np.abs(means[0] - means[1])
    rounding = 1e-9 * np.maximum(np.abs(means[0]), np.abs(means[1]))
    same = (np.isnan(means[0]) & np.isnan(means[1])) | (means[0] == means[1])
    return [
        f"{at}[{place}]: stored {means[0][place]:g}, now {means[1][place]:g},"
        f" {distance[place]:.1e} apart, with a standard error of {error[place]:.1e}"
        for place in np.flatnonzero(~(same | (distance <= ERRORS * error + rounding)))
    ]
