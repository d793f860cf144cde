"""The report of the joint problem's methods: no guarantee, who finds the best, what failed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.lab import build_report
from convexmarket.lab.kinds.joint_methods.compare import method_pairs, winner
from convexmarket.lab.kinds.joint_methods.run import run_joint_methods
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.claims import JOINT_WARNING
from convexmarket.lab.report.model import Report
from convexmarket.lab.result import Result
from tests.lab.report.builders import (
    altered,
    drawn,
    facts,
    headings,
    plain,
    problem_text,
    stored,
    table,
    words,
)


@pytest.fixture(scope="module")
def result() -> Result:
    return stored("joint-methods")


@pytest.fixture(scope="module")
def report(result: Result) -> Report:
    return build_report(result)


def test_that_there_is_no_privacy_guarantee_comes_first(report: Report) -> None:
    assert report.warning == JOINT_WARNING


def test_a_table_sums_up_the_runs_of_each_group(result: Result, report: Report) -> None:
    methods = table(report, "methods").set_index(["group", "name"])
    inside = methods.loc["inside"]
    grid = result.tables["runs"][
        (result.tables["runs"].group == "inside") & (result.tables["runs"].name == "on a grid")
    ]
    assert list(inside.index) == ["alternating", "on a grid"]
    assert list(inside.solved) == ["2 of 2", "2 of 2"]
    assert list(inside.found) == [2, 0]
    assert list(inside.certified) == [2, 0]
    row = inside.loc["on a grid"]
    assert row.max_excess == grid.excess.max()
    assert row.median_time == pytest.approx(grid.time_ratio.median())
    assert (row.least_time, row.most_time) == (grid.time_ratio.min(), grid.time_ratio.max())
    outside = methods.loc["outside"]
    assert outside.solved["bad solver"] == "0 of 1"
    assert np.isnan(outside.max_excess["bad solver"])
    groups = table(report, "groups").set_index("group")
    assert list(groups.instances) == [2, 1]
    assert list(groups.inside) == [2, 0]


def test_facts_count_what_was_solved_and_proved(report: Report) -> None:
    counts = facts(report)
    assert counts["instances"] == "3"
    assert counts["of them convex for each η"] == "2"
    assert counts["runs solved"] == "6 of 7"
    assert counts["runs proved global"] == "2"


def test_failures_have_a_section_with_their_reason(result: Result, report: Report) -> None:
    failures = table(report, "failures")
    assert list(failures.name) == ["bad solver"]
    assert "NO_SUCH_SOLVER" in failures.message.iloc[0]
    assert "bad solver: not supported on 1 instance" in words(report)
    fine = altered(result, runs=result.tables["runs"][result.tables["runs"].status == "solved"])
    assert "What has no answer" not in headings(build_report(fine))


def test_ends_are_those_of_the_descents(result: Result, report: Report) -> None:
    ends = table(report, "ends").set_index("group")
    own = result.tables["descents"][result.tables["descents"].group == "outside"].objective
    assert ends.largest_range["outside"] == pytest.approx((own.max() - own.min()) / own.min())
    assert list(ends.instances) == [2, 1]


def test_claims_are_listed_with_their_verdict(result: Result, report: Report) -> None:
    claims = table(report, "claims")
    assert list(claims.verdict) == [claim.verdict for claim in result.claims]
    none = build_report(altered(result, claims=()))
    assert "Reproduced here" not in words(none)


def test_jobs_that_share_the_machine_are_said(result: Result) -> None:
    problem = parse_problem(problem_text("joint-methods"), ["run.jobs=2"])
    assert "2 jobs shared the machine" in words(build_report(altered(result, problem=problem)))


def test_every_run_is_a_dot_in_its_own_row(result: Result, report: Report) -> None:
    inside, outside = drawn(report, "excess").axes
    rows = [label.get_text() for label in inside.get_yticklabels()]
    assert rows == ["alternating", "on a grid"]
    grid = result.tables["runs"][
        (result.tables["runs"].group == "inside") & (result.tables["runs"].name == "on a grid")
    ]
    assert (grid.excess > 1e-6).all()
    found, missed = (line for line in inside.get_lines() if len(line.get_xdata()))
    assert (found.get_xdata() >= 1e-12).all()
    np.testing.assert_allclose(missed.get_xdata(), grid.excess)
    assert (np.round(missed.get_ydata()) == 1).all()
    assert found.get_markerfacecolor() != missed.get_markerfacecolor() == "white"
    assert outside.get_title(loc="left") == "outside"
    assert outside.get_xscale() == "log"


def test_a_run_in_which_nothing_is_solved_is_still_a_report() -> None:
    methods = "methods=[{name='bad', method='alternating', solver='NO_SUCH_SOLVER'}]"
    text = problem_text("joint-methods").replace('methods = ["alternating", "on a grid"]', "")
    report = build_report(run_joint_methods(parse_problem(text, [methods])))
    assert not report.figures
    assert words(report).startswith("No method has an answer.")
    assert len(table(report, "failures")) == 3


# -------------------------------------------------------------------- which method is the best

METHODS = ("first", "second", "third")


def made_runs(rows: list[tuple[float, float]], share: int) -> pd.DataFrame:
    """Return runs of three methods; the last of them on some of the instances alone."""
    return pd.DataFrame(
        [
            {"group": "inside", "instance": number // 3, "name": METHODS[number % 3],
             "excess": excess, "seconds": seconds}
            for number, (excess, seconds) in enumerate(rows)
            if number % 3 < 2 or number // 3 < share
        ]
    )  # fmt: skip


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1e-3, np.nan]), st.sampled_from([0.1, 1.0, 2.0])),
        min_size=6,
        max_size=45,
    ),
    st.integers(min_value=0, max_value=15),
)
def test_the_winner_is_the_one_that_is_ahead_of_all_it_can_be_compared_with(rows, share) -> None:
    runs = made_runs(rows, share)
    ahead = {name: [] for name in METHODS}
    for name, other in itertools.permutations(METHODS, 2):
        both = runs[runs.name == name].merge(runs[runs.name == other], on="instance")
        found, theirs = both.excess_x <= 1e-6, both.excess_y <= 1e-6
        alone, other_alone = (found & ~theirs).sum(), (theirs & ~found).sum()
        timed = both[both.excess_x.notna() & both.excess_y.notna()]
        faster = (timed.seconds_x < timed.seconds_y).sum()
        slower = (timed.seconds_x > timed.seconds_y).sum()
        if len(both) > 5:
            ahead[name].append(
                unlikely(alone, other_alone)
                or (not unlikely(other_alone, alone) and unlikely(faster, slower))
            )
    winners = [name for name, of in ahead.items() if of and all(of)]
    assert winner(method_pairs(runs)) == (winners[0] if len(winners) == 1 else "")


def unlikely(more: int, less: int) -> bool:
    """Return whether equal chances would give so unequal numbers in at most 5% of all cases."""
    n = int(more + less)
    tail = 2 * sum(math.comb(n, k) for k in range(int(less) + 1))
    return more > less and tail <= 0.05 * 2**n


@pytest.mark.parametrize("n", [5, 6, 20])
def test_the_page_names_the_best_method_where_one_is_measurably(result, n) -> None:
    better = made_runs([(0.0, 1.0), (1e-3, 0.1), (0.0, 2.0)] * n, n)
    faster = made_runs([(0.0, 1.0), (0.0, 2.0), (0.0, 1.5)] * n, n)
    for runs in (better, faster):
        text, pairs = _first_words(result, runs)
        if n < 6:
            assert "no method is measurably the best" in text
            assert pairs is None
        else:
            assert f"({n} instances), “first” is measurably the best of 3 methods" in text
            assert list(pairs.ahead[:2]) == ["first", "first"]


def test_the_page_names_no_best_method_where_two_are_alike(result) -> None:
    runs = made_runs([(0.0, 1.0), (0.0, 2.0), (1e-3, 3.0)] * 8, 8)
    runs.loc[(runs.name == "second") & (runs.instance < 4), "seconds"] = 0.5
    text, _ = _first_words(result, runs)
    assert "no method is measurably the best" in text


def _first_words(result: Result, runs: pd.DataFrame):
    """Return what the page says first of runs in one group, and its table of pairs."""
    n = runs.instance.nunique()
    instances = pd.concat([result.tables["instances"][:1]] * n).assign(instance=range(n))
    first = result.tables["runs"].iloc[[0] * len(runs)].reset_index(drop=True)
    made = first.assign(**runs, time_ratio=runs.seconds)
    none = result.tables["descents"][:0]
    report = build_report(altered(result, runs=made, instances=instances, descents=none, claims=()))
    pairs = [item.frame for item in report.tables if item.name == "pairs"]
    return plain(report.lead[0]), pairs[0] if pairs else None
