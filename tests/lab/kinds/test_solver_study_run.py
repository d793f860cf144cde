"""Whole studies: misbehaving solvers become rows, and what is recorded is not run again."""

from functools import partial
from types import SimpleNamespace

import pytest

from convexmarket.errors import (
    NotSupportedError,
    ParameterError,
    ProblemFileError,
)
from convexmarket.lab.kinds.solver_study.run import _foregone, run_solver_study
from convexmarket.lab.problem.loading import load_problem, parse_problem
from convexmarket.lab.study.journal import Journal
from convexmarket.lab.study.plan import plan_runs
from tests.lab.kinds.builders import STUBS, STUDIED, outcomes, solver_study_in, stubs

HASTY = """
[settings.hasty]
tolerance = 1e-9
[settings.hasty.options.clarabel]
max_iter = 2
"""
#: Two files of the same name and text, whose subproblems are solved at usual and hasty settings.
EVERYTHING = {
    "problems": ["market.toml", "other/market.toml"],
    "settings": ["default", "hasty"],
    "more": HASTY,
}
HONEST = ["exact", "CLARABEL", "OSQP", "NONESUCH"]
LIARS = stubs("Liar", "FalseAlarm", "Quitter")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for the one study that is run, and its journal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(STUBS)
        yield tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def result(folder):
    problem = solver_study_in(folder, HONEST, **EVERYTHING)
    return run_solver_study(problem, plugins=LIARS, journal=folder / "runs.jsonl")


@pytest.fixture
def study(tmp_path):
    return partial(solver_study_in, tmp_path)


def check_honest_solvers(result):
    assert result.numbers["absent"] == ["NONESUCH"]
    usual = result.tables["runs"][result.tables["runs"].setting != "hasty"]
    assert usual.solver.value_counts().to_dict() == {
        "exact": 2,
        **dict.fromkeys(["CLARABEL", "OSQP", *LIARS], 2 * 2),
    }
    assert outcomes(result, solver="exact") == ["solved"]
    assert outcomes(result, solver="CLARABEL", setting="default") == ["solved"]
    assert outcomes(result, solver="OSQP", formulation="primal") == ["unsupported"]
    projected = {"solver": "OSQP", "formulation": "projection", "setting": "default"}
    assert outcomes(result, **projected) == ["solved"]
    assert result.tables["references"].certainty.tolist() == ["exact", "exact"]
    assert (result.tables["runs"].certainty == "exact").all()
    solved = usual[usual.outcome == "solved"]
    assert (solved.accuracy <= 1e-3).all()
    assert (solved.again_accuracy <= 1e-3).all()
    assert solved.objective.nunique() > 1
    assert (solved.objective != solved.again_objective).all()
    assert (solved.solver_version != "")[solved.solver != "exact"].all()
    if result.numbers["machine"]["can_pin"]:
        assert result.numbers["machine"]["pinned"]
        assert (result.tables["runs"].core >= 0).all()


@pytest.mark.campaign
class TestOutcomes:
    def test_honest_solvers(self, result):
        check_honest_solvers(result)

    def test_two_files_of_the_same_name_or_text_are_two(self, result):
        assert set(result.tables["runs"].problem) == {"market", "other/market"}
        assert result.tables["runs"].problem.value_counts().nunique() == 1

    def test_a_setting_of_ones_own_reaches_the_solver(self, result):
        assert "solved" not in outcomes(result, solver="CLARABEL", setting="hasty")
        hasty = result.tables["runs"][
            (result.tables["runs"].solver == "CLARABEL")
            & (result.tables["runs"].setting == "hasty")
        ]
        assert (hasty.iterations.dropna() <= 2).all()

    def test_the_liar_is_wrong_and_not_solved(self, result):
        lies = result.tables["runs"][
            (result.tables["runs"].solver == "LIAR") & (result.tables["runs"].setting == "default")
        ]
        assert set(lies.status) == {"optimal"}
        assert set(lies.outcome) == {"wrong"}
        assert (lies.accuracy > 1e-2).all()
        rates = result.tables["rates"][result.tables["rates"]["size"].isna()]
        rates = rates[(rates.solver == "LIAR") & (rates.setting == "default")]
        assert (rates.wrong_rate == 1.0).all()

    def test_who_calls_it_infeasible_is_wrong(self, result):
        assert outcomes(result, solver="FALSEALARM", setting="default") == ["wrong"]

    def test_errors_are_rows(self, result):
        assert outcomes(result, solver="QUITTER") == ["failed"]


class TestGoingOn:
    @pytest.mark.campaign
    def test_what_is_recorded_is_not_run_again(self, result, folder):
        journal = folder / "runs.jsonl"
        before = journal.read_bytes()
        problem = solver_study_in(folder, HONEST, **EVERYTHING)
        again = run_solver_study(problem, plugins=LIARS, journal=journal)
        assert journal.read_bytes() == before
        assert again.tables["runs"].equals(result.tables["runs"])
        more = run_solver_study(solver_study_in(folder, ["CLARABEL", "ECOS"]), journal=journal)
        assert journal.read_bytes().startswith(before)
        assert more.numbers["machine"]["sessions"] == 2
        kept = more.tables["runs"][more.tables["runs"].solver == "CLARABEL"].set_index("key")
        assert kept.objective.equals(result.tables["runs"].set_index("key").objective[kept.index])

    @pytest.mark.campaign
    @pytest.mark.usefixtures("result")
    def test_forgetting_waits_until_the_study_is_known_to_be_possible(self, study, folder):
        journal = folder / "runs.jsonl"
        before = journal.read_bytes()
        with pytest.raises(NotSupportedError):
            run_solver_study(study(["NONESUCH"]), journal=journal, fresh=True)
        with Journal(journal), pytest.raises(ParameterError, match="another study"):
            run_solver_study(study(["exact"]), journal=journal, fresh=True)
        assert journal.read_bytes() == before

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
        market = STUDIED.replace("payments = {weight = 1.0}", "payments = {weight = 2.0}")
        (tmp_path / "market.toml").write_text(market)
        changed = load_problem(tmp_path / "study.toml")
        assert not set(plan_runs(changed, {}).runs) & keys


class TestRefusals:
    def test_no_solver_at_all(self, study):
        with pytest.raises(NotSupportedError, match="none of the solvers NONE, SUCH"):
            run_solver_study(study(["NONE", "SUCH"]))

    def test_a_class_that_no_file_has(self, study):
        problem = study()
        text = problem.source.text.replace('["allocation"]', '["ridge"]')
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
        text = kept.replace('classes = ["allocation"]', line)
        with pytest.raises(ParameterError, match=words):
            run_solver_study(parse_problem(text, path=problem.source.path))

    @pytest.mark.parametrize("name", ["exact", "reference", "clarabel"])
    def test_a_solver_of_ones_own_with_a_name_of_ours(self, study, folder, name):
        with pytest.raises(ParameterError, match="which is taken"):
            run_solver_study(study(), plugins={name: "stub_solvers:Liar"})

    @pytest.mark.parametrize("place", ["nowhere:Liar", "stub_solvers:Nobody"])
    def test_a_solver_of_ones_own_that_is_not_there(self, study, folder, place):
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


class TestWhatSmallerRunsDecide:
    @pytest.mark.campaign
    def test_unsupported_stays_so(self, study, tmp_path):
        result = run_solver_study(study(["OSQP"], sizes=(20, 40)), journal=tmp_path / "runs.jsonl")
        with Journal(tmp_path / "runs.jsonl") as journal:
            spared = {entry["key"] for entry in journal.records if "not run" in entry["log"]}
        unable = result.tables["runs"][result.tables["runs"].outcome == "unsupported"]
        assert set(unable["size"]) == {20, 40}
        assert spared == set(unable.key[unable["size"] == 40])

    @pytest.mark.parametrize("ended", ["time limit", "memory limit", "crashed", "finished"])
    def test_limits_hold_for_larger_ones_if_no_instance_met_them(self, study, ended):
        plan = plan_runs(study(["CLARABEL"], sizes=(20, 40)), {})
        key = max(plan.smaller, key=lambda key: plan.runs[key].solver == "CLARABEL")
        entries = [
            {"key": below, "session": 1, "ended": ended, "log": ""} for below in plan.smaller[key]
        ]
        assert {plan.runs[entry["key"]].size for entry in entries} == {20}
        reply = _foregone(plan, key, SimpleNamespace(records=entries))
        if ended in ("crashed", "finished"):
            assert reply is None
        else:
            assert reply["ended"] == ended
            assert reply["log"] == "not run: every instance of size 20 ended so"
        assert _foregone(plan, key, SimpleNamespace(records=entries[1:])) is None
