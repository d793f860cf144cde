"""Test the outcomes of runs, which depend on statuses, residuals and reference values."""

import numpy as np
import pandas as pd
import pytest

from convexmarket.report import read_tables
from convexmarket.studies.verdicts import OF_SOLVE, judge, outcomes_of, references_of, tabulate
from convexmarket.studies.verdicts import RUN as COLUMNS
from tests import ROOT


@pytest.mark.parametrize(
    ("status", "accuracy", "outcome"),
    [
        ("optimal", 1e-4, "solved"),
        ("optimal", 1.1e-3, "wrong"),
        ("optimal", np.nan, "wrong"),
        ("exact", 1e-2, "wrong"),
        ("optimal_inaccurate", 1e-4, "solved"),
        ("optimal_inaccurate", 1e-2, "inaccurate"),
        ("infeasible", np.inf, "wrong"),
        ("unbounded", np.inf, "wrong"),
        ("infeasible_inaccurate", np.inf, "inaccurate"),
        ("user_limit", 1e-9, "failed"),
        ("error", np.inf, "failed"),
        ("unsupported", np.inf, "unsupported"),
    ],
)
def test_outcomes_follow_from_status_and_residuals(status, accuracy, outcome):
    accurate = pd.Series([accuracy]) <= 1e-3
    assert outcomes_of(pd.Series([status]), accurate).tolist() == [outcome]


PLACE = {"problem": "wdbc", "problem_class": "allocation", "instance": "", "size": 100, "seed": 0}
RUN = PLACE | {"formulation": "primal", "solver": "SCS", "setting": "default"}
REFERENCE = PLACE | dict.fromkeys(("formulation", "solver", "setting"), "reference")


def measured(objective=2.0, again=4.0, **changes):
    answer = {"status": "optimal", "objective": objective, "message": "", "scale": 0.0}
    answer |= dict.fromkeys(("primal_residual", "violation", "dual_residual", "gap"), 1e-9)
    answer |= {f"again_{key}": value for key, value in answer.items()}
    return {"ended": "finished", "result": answer | {"again_objective": again} | changes}


def reference_with(**changes):
    answer = {"objective": 2.0, "again_objective": 4.0, "certainty": "gap 1e-03", "doubt": 1e-3}
    return {"ended": "finished", "result": answer | changes}


def verdict(reply, **changes):
    table = tabulate([(REFERENCE, reference_with(doubt=0.0, **changes)), (RUN, reply)])
    return judge(table, references_of(table[:1]), {"default": 1e-3}).iloc[0]


def test_objectives_below_and_above_the_optimum_are_both_wrong():
    assert verdict(measured(1.9)).outcome == verdict(measured(2.1)).outcome == "wrong"


def test_errors_are_relative_to_the_scale_at_an_optimum_of_zero():
    row = verdict(measured(1e-5, scale=1.0), objective=1e-31)
    assert (row.excess, row.outcome) == (pytest.approx(1e-5), "solved")


@pytest.mark.parametrize(
    ("better", "refuted"),
    [
        (measured(1.99, 4.0), True),
        (measured(2.0, 3.9), True),
        (measured(2.0 - 1e-6, 4.0), False),
        (measured(1.99, 4.0, gap=1e-5), False),
        (measured(1.99, 4.0, status="infeasible"), False),
    ],
)
def test_a_better_value_with_small_residuals_refutes_an_exact_method(better, refuted):
    exact = reference_with(certainty="exact", doubt=0.0, status="exact")
    references = references_of(tabulate([(REFERENCE, exact), (RUN, better)]))
    assert (references.certainty == "refuted").all() == refuted
    if refuted:
        assert references.message[0] == "SCS, primal has a better value"
        ours = measured(2.0, 4.0, status="exact", again_status="exact")
        records = [(RUN | {"key": "a"}, better), (RUN | {"key": "b"}, ours)]
        rows = judge(tabulate(records), references, {"default": 1e-3})
        assert rows.set_index("key").outcome.to_dict() == {"a": "solved", "b": "wrong"}


def test_the_shipped_runs_keep_their_outcomes():
    """The outcomes in the stored report follow from the stored measurements."""
    tables = read_tables(ROOT / "reports" / "solver-study")
    runs, references = tables["all-runs"], tables["all-references"]
    replies = [replayed(row) for row in runs.to_dict("records")]
    labels = runs[["key", *COLUMNS]].to_dict("records")
    table = tabulate(zip(labels, replies, strict=True))
    judged = judge(table, references, {"default": 1e-3})
    both = runs.merge(judged, on="key", suffixes=("", "_again"))
    assert len(both) == len(runs) > 900
    assert (both.outcome == both.outcome_again).all()


def replayed(row):
    """Reconstruct the reply of a run from its row in the stored table."""
    outside = row["outcome"] in ("time limit", "memory limit", "crashed")
    reply = {"ended": row["outcome"] if outside else "finished", "log": ""}
    if outside:
        return reply
    names = {prefix + name for prefix in ("", "again_") for name in OF_SOLVE}
    result = {name: row.get(name, 0.0) for name in names}  # the table does not contain scales
    result["status"] = row["status"]
    if row["again_status"]:
        result["again_status"] = row["again_status"]
    return reply | {"result": result}
