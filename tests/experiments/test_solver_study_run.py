"""Whole studies: misbehaving solvers become rows, and interrupted studies go on."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from convexmarket.errors import (
    NotSupportedError,
    ParameterError,
    ProblemFileError,
)
from convexmarket.experiments import compare_solvers, run_problem, run_solver_study
from convexmarket.problems import load_problem, parse_problem
from convexmarket.study.journal import Journal
from convexmarket.study.plan import plan_runs
from tests import PROBLEMS, ROOT

STUBS = str(ROOT / "tests" / "study")

MARKET = """
kind = "online-study"
title = "sellers"
[prior]
family = "uniform"
low = 1.0
high = 5.0
[buyer]
mu = 1.0
sigma = 1.0
gamma = 1.0
[study]
sizes = [100]
policies = ["expectation"]
"""

STUDY = """
kind = "solver-study"
title = "who solves it"
[study]
problems = ["market.toml"]
solvers = {solvers}
formulations = ["primal", "projection"]
sizes = [20, 40]
seeds = 1
settings = ["default"]
[limits]
seconds = {seconds}
megabytes = 1000
[run]
jobs = 2
"""


@pytest.fixture
def study(tmp_path):
    def write(solvers=("exact", "CLARABEL"), seconds=30.0, more=""):
        (tmp_path / "market.toml").write_text(MARKET)
        file = tmp_path / "study.toml"
        file.write_text(STUDY.format(solvers=json.dumps(list(solvers)), seconds=seconds) + more)
        return load_problem(file)

    return write


@pytest.fixture
def stubs(monkeypatch):
    monkeypatch.syspath_prepend(STUBS)
    return lambda *names: {name.upper(): f"stub_solvers:{name}" for name in names}


def outcomes(result, **wanted):
    rows = result.runs
    for name, value in wanted.items():
        rows = rows[rows[name] == value]
    return sorted(set(rows.outcome))


class TestOutcomes:
    def test_a_study_of_honest_solvers(self, study):
        result = run_problem(study(["exact", "CLARABEL", "OSQP", "NONESUCH"]))
        assert result.absent == ("NONESUCH",)
        assert len(result.runs) == 2 * (1 + 2 + 2)
        assert outcomes(result, solver="exact") == ["solved"]
        assert outcomes(result, solver="CLARABEL") == ["solved"]
        assert outcomes(result, solver="OSQP", formulation="primal") == ["unsupported"]
        assert outcomes(result, solver="OSQP", formulation="projection") == ["solved"]
        assert result.references.certainty.tolist() == ["exact", "exact"]
        assert (result.runs.certainty == "exact").all()
        solved = result.runs[result.runs.outcome == "solved"]
        assert (solved.accuracy <= 1e-3).all()
        assert (solved.again_accuracy <= 1e-3).all()
        assert solved.objective.nunique() > 1
        assert (solved.objective != solved.again_objective).all()
        assert (solved.solver_version != "")[solved.solver != "exact"].all()
        if result.machine["can_pin"]:
            assert result.machine["pinned"]
            assert (result.runs.core >= 0).all()

    def test_the_liar_is_wrong_and_not_solved(self, study, stubs):
        result = run_solver_study(study(["CLARABEL"]), plugins=stubs("Liar"))
        lies = result.runs[result.runs.solver == "LIAR"]
        assert set(lies.status) == {"optimal"}
        assert set(lies.outcome) == {"wrong"}
        assert (lies.accuracy > 1e-2).all()
        rates = result.rates[(result.rates.solver == "LIAR") & result.rates["size"].isna()]
        assert (rates.wrong_rate == 1.0).all()

    def test_who_calls_it_infeasible_is_wrong(self, study, stubs):
        result = run_solver_study(study(["CLARABEL"]), plugins=stubs("FalseAlarm"))
        assert outcomes(result, solver="FALSEALARM") == ["wrong"]

    def test_hangs_and_gluttons_are_rows(self, study, stubs):
        result = run_solver_study(
            study(["exact"], seconds=1.5), plugins=stubs("Sleeper", "Glutton")
        )
        assert outcomes(result, solver="SLEEPER") == ["time limit"]
        gluttons = outcomes(result, solver="GLUTTON")
        assert gluttons
        assert set(gluttons) <= {"memory limit", "time limit"}

    def test_crashes_and_errors_are_rows(self, study, stubs):
        """With the usual limit: a busy machine may take more than a second to get that far."""
        result = run_solver_study(study(["CLARABEL"]), plugins=stubs("Suicide", "Quitter"))
        assert outcomes(result, solver="CLARABEL") == ["solved"]
        assert outcomes(result, solver="SUICIDE") == ["crashed"]
        assert set(result.runs[result.runs.solver == "SUICIDE"].status) == {"SIGSEGV"}
        assert outcomes(result, solver="QUITTER") == ["failed"]


class TestGoingOn:
    def test_what_is_recorded_is_not_run_again(self, study, tmp_path, stubs):
        journal = tmp_path / "runs.jsonl"
        first = run_solver_study(study(["CLARABEL"]), journal=journal)
        before = journal.read_bytes()
        again = run_solver_study(study(["CLARABEL"]), journal=journal)
        assert journal.read_bytes() == before
        assert again.runs.equals(first.runs)
        more = run_solver_study(study(["CLARABEL", "ECOS"]), journal=journal)
        assert journal.read_bytes().startswith(before)
        assert more.machine["sessions"] == 2
        kept = more.runs[more.runs.solver == "CLARABEL"].reset_index(drop=True)
        assert kept.equals(first.runs)

    def test_forgetting_waits_until_the_study_is_known_to_be_possible(self, study, tmp_path):
        journal = tmp_path / "runs.jsonl"
        run_solver_study(study(["exact"]), journal=journal)
        before = journal.read_bytes()
        with pytest.raises(NotSupportedError):
            run_solver_study(study(["NONESUCH"]), journal=journal, fresh=True)
        with Journal(journal), pytest.raises(ParameterError, match="another study"):
            run_solver_study(study(["exact"]), journal=journal, fresh=True)
        assert journal.read_bytes() == before
        run_solver_study(study(["exact"]), journal=journal, fresh=True)
        assert journal.read_bytes() != before
        assert journal.read_bytes().count(b"\n") == before.count(b"\n")

    def test_a_solver_of_ones_own_that_has_changed_is_run_again(self, study, tmp_path, monkeypatch):
        monkeypatch.syspath_prepend(str(tmp_path))
        (tmp_path / "mine.py").write_text("from stub_solvers import Quitter as Mine\n")
        monkeypatch.syspath_prepend(STUBS)
        problem = study(["exact"])
        first = set(plan_runs(problem, {"MINE": "mine:Mine"}).runs)
        assert set(plan_runs(problem, {"MINE": "mine:Mine"}).runs) == first
        (tmp_path / "mine.py").write_text("from stub_solvers import Liar as Mine\n")
        again = plan_runs(problem, {"MINE": "mine:Mine"}).runs
        assert {run.solver for key, run in again.items() if key not in first} == {"MINE"}

    def test_another_file_means_other_runs(self, study, tmp_path):
        keys = set(plan_runs(study(["CLARABEL"]), {}).runs)
        assert set(plan_runs(study(["CLARABEL"]), {}).runs) == keys
        (tmp_path / "market.toml").write_text(MARKET.replace("gamma = 1.0", "gamma = 2.0"))
        changed = load_problem(tmp_path / "study.toml")
        assert not set(plan_runs(changed, {}).runs) & keys

    def test_killed_at_any_time_no_finished_run_is_lost_and_none_repeated(
        self, study, tmp_path, stubs
    ):
        study(["CLARABEL", "SCS", "ECOS"], more="pin = false\n")
        journal, file = tmp_path / "runs.jsonl", tmp_path / "study.toml"
        program = (
            "import sys; from pathlib import Path\n"
            "from convexmarket.problems import load_problem\n"
            "from convexmarket.experiments import run_solver_study\n"
            f"run_solver_study(load_problem({str(file)!r}), journal=Path({str(journal)!r}))\n"
        )
        seen = b""
        for wanted in (1, 4, 9):
            with subprocess.Popen([sys.executable, "-c", program]) as running:
                deadline = time.monotonic() + 120
                while running.poll() is None and time.monotonic() < deadline:
                    if journal.exists() and journal.read_bytes().count(b"\n") >= wanted:
                        break
                    time.sleep(0.01)
                running.send_signal(signal.SIGKILL)
            whole = journal.read_bytes()
            whole = whole[: whole.rfind(b"\n") + 1]
            assert whole.startswith(seen)
            seen = whole
        result = run_solver_study(load_problem(file), journal=journal)
        assert journal.read_bytes().startswith(seen)
        keys = [json.loads(line)["key"] for line in journal.read_text().splitlines()]
        assert len(keys) == len(set(keys)) == len(plan_runs(load_problem(file), {}).runs)
        assert set(result.runs.key) <= set(keys)


def test_two_files_of_the_same_name_or_text_are_two(study, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "market.toml").write_text(MARKET)
    problem = study(["exact", "OSQP"])
    text = problem.source.text.replace('["market.toml"]', '["market.toml", "other/market.toml"]')
    result = run_solver_study(parse_problem(text, path=problem.source.path))
    assert set(result.runs.problem) == {"market", "other/market"}
    assert result.runs.problem.value_counts().nunique() == 1
    assert (result.references.certainty == "exact").all()


def test_where_the_optimum_is_nothing_solvers_are_not_wrong(tmp_path):
    result = compare_solvers(
        [PROBLEMS / "wdbc.toml"],
        solvers=["exact", "CLARABEL", "SCS"],
        classes=["semi-interactive fit"],
        sizes=[5],
        seeds=2,
    )
    assert (result.references.reference < 1e-20).any()
    assert set(result.runs.outcome) == {"solved"}


def test_on_a_dask_cluster_the_same_is_found(study, tmp_path):
    distributed = pytest.importorskip("distributed")
    here = run_solver_study(study(["CLARABEL", "OSQP"]))
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        there = run_solver_study(
            study(["CLARABEL", "OSQP"]),
            dask=cluster.scheduler_address,
            journal=tmp_path / "runs.jsonl",
        )
    assert there.runs.key.tolist() == here.runs.key.tolist()
    assert there.runs.outcome.tolist() == here.runs.outcome.tolist()
    assert np.array_equal(there.runs.objective, here.runs.objective, equal_nan=True)


class TestRefusals:
    def test_a_scheduler_that_does_not_answer(self, study):
        with pytest.raises(ParameterError, match="no scheduler answers"):
            run_solver_study(study(), dask="tcp://127.0.0.1:1")

    def test_no_solver_at_all(self, study):
        with pytest.raises(NotSupportedError, match="none of the solvers NONE, SUCH"):
            run_solver_study(study(["NONE", "SUCH"]))

    def test_a_class_that_no_file_has(self, study):
        problem = study()
        text = problem.source.text.replace("seeds = 1", 'seeds = 1\nclasses = ["ridge"]')
        with pytest.raises(ProblemFileError, match="no subproblem of the classes ridge"):
            run_solver_study(parse_problem(text, path=problem.source.path))

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ('classes = ["allocation", "rigde"]', "'rigde'; known are allocation, budget"),
            ('formulations = ["primul"]', "'primul'; known are diagonal, dual"),
        ],
    )
    def test_a_name_that_is_none(self, study, line, words):
        problem = study()
        kept = problem.source.text.replace('formulations = ["primal", "projection"]\n', "")
        text = kept.replace("seeds = 1", f"seeds = 1\n{line}")
        with pytest.raises(ParameterError, match=words):
            run_solver_study(parse_problem(text, path=problem.source.path))

    @pytest.mark.parametrize("name", ["exact", "reference", "clarabel"])
    def test_a_solver_of_ones_own_with_a_name_of_ours(self, study, stubs, name):
        with pytest.raises(ParameterError, match="which is taken"):
            run_solver_study(study(), plugins={name: "stub_solvers:Liar"})

    @pytest.mark.parametrize("place", ["nowhere:Liar", "stub_solvers:Nobody"])
    def test_a_solver_of_ones_own_that_is_not_there(self, study, stubs, place):
        with pytest.raises(ParameterError, match="cannot be imported"):
            run_solver_study(study(), plugins={"MINE": place})

    def test_a_setting_with_a_name_of_ours(self, study):
        text = study().source.text + "[settings.reference]\ntolerance = 0.1\n"
        with pytest.raises(ProblemFileError, match="name of ours"):
            parse_problem(text)

    def test_a_file_that_is_missing(self, study, tmp_path):
        problem = study()
        (tmp_path / "market.toml").unlink()
        with pytest.raises(ProblemFileError, match=r"market\.toml"):
            run_solver_study(problem)

    def test_a_setting_without_a_table(self, study):
        text = study().source.text.replace('["default"]', '["default", "sloppy"]')
        with pytest.raises(ProblemFileError, match=r"'sloppy'.*\[settings\.sloppy\]"):
            parse_problem(text)

    def test_a_solver_is_a_name_and_never_code(self, study):
        text = study().source.text.replace('"exact"', '"os:system"')
        with pytest.raises(ProblemFileError, match="solvers"):
            parse_problem(text)


HASTY = """
[settings.hasty]
tolerance = 1e-9
[settings.hasty.options.clarabel]
max_iter = 2
"""


def test_a_setting_of_ones_own_reaches_the_solver(study):
    problem = study(["CLARABEL"], more=HASTY)
    text = problem.source.text.replace('["default"]', '["hasty"]')
    result = run_solver_study(parse_problem(text, path=problem.source.path))
    assert "solved" not in outcomes(result)
    assert (result.runs.iterations.dropna() <= 2).all()
