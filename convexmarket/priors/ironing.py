"""Nodes of a continuous prior, and the ironing of its virtual cost on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import expit

__all__ = ["IronedCosts", "dense_nodes", "iron", "never_falls"]

FloatArray = NDArray[np.float64]

# Nodes are quantiles that are dense in both tails, down to this probability, with equally spaced
# sensitivities between two neighbours, and equally spaced sensitivities over the whole support.
_TAIL = 1e-9
_TAIL_LEVELS = 97
_EVEN_LEVELS = 33
_SUBDIVISIONS = 16
_EVEN_NODES = 4097

# Ironing differences the expected-cost curve: cells of less probability drown in rounding.
_SMALLEST_CELL = 1e-7


class IronedCosts(NamedTuple):
    """An ironed virtual cost, to be interpolated linearly between nodes."""

    nodes: FloatArray  # sensitivities, increasing
    costs: FloatArray  # the ironed psi there, nondecreasing and finite
    ends: FloatArray  # of the ironed intervals


def dense_nodes(
    quantile: Callable[[FloatArray], FloatArray], support: tuple[float, float]
) -> FloatArray:
    """Return a grid of sensitivities, denser where the density is larger, with finite ends."""
    reach = np.log1p(-_TAIL) - np.log(_TAIL)
    levels = np.union1d(
        expit(np.linspace(-reach, reach, _TAIL_LEVELS)),
        np.linspace(0, 1, _EVEN_LEVELS)[1:-1],
    )
    ends = [end for end in support if np.isfinite(end)]
    anchors = np.union1d(quantile(levels), ends)
    steps = np.arange(_SUBDIVISIONS) / _SUBDIVISIONS
    between = anchors[:-1, None] + np.diff(anchors)[:, None] * steps
    return np.union1d(between, np.linspace(anchors[0], anchors[-1], _EVEN_NODES))


def never_falls(costs: FloatArray) -> bool:
    """Test whether virtual costs, except infinite ones, are nondecreasing up to rounding."""
    costs = costs[np.isfinite(costs)]
    return bool(np.all(np.diff(costs) > -1e-12 * costs[1:]))


def iron(
    nodes: FloatArray, levels: FloatArray, virtual_cost: Callable[[FloatArray], FloatArray]
) -> IronedCosts:
    """Iron a virtual cost, given the probabilities ``levels`` = F(nodes)."""
    chosen = [0]  # nodes at least the smallest cell apart in probability, and the last
    for position, level in enumerate(levels):
        if level - levels[chosen[-1]] >= _SMALLEST_CELL <= levels[-1] - level:
            chosen.append(position)
    chosen.append(len(levels) - 1)
    nodes, levels = nodes[chosen], levels[chosen]
    mass = np.diff(levels)
    slopes = isotonic_regression(np.diff(nodes * levels) / mass, weights=mass).x
    # At a node the hull may take any slope between those of its two cells: take psi if it is
    # one of them. That is exact off the ironed intervals, and constant on them.
    lower, upper = np.append(-np.inf, slopes), np.append(slopes, np.inf)
    costs = np.clip(virtual_cost(nodes), lower, upper)
    nodes, costs = nodes[np.isfinite(costs)], costs[np.isfinite(costs)]
    flat = np.concatenate([[False], np.diff(costs) == 0, [False]])
    return IronedCosts(nodes, costs, nodes[flat[1:] != flat[:-1]])
