"""Solvers on two sizes by two jobs, and on real data, where there may be nothing left to find."""

from convexmarket.lab.kinds.solver_study.run import compare_solvers, run_solver_study
from tests import PROBLEMS
from tests.lab.kinds.builders import STUBS, solver_study_in
from tests.lab.kinds.test_solver_study_run import HONEST, LIARS, check_honest_solvers


def test_honest_solvers_of_two_sizes_by_two_jobs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(STUBS)
    study = solver_study_in(tmp_path, HONEST, sizes=(20, 40), jobs=2)
    check_honest_solvers(run_solver_study(study, plugins=LIARS))


def test_where_the_optimum_is_nothing_solvers_are_not_wrong():
    result = compare_solvers(
        [PROBLEMS / "wdbc.toml"],
        solvers=["exact", "CLARABEL", "SCS"],
        classes=["semi-interactive fit"],
        sizes=[5],
        seeds=2,
    )
    assert (result.tables["references"].reference < 1e-20).any()
    assert set(result.tables["runs"].outcome) == {"solved"}
