"""Test the command ``convexmarket report`` for one report, all reports and the index."""

import pytest

from convexmarket.errors import DataError
from convexmarket.report import figures, read_report
from convexmarket.studies.files import load_file
from convexmarket.studies.files.learning import ClassifierFile
from tests.cli.builders import draw_nothing, invoke, plain
from tests.studies.files.builders import TWO_SELLERS

SMALL = TWO_SELLERS.replace("[naive]", "draws = 2\n[naive]\ngrid = 2") + "[run]\njobs = 1\n"
IN_FOLDER = SMALL.replace("title = ", 'title = "In a folder"  # ')


def outcomes(done):
    """Return a dictionary with the outcome of each report."""
    lines = [line.partition(": ")[::2] for line in done.stdout.splitlines() if ": " in line]
    words = {"up to date": "kept", "run, because": "run", "failed": "failed"}
    return {name: w for name, text in lines for start, w in words.items() if text.startswith(start)}


def everything(*options):
    return invoke("report", "--all", "--force", *options)


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    monkeypatch.setattr(figures, "saved", draw_nothing)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a working directory with two problem files."""
    (tmp_path / "problems" / "clinic").mkdir(parents=True)
    (tmp_path / "problems" / "one.toml").write_text(SMALL)
    (tmp_path / "problems" / "clinic" / "market.toml").write_text(IN_FOLDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def runs(monkeypatch):
    """Record the titles of the problems that are run, and compute equal problems once."""
    ran, results, perform = [], {}, ClassifierFile.perform

    def recorded(self, *arguments, **options):
        ran.append(self.title)
        key = self.title, self.run.seed
        if key not in results:
            results[key] = perform(self, *arguments, **options)
        return results[key]

    monkeypatch.setattr(ClassifierFile, "perform", recorded)
    return ran


def written(folder, *settings):
    problem = load_file("problems/one.toml", settings)
    return problem.report(problem.perform(progress=False)).write(folder).parent


def files(folder):
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_is_rewritten_in_place_or_elsewhere(here, runs):
    folder = written(here / "mine")
    runs.clear()
    before = files(folder)
    (folder / "index.html").unlink()
    (folder / "report.md").write_text("gone")
    done = invoke("report", folder)
    assert done.exit_code == 0, done.output
    assert str(folder / "index.html") in done.stdout.replace("\n", "")
    assert files(folder) == before
    done = invoke("report", folder / "results.json", "--out", "other")
    assert done.exit_code == 0, done.output
    assert files(here / "other") == before
    assert invoke("report", "--index", here).exit_code == 0
    assert 'href="mine/index.html"' in (here / "index.html").read_text(encoding="utf-8")
    assert runs == []
    (folder / "results.json").write_text('{"format": "convexmarket-results/1"}')
    done = invoke("report", folder)
    assert done.exit_code == 2
    assert "has the format 'convexmarket-results/1'" in plain(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of"),
        (["mine", "--all"], "give one of"),
        (["--all", "--index", "reports"], "give one of"),
        (["--all", "--out", "x"], "--out requires the folder of a report"),
        (["mine", "--rerun"], "--rerun requires --all"),
        (["mine", "--problems", "x"], "--problems requires --all"),
        (["--index", "x", "--reports", "x"], "--reports requires --all"),
        (["mine", "--mechanism", "x"], "--mechanism requires --audit"),
        (["nowhere"], "nowhere"),
        (["--all", "--problems", "nowhere"], "nowhere has no problem files"),
    ],
)
@pytest.mark.usefixtures("here")
def test_incompatible_options_are_refused(arguments, message):
    done = invoke("report", *arguments)
    assert done.exit_code == 2
    assert message in plain(done.stderr)


def test_the_option_all_runs_only_outdated_problems(here, runs):
    done = everything()
    assert done.exit_code == 0, done.output
    assert outcomes(done) == {"clinic": "run", "one": "run"}
    index = (here / "reports" / "index.html").read_text(encoding="utf-8")
    assert 'href="clinic/index.html"' in index
    assert 'href="one/index.html"' in index
    before = files(here / "reports" / "one")
    assert outcomes(everything()) == {"clinic": "kept", "one": "kept"}
    assert len(runs) == 2
    assert files(here / "reports" / "one") == before

    (here / "problems" / "one.toml").write_text(SMALL + "\n# a remark\n")
    results = here / "reports" / "clinic" / "results.json"
    results.write_text(results.read_text(encoding="utf-8").replace("report/1", "report/0"))
    done = everything()
    assert outcomes(done) == {"clinic": "run", "one": "run"}
    assert "the problem file has changed" in plain(done.stdout)
    assert "report/0" in plain(done.stdout)
    stored = read_report(here / "reports" / "one").settings["problem file"]
    assert stored["text"].endswith("# a remark\n")

    written(here / "reports" / "one", "run.seed=5")
    done = everything()
    assert "it was run with run.seed=5" in plain(done.stdout)
    assert outcomes(everything("--rerun")) == {"clinic": "run", "one": "run"}


def test_a_failed_problem_does_not_stop_other_problems(here, monkeypatch):
    (here / "problems" / "bad.toml").write_text('kind = "nonsense"')
    perform = ClassifierFile.perform

    def run(self, *arguments, **options):
        if self.title == "In a folder":
            raise DataError("a bad row")
        return perform(self, *arguments, **options)

    monkeypatch.setattr(ClassifierFile, "perform", run)
    done = everything()
    assert done.exit_code == 3
    assert outcomes(done) == {"bad": "failed", "clinic": "failed", "one": "run"}
    assert "kind is 'nonsense'" in plain(done.stdout)
    assert "clinic: failed: a bad row" in plain(done.stdout)
    assert (here / "reports" / "one" / "index.html").is_file()
    assert not (here / "reports" / "clinic").exists()
    (here / "problems" / "clinic.toml").write_text(SMALL)
    done = everything()
    assert done.exit_code == 2
    assert "would have the same report, clinic" in plain(done.stderr)
