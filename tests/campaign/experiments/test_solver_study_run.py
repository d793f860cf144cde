"""Solvers on real data, where the reference has nothing left to find."""

from convexmarket.experiments import compare_solvers
from tests import PROBLEMS


def test_where_the_optimum_is_nothing_solvers_are_not_wrong():
    result = compare_solvers(
        [PROBLEMS / "wdbc.toml"],
        solvers=["exact", "CLARABEL", "SCS"],
        classes=["semi-interactive fit"],
        sizes=[5],
        seeds=2,
    )
    assert (result.references.reference < 1e-20).any()
    assert set(result.runs.outcome) == {"solved"}
