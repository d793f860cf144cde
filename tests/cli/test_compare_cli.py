"""``convexmarket compare``, as its users meet it."""

import json
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from convexmarket.cli import app
from convexmarket.problems import load_problem
from tests import PROBLEMS, ROOT

STUBS = str(ROOT / "tests" / "study")
FEW = ["--sizes", "20,30", "--seeds", "1", "--classes", "allocation", "--jobs", "2"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def market(tmp_path):
    path = tmp_path / "market.toml"
    path.write_text((PROBLEMS / "quickstart.toml").read_text())
    return path


def test_a_comparison_writes_a_report_and_tells_the_outcome(market, tmp_path):
    out = tmp_path / "report"
    found = run("compare", market, *FEW, "--solvers", "exact,clarabel,OSQP,NONESUCH", "--out", out)
    assert found.exit_code == 0, found.output
    assert "CLARABEL, projection" in found.output
    assert "Not installed, and left out: NONESUCH." in found.output
    results = json.loads((out / "results.json").read_text())
    assert results["kind"] == "solver-study"
    assert results["absent"] == ["NONESUCH"]
    assert (out / "index.html").exists()
    assert (out / "report.tex").exists()
    # 2 sizes, each with the reference, one exact and 2 solvers with 4 formulations
    lines = (out / "runs.jsonl").read_text().splitlines()
    assert len(lines) == 2 * (1 + 1 + 2 * 4)

    again = run("compare", market, *FEW, "--solvers", "exact,clarabel,OSQP,NONESUCH", "--out", out)
    assert again.exit_code == 0
    assert (out / "runs.jsonl").read_text().splitlines() == lines  # nothing was run again
    fresh = run("compare", market, *FEW, "--solvers", "exact,OSQP", "--out", out, "--fresh")
    assert fresh.exit_code == 0
    assert len((out / "runs.jsonl").read_text().splitlines()) == 2 * (1 + 1 + 4)


def test_the_options_as_a_problem_file_say_the_same(market, tmp_path):
    out = tmp_path / "report"
    run("compare", market, *FEW, "--solvers", "exact", "--out", out, "--no-pin", "--title", "S 🚀")
    text = json.loads((out / "results.json").read_text())["provenance"]["problem_file"]["text"]
    file = tmp_path / "study.toml"
    file.write_text(text)
    assert load_problem(file).study.sizes == (20, 30)
    assert not load_problem(file).run.pin
    assert load_problem(file).title == "S 🚀"
    found = run("run", file, "--out", tmp_path / "other")
    assert found.exit_code == 0, found.output
    assert (tmp_path / "other" / "index.html").exists()


def test_a_solver_of_ones_own(market, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(STUBS)
    out = tmp_path / "report"
    plugin = ["--plugin", "LIES=stub_solvers:Liar", "--formulations", "primal"]
    found = run("compare", market, *FEW, "--solvers", "CLARABEL", *plugin, "--out", out)
    assert found.exit_code == 0, found.output
    assert "1 solver claims an answer and is wrong: LIES" in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sizes", "ten"], "--sizes is 'ten'; give whole numbers"),
        (["--sizes", "1"], "study.sizes[0] is 1"),
        (["--seeds", "0"], "study.seeds is 0"),
        (["--settings", "sloppy"], "'sloppy'"),
        (["--plugin", "os.system"], "write NAME=module:Class"),
        (["--solvers", "NONESUCH"], "none of the solvers NONESUCH is installed"),
        (["--classes", "nonesuch"], "study.classes names 'nonesuch'"),
        (["--classes", "ridge"], "no subproblem of the classes ridge"),
        (["--time-limit", "nan"], "limits.seconds is nan"),
        (["--dask", "tcp://127.0.0.1:1"], "no scheduler answers"),
    ],
)
def test_mistakes_are_told_before_anything_is_run(market, tmp_path, arguments, words):
    out = tmp_path / "report"
    found = run("compare", market, "--sizes", "20", "--out", out, *arguments)
    assert found.exit_code == 2
    assert words in " ".join(found.output.split())
    assert not out.exists()


def test_a_folder_with_something_else_is_left_alone(market, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").write_text("ten years")
    found = run("compare", market, "--out", tmp_path / "mine")
    assert found.exit_code == 2
    assert "thesis.doc" in found.output
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == ["thesis.doc"]


def test_control_c_keeps_what_was_run(market, tmp_path):
    out = tmp_path / "report"
    command = ["compare", str(market), "--sizes", "20,30,40,50", "--classes", "allocation"]
    command += ["--seeds", "5", "--out", str(out), "--no-pin", "--jobs", "2"]
    code = "from convexmarket.cli import app; app()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *command],
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background jobs ignore SIGINT, and so would what they start
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as running:
        journal = out / "runs.jsonl"
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and running.poll() is None:
            if journal.exists() and journal.read_bytes().count(b"\n") >= 3:
                break
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[1]
    assert running.returncode == 130, said
    assert "the same command goes on from there" in " ".join(said.split())
    assert not (out / "index.html").exists()
    assert len(journal.read_text().splitlines()) >= 3
