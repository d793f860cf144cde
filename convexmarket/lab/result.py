"""The result of a run, the same for all kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pandas as pd

from convexmarket.lab.claims import Claim
from convexmarket.lab.problem.base import ProblemModel

__all__ = ["Result"]

Problem = TypeVar("Problem", bound=ProblemModel)


@dataclass(frozen=True, eq=False)
class Result(Generic[Problem]):
    """The result of a run.

    Attributes
    ----------
    problem : Problem
    tables : dict of str to DataFrame
        Tidy frames, which the kind's ``run`` describes.
    numbers : dict of str to object
        Numbers, text, and mappings and lists of them.
    claims : tuple of Claim
        Claims of the papers, with their verdicts.
    certificates : list of dict
    caveats : tuple of str
        What the numbers do not show.
    timings : dict of str to float
        Seconds of each stage.
    provenance : dict
    """

    problem: Problem
    tables: dict[str, pd.DataFrame]
    numbers: dict[str, Any] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    certificates: list[dict[str, Any]] = field(default_factory=list)
    caveats: tuple[str, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
