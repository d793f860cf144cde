"""Who is called the fastest, and where solvers are said to break: only what the numbers show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from convexmarket.lab import build_report
from convexmarket.lab.kinds.solver_study.page import COMPUTED, _glance
from convexmarket.lab.kinds.solver_study.standing import breaks
from tests.lab.report.builders import words
from tests.lab.report.solver_study_runs import make_result, race

#: Times of a contender that takes a second; their geometric mean is 1.
NOISE = [1.0, 1.001, 0.999, 1.002, 0.998, 1.0, 1.001, 0.999]


def about(seconds: float) -> list[float]:
    """Return times that scatter, and not with those of others."""
    return [seconds * x for x in NOISE[::-1]]


def page(runs: pd.DataFrame) -> str:
    """Return what the page says of runs of which these tests give the times."""
    others = {"solver_version": "", "core": 1, "session": 1, "certainty": "exact", "status": ""}
    runs = runs.assign(**{name: runs.get(name, value) for name, value in others.items()})
    for name in (*COMPUTED, "objective", "reference"):
        runs[name] = 1e-9
    return words(build_report(make_result(runs.assign(again_status="", message=""))))


def said(times: dict[str, list[float]], sizes: tuple[int, ...] = (100,)) -> tuple[str, str]:
    """Return what the page says first, and the sentences on a class with these seconds."""
    head, rest = page(race("lasso", times, sizes)).split("At the setting “default”: ", 1)
    return head, rest.split(" What this does not show")[0].strip()


def test_the_fastest_is_faster_than_all_that_can_be_compared() -> None:
    headline, text = said({"A/p": NOISE, "B/p": about(2)})
    assert "Measurably fastest: “A, p” (lasso)." in headline
    assert text.startswith("Lasso: “A, p” is the fastest, 1 s, and solves all 8 instances.")
    assert "Next is “B, p”: it takes 2 times as long" in text
    # The second in rank is slower; the third takes long once, and as long as the first otherwise.
    third = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 400.0]
    headline, text = said({"A/p": NOISE, "B/p": about(1.5), "C/p": third})
    assert "No clear fastest in lasso" in headline
    assert "is the fastest" not in text
    assert "“A, p” takes the least time in the mean, 1 s, " in text
    assert "No difference from “A, p” is shown for “C, p” (" in text
    assert "The first that is measurably slower is “B, p”: it takes 1.5 times as long" in text


def test_what_is_faster_where_both_solve_is_not_called_a_tie() -> None:
    headline, text = said({"A/p": NOISE, "B/p": [*about(0.7)[:7], np.nan]})
    assert "No clear fastest in lasso" in headline
    assert "“A, p” takes the least time in the mean, 1 s" in text
    assert "Measurably faster where both solve: “B, p” (0.7 times as long" in text
    # exp((7 log 0.71 + log 60.01) / 8) - 0.01 = 1.226
    assert "; its mean is 1.23 s, as it solves only 7 of 8 instances)" in text
    assert "No difference" not in text


def test_a_mean_and_a_ratio_that_disagree_are_both_explained() -> None:
    # Without the shift B takes exp((7 log(1/15) + log(40/3)) / 8) = 0.129 times as long. With it,
    # B takes exp((7 log 10.1 + log 30) / 8) - 10 = 1.57 ms, and A 1.5 ms.
    headline, text = said({"A/p": about(0.0015), "B/p": [*([0.0001] * 7), 0.02]})
    assert "No clear fastest in lasso" in headline
    assert "only" not in text
    assert "Measurably faster where both solve: “B, p” (0.129 times as long" in text
    assert (
        "its mean is 1.57 ms, as means add 10 ms to every time and count what is not solved)"
        in text
    )


def test_a_contender_that_cannot_take_all_instances_has_its_ratio_only() -> None:
    _, text = said({"A/p": NOISE, "B/p": about(0.5)[:6]})
    assert "“A, p” takes the least time in the mean" in text
    assert "“B, p” (0.5 times as long" in text
    assert "; it cannot take all instances, so that it has no mean)" in text


def test_what_cannot_be_compared_limits_the_claim() -> None:
    failing = [3.0, 3.0, *([np.nan] * 6)]
    times = {"A/p": NOISE, "B/p": about(2), "C/p": failing}
    headline, text = said(times)
    assert "Measurably fastest: “A, p” (lasso)" in headline
    assert "“A, p” is the fastest of those that can be compared, 1 s" in text
    assert "With 1 other, “A, p” has fewer than 6 solved instances in common" in text
    headline, text = said({"A/p": NOISE, "C/p": failing})
    assert "Too few common instances to compare in lasso" in headline
    assert "takes the least time in the mean" in text


def test_one_contender_is_not_the_fastest_of_any() -> None:
    headline, text = said({"A/p": NOISE, "B/p": [np.nan] * 8})
    assert "Only one contender solves anything in lasso" in headline
    assert "“A, p” is the only contender that solves anything, 1 s, and solves all 8" in text


def test_the_exact_method_is_called_slower_where_it_is() -> None:
    _, text = said({"A/p": NOISE, "exact/exact": about(2)})
    assert "is slower where both solve (“A, p” takes 0.5 times as long" in text
    _, text = said({"A/p": NOISE, "exact/exact": about(1)})
    assert "shows no difference in time from “A, p” (" in text


def test_sizes_at_which_less_than_half_is_solved_are_named_and_no_others() -> None:
    fails = [np.nan] * 8
    times = {"A/p": NOISE, "B/p": NOISE, "C/p": NOISE}
    runs = race("lasso", times, (100, 1_000, 10_000))
    at = (runs.solver == "B") & (runs["size"] != 1_000) | (runs.solver == "C")
    runs.loc[at, ["outcome", "total_s", "again_total_s"]] = ["failed", np.nan, np.nan]
    broken = breaks(make_result(runs).tables["rates"])
    assert broken[["solver", "sizes", "outcome"]].to_numpy().tolist() == [
        ["B", "100 and 10,000", "failed"],
        ["C", "every size", "failed"],
    ]
    assert "2 of 3 contenders solve less than half at some size." in page(runs)
    one = race("lasso", {"A/p": NOISE, "B/p": fails})
    assert breaks(make_result(one).tables["rates"]).sizes.to_list() == ["100"]
    assert "1 of 2 contenders solves less than half at some size." in page(one)
    assert "each contender solves at least half" in page(race("lasso", {"A/p": NOISE}))


@pytest.mark.campaign
def test_that_a_larger_size_is_not_solved_is_said_only_if_no_solver_does() -> None:
    runs = race("lasso", {"A/p": NOISE, "B/p": NOISE}, (100, 1_000, 10_000))
    large = runs["size"] == 10_000
    fails = ["failed", np.nan, np.nan]
    runs.loc[large, ["outcome", "total_s", "again_total_s"]] = fails
    text = page(runs)
    assert "at larger sizes no solver solves half" in text
    # B was given fewer instances, so that it has no mean, and solves those.
    one = runs[~large | (runs.solver == "A") | (runs.seed == 0)].copy()
    one.loc[(one["size"] == 10_000) & (one.solver == "B"), ["outcome", "total_s"]] = ["solved", 1.0]
    text = page(one)
    assert "at larger sizes" not in text


def test_a_tile_is_what_the_runs_of_its_size_came_to() -> None:
    times = {"A/p": [1.0, 1.0], "B/p": [4.0, 9.0], "C/p": [1.2, np.nan], "D/q": [1.9, 1.9]}
    runs = race("lasso", times | {"exact/exact": [0.1, 0.1]})
    runs.loc[(runs.solver == "D") & (runs.seed == 1), "outcome"] = "wrong"
    tiles = _glance(runs).set_index("solver")[["kind", "words"]].T.to_dict("list")
    assert tiles == {
        "A": ["fast", "1.0"],
        "B": ["slower", "6.0"],
        "C": ["unsolved", "–"],
        "D": ["wrong", "×"],
        "exact": ["fast", "0.1"],
    }
