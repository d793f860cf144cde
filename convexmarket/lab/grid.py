"""The engine of experiments over a grid: points, paired draws, and one tidy frame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from joblib import delayed

from convexmarket.errors import ConvexMarketError
from convexmarket.lab.failures import failure_status
from convexmarket.lab.stages import Stages

__all__ = ["Grid", "Streams"]


@dataclass(frozen=True)
class Streams:
    """The random numbers of one draw: every point sees the same ones.

    Attributes
    ----------
    seed, draw : int
    """

    seed: int
    draw: int = 0

    def __call__(self, purpose: int) -> np.random.Generator:
        """Return the generator for a purpose; each has a branch of the seed to itself."""
        return np.random.default_rng(
            np.random.SeedSequence(self.seed, spawn_key=(purpose, self.draw))
        )


#: What is done at one place for one draw: the other columns of its row.
One: TypeAlias = Callable[[dict[str, Any], Streams], dict[str, Any]]


@dataclass(frozen=True)
class Grid:
    """All combinations of the values of some axes, each for every draw.

    Attributes
    ----------
    axes : mapping of str to sequence
        The values of each axis, by its name.
    draws : int, optional
        How often each is done; without it once, and rows do not say which draw they are of.
    seed : int
    """

    axes: Mapping[str, Sequence[Any]]
    draws: int | None = None
    seed: int = 0

    def map(
        self,
        one: One,
        stages: Stages,
        jobs: int = 1,
        stage: str = "solve",
    ) -> pd.DataFrame:
        """Return a row for each point and draw.

        Parameters
        ----------
        one : callable
            From the place, ``{axis: value}``, and the draw's streams to the other columns.
        stages : Stages
            Where progress is told.
        jobs : int
            Results do not depend on it.
        stage : str
            What this is called.

        Returns
        -------
        DataFrame
            The axes, ``draw`` where draws are counted, ``status`` (solved, or how it failed; or
            what ``one`` says), ``message`` (why) and what ``one`` gave; in the order of the axes.
        """
        draws = 1 if self.draws is None else self.draws
        runs = [
            (dict(zip(self.axes, values, strict=True)), Streams(self.seed, draw))
            for values in product(*self.axes.values())
            for draw in range(draws)
        ]
        found = stages.parallel(stage, jobs, (delayed(_row)(one, *run) for run in runs))
        return pd.DataFrame(
            [
                place | ({} if self.draws is None else {"draw": streams.draw}) | row
                for (place, streams), row in zip(runs, found, strict=True)
            ]
        )


def _row(one: One, place: dict[str, Any], streams: Streams) -> dict[str, Any]:
    try:
        return {"status": "solved", "message": ""} | one(place, streams)
    except ConvexMarketError as error:
        return {"status": failure_status(error), "message": str(error)}
