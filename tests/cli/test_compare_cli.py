"""``convexmarket compare``, as its users meet it."""

import shutil

import pytest

from convexmarket.lab.problem.loading import load_problem
from convexmarket.report import figures, read_report
from tests import PROBLEMS
from tests.cli.builders import draw_nothing, invoke, plain
from tests.lab.kinds.builders import STUBS

FEW = ["--sizes", "20", "--seeds", "1", "--classes", "allocation", "--jobs", "1", "--no-pin"]
FEW += ["--formulations", "primal,projection", "--title", "S 🚀"]
SOLVERS = ["--solvers", "exact,clarabel,OSQP,NONESUCH", "--plugin", "LIES=stub_solvers:Liar"]


@pytest.fixture(autouse=True, scope="module")
def _no_figures():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "saved", draw_nothing)
        patch.syspath_prepend(STUBS)
        yield


@pytest.fixture
def market(tmp_path):
    return shutil.copy(PROBLEMS / "quickstart.toml", tmp_path / "market.toml")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The folder of one comparison, with its report, and what was printed."""
    folder = tmp_path_factory.mktemp("compared")
    market = shutil.copy(PROBLEMS / "quickstart.toml", folder / "market.toml")
    done = invoke("compare", market, *FEW, *SOLVERS, "--out", folder / "report")
    assert done.exit_code == 0, done.output
    return folder, plain(done.output)


def test_a_comparison_writes_a_report_and_tells_the_outcome(compared):
    folder, said = compared
    out = folder / "report"
    assert "Not installed, and left out: NONESUCH." in said
    report = read_report(out)
    assert report.settings["problem"]["kind"] == "solver-study"
    (runs,) = (table.frame for table in report.tables if table.name == "runs")
    assert {"exact", "CLARABEL", "OSQP", "LIES"} <= set(runs.solver)
    assert (out / "index.html").exists()
    # the reference, one exact and 3 solvers with 2 formulations
    lines = (out / "runs.jsonl").read_text().splitlines()
    assert len(lines) == 1 + 1 + 3 * 2


def test_given_again_it_runs_nothing_again(compared):
    folder, _ = compared
    journal = folder / "report" / "runs.jsonl"
    before = journal.read_bytes()
    again = invoke("compare", folder / "market.toml", *FEW, *SOLVERS, "--out", folder / "report")
    assert again.exit_code == 0
    assert journal.read_bytes() == before


def test_the_options_as_a_problem_file_say_the_same(compared):
    folder, _ = compared
    file = folder / "study.toml"
    file.write_text(read_report(folder / "report").settings["problem_file"]["text"])
    problem = load_problem(file)
    assert problem.study.sizes == (20,)
    assert not problem.run.pin
    assert problem.title == "S 🚀"
    shutil.copytree(folder / "report", folder / "other")
    journal = folder / "other" / "runs.jsonl"
    before = journal.read_bytes()
    found = invoke("run", file, "--out", folder / "other")
    assert found.exit_code == 0, found.output
    assert journal.read_bytes() == before, "the runs are the same"
    assert (folder / "other" / "index.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sizes", "ten"], "--sizes must be whole numbers"),
        (["--sizes", "1"], "study.sizes[0] must be greater than or equal to 2, got 1"),
        (["--seeds", "0"], "study.seeds must be greater than or equal to 1, got 0"),
        (["--settings", "sloppy"], "'sloppy'"),
        (["--plugin", "os.system"], "--plugin must be NAME=module:Class"),
        (["--solvers", "NONESUCH"], "none of the solvers NONESUCH is installed"),
        (["--classes", "nonesuch"], "study.classes names 'nonesuch'"),
        (["--classes", "ridge"], "no subproblem of the classes ridge"),
        (["--time-limit", "nan"], "limits.seconds must be a finite number, got nan"),
    ],
)
def test_mistakes_are_told_before_anything_is_run(market, tmp_path, arguments, words):
    out = tmp_path / "report"
    found = invoke("compare", market, "--sizes", "20", "--out", out, *arguments)
    assert found.exit_code == 2
    assert words in plain(found.output)
    assert not out.exists()


def test_a_folder_with_something_else_is_left_alone(market, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").write_text("ten years")
    found = invoke("compare", market, "--out", tmp_path / "mine")
    assert found.exit_code == 2
    assert "thesis.doc" in plain(found.output)
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["thesis.doc"]
