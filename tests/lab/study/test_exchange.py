"""What is exported is solved by others, to the optimum that stands beside it, and comes back."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from convexmarket.errors import DataError
from convexmarket.lab.kinds.solver_study.run import run_solver_study
from convexmarket.lab.study.exchange import export_instances, import_runs
from tests.lab.kinds.builders import solver_study_in


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    study = solver_study_in(folder, ["CLARABEL", "OSQP"], sizes=[20], settings=["high"])
    return study, folder, export_instances(study, folder / "out")


def test_every_formulation_is_a_file_with_its_optimum(exported):
    _, folder, table = exported
    assert set(table.formulation) == {"primal", "projection"}
    assert (table.gap < 1e-9).all()
    for row in table.to_dict("records"):
        held = np.load(folder / "out" / f"{row['name']}.npz")
        P = sparse.csc_array((held["P_data"], held["P_indices"], held["P_indptr"]), held["P_shape"])
        assert P.shape == (row["columns"], row["columns"])
        assert held["optimum"] == row["optimum"]
        assert held["q"].size == held["lb"].size == row["columns"]
        assert bool(held["soc"].size) == (row["formulation"] == "primal")


def results_of(table, **changes):
    """Return what qpbenchmark might have found."""
    name = table.name[table.formulation == "projection"].item()
    row = {"problem": name, "solver": "piqp", "settings": "high_accuracy", "runtime": 0.01,
           "found": True, "primal_residual": 1e-10, "dual_residual": 1e-10,
           "duality_gap": 1e-10}  # fmt: skip
    return pd.DataFrame([row | changes])


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [({}, "solved"), ({"duality_gap": 1e-8}, "wrong"), ({"found": False}, "failed")],
)
def test_results_come_back_with_the_same_verdict(exported, tmp_path, changes, outcome):
    study, _, table = exported
    results_of(table, **changes).to_parquet(tmp_path / "results.parquet")
    (row,) = import_runs(study, tmp_path / "results.parquet").to_dict("records")
    assert (row["solver"], row["setting"]) == ("piqp (qpbenchmark)", "high")
    assert row["outcome"] == outcome
    assert (row["size"], row["formulation"]) == (20, "projection")


def test_results_of_other_problems_are_refused(exported, tmp_path):
    study, _, table = exported
    results_of(table, problem="other").to_csv(tmp_path / "results.csv")
    with pytest.raises(DataError, match="no problem and setting of this study"):
        import_runs(study, tmp_path / "results.csv")
    with pytest.raises(DataError, match="No such file"):
        import_runs(study, tmp_path / "nothing.csv")


def test_qpbenchmark_itself_runs_what_is_exported(exported, tmp_path):
    pytest.importorskip("qpbenchmark")
    from qpbenchmark.parquet_test_set import ParquetTestSet
    from qpbenchmark.results import Results
    from qpbenchmark.run import run

    class Exported(ParquetTestSet):
        title = description = "exported"
        sparse_only = False
        solvers = ("osqp",)

    study, folder, _ = exported
    test_set = Exported(folder / "out" / "qpbenchmark.parquet")
    results = Results(tmp_path / "results.parquet", test_set)
    run(test_set, results, only_settings="high_accuracy")
    results.write()
    result = run_solver_study(study, imported=tmp_path / "results.parquet")
    runs = result.tables["runs"]
    theirs = runs[runs.solver == "osqp (qpbenchmark)"].iloc[0]
    ours = runs[(runs.solver == "OSQP") & (runs.formulation == "projection")]
    assert theirs.outcome == ours.outcome.item() == "solved"
    assert "osqp (qpbenchmark)" in set(result.tables["rates"].solver)
