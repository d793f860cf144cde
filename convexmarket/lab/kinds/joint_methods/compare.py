"""Which method of the joint problem is measurably the best, by sign tests on shared instances."""

from __future__ import annotations

import itertools

import pandas as pd
from scipy.stats import binomtest

from convexmarket.lab.kinds.joint_methods.claims import BEST

__all__ = ["FEWEST", "SIGNIFICANT", "method_pairs", "winner"]

#: The largest probability, under equal chances, of a difference that is measurable.
SIGNIFICANT = 0.05
#: The fewest instances on which a sign test can find one: 2 / 2**6 < 0.05 < 2 / 2**5.
FEWEST = 6
_COLUMNS = ["name", "other", "shared", "alone", "other_alone", "faster", "other_faster", "ahead"]
_COLUMNS += ["by"]


def method_pairs(runs: pd.DataFrame) -> pd.DataFrame:
    """Compare every two methods on the instances on which both ran.

    A method is ahead of another if it alone finds the best measurably more often than the other
    alone does; or, where neither does, if it is faster measurably more often. One without an
    answer has not found the best, and is not timed.

    Parameters
    ----------
    runs : DataFrame
        Columns group, instance, name, excess and seconds.

    Returns
    -------
    DataFrame
        One row for every two methods that share at least ``FEWEST`` instances: name, other,
        shared; alone and other_alone (how often only that one found the best), faster and
        other_faster; ahead (the name of the one that is, or empty) and by ("finding" or "time").
    """
    methods = {
        name: own.set_index(["group", "instance"])[["excess", "seconds"]]
        for name, own in runs.groupby("name", sort=False)
    }
    rows = []
    for name, other in itertools.combinations(methods, 2):
        own, others = methods[name], methods[other].add_suffix("_other")
        both = own.join(others, how="inner")
        if len(both) < FEWEST:
            continue
        found, theirs = both.excess <= BEST, both.excess_other <= BEST
        times = both[both.excess.notna() & both.excess_other.notna()]
        alone = int((found & ~theirs).sum()), int((theirs & ~found).sum())
        faster = (
            int((times.seconds < times.seconds_other).sum()),
            int((times.seconds > times.seconds_other).sum()),
        )
        finds = _ahead(*alone)
        first = finds or _ahead(*faster)
        by = "finding" if finds else "time" if first else ""
        rows.append((name, other, len(both), *alone, *faster, ("", name, other)[first], by))
    return pd.DataFrame(rows, columns=_COLUMNS)


def winner(pairs: pd.DataFrame) -> str:
    """Return the one method that is ahead of every other it is compared with; empty if none is."""
    compared = pd.concat([pairs.name, pairs.other]).value_counts()
    ahead = pairs.ahead.value_counts().reindex(compared.index, fill_value=0)
    best = list(compared.index[ahead == compared])
    return str(best[0]) if len(best) == 1 else ""


def _ahead(times: int, others: int) -> int:
    """Return 1 or 2, for whom a sign test finds ahead, or 0."""
    if times == others or binomtest(times, times + others).pvalue > SIGNIFICANT:
        return 0
    return 1 if times > others else 2
