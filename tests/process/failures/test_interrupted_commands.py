"""Test the files after errors, Ctrl-C, SIGKILL and full disks in commands (docs/failures.md)."""

import codecs
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from convexmarket import io as writing
from convexmarket.report import document, figures, folders
from convexmarket.studies import files
from convexmarket.studies.files.loading import KINDS
from convexmarket.studies.progress import ProgressLines
from tests import PROBLEMS
from tests.process.failures.builders import (
    FORMER_CSV,
    FORMER_JSON,
    INTERRUPTED,
    NO_ROOM,
    PRICE,
    at,
    check_one_line,
    contents,
    run,
    save_nothing,
    stop,
)

QUICKSTART = PROBLEMS / "quickstart.toml"
SMALL = [
    "objective.gamma=[0.01]",
    "objective.mu=[1.0]",
    "objective.sigma=[0.1]",
    "learner.regularization=[1.0]",
    "learner.draws=2",
    "naive.grid=1",
]
#: Name of a problem file in the repository for each kind of problem.
FILES = {"online": "online-wdbc", "market": "quickstart"}


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    """Skip the drawing of figures, which is slow."""
    monkeypatch.setattr(figures, "saved", save_nothing)


@pytest.fixture(scope="module")
def result():
    problem = files.load_file(QUICKSTART, SMALL)
    return problem, problem.perform(progress=False)


@pytest.fixture(scope="module")
def prepared(result, tmp_path_factory):
    """Return a folder with the inputs and the existing outputs of all commands."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "saved", save_nothing)
        for name in ("reports/one", "reports/two", "target"):
            problem, runs = result
            problem.report(runs).write(folder / name)
    (folder / "target" / "report.md").write_text("the former report\n")
    (folder / "sellers.csv").write_text("id,sensitivity\nAnn,0.03\nBob,0.05\n")
    for name in ("offers.csv", "offers.certificate.json", "schema.json", "found.json"):
        (folder / name).write_text(FORMER_JSON if name.endswith("json") else FORMER_CSV)
    return folder


@pytest.fixture
def here(prepared, tmp_path, result, monkeypatch):
    """Return a copy of the folder, and make problems return stored results when they are run."""
    folder = shutil.copytree(prepared, tmp_path / "a b\n\u2603")
    monkeypatch.setattr(type(result[0]), "perform", lambda *_, **__: result[1])
    return folder


COMMANDS = {
    "run": ["run", QUICKSTART, "--out", "target"],
    "report": ["report", "reports/one", "--out", "target"],
    "report in place": ["report", "target"],
    "report --index": ["report", "--index", "reports", "--force"],
    "price": ["price", "sellers.csv", *PRICE, "--out", "offers.csv", "--force"],
    "init": ["init", "sellers.csv", "--out", "draft.toml", "--force"],
}
REPLACES_A_FOLDER = ("run", "report", "report in place")


MOMENTS = {
    "while the report is built": at(document, "keep_access"),
    "before the former report is moved": at(folders.os, "replace", 1),
    "between the two renames": at(folders.os, "replace", 1, after=True),
    "after the second rename": at(folders.os, "replace", 2, after=True),
}
MOMENTS_OF_FILES = {
    "while a file is written": at(writing.os, "fsync"),
    "before the first rename": at(writing.os, "replace"),
    "after the first rename": at(writing.os, "replace", 1, after=True),
}
CASES = [
    *((name, moment) for name in REPLACES_A_FOLDER for moment in MOMENTS),
    *(
        (name, moment)
        for name in COMMANDS
        if name not in REPLACES_A_FOLDER
        for moment in MOMENTS_OF_FILES
    ),
]


@pytest.fixture(scope="module")
def written(prepared, result, tmp_path_factory):
    """Return the files after each command if no failure occurs."""
    answer = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "saved", save_nothing)
        patch.setattr(type(result[0]), "perform", lambda *_, **__: result[1])
        for number, (name, arguments) in enumerate(COMMANDS.items()):
            folder = shutil.copytree(prepared, tmp_path_factory.mktemp("written") / str(number))
            code, command = run(arguments, folder)
            assert code == 0, command.stderr
            answer[name] = timeless(contents(folder))
    return answer


def timeless(table):
    """Replace the time in a certificate, which differs between runs, by zero."""
    certificate = table["offers.certificate.json"]
    if not certificate.startswith(b"{"):
        return table
    stated = json.loads(certificate)
    stated["optimality"]["seconds"] = 0
    return {**table, "offers.certificate.json": stated}


@pytest.mark.parametrize(("name", "moment"), CASES)
def test_ctrl_c_leaves_old_or_new_files_and_no_temporary_files(here, written, name, moment):
    before = timeless(contents(here))
    code, command = stop(COMMANDS[name], here, (MOMENTS | MOMENTS_OF_FILES)[moment], signal.SIGINT)
    assert code == INTERRUPTED
    check_one_line(command.stderr, "stopped")
    assert timeless(contents(here)) in (before, written[name])


@pytest.mark.parametrize(("name", "moment"), CASES)
def test_the_same_command_succeeds_after_sigkill(here, written, name, moment):
    before = contents(here)
    code, _ = stop(COMMANDS[name], here, (MOMENTS | MOMENTS_OF_FILES)[moment], signal.SIGKILL)
    assert code == -signal.SIGKILL
    if name not in REPLACES_A_FOLDER:  # after the kill, each file is the former or the new file
        now = timeless(contents(here))
        for path, content in timeless(before).items():
            assert now[path] in (content, written[name].get(path))
    assert run(COMMANDS[name], here)[0] == 0
    now = timeless(contents(here))
    hidden = {path for path in now if "/." in f"/{path}"}
    assert {path: now[path] for path in now.keys() - hidden} == written[name]
    if name in REPLACES_A_FOLDER:
        assert not hidden, "the next command removes the files of a killed command"
    assert len(hidden) <= 4


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_changes_no_file(here, name, later):
    """The disk is full when the first file is written, or before the written files are renamed."""
    before = contents(here)

    def patch(_notify):
        def full(*_arguments, **_named):
            raise OSError(28, "No space left on device")

        if name in REPLACES_A_FOLDER:
            document.keep_access = full
        else:
            writing.os.replace = full

    disk = {"before": patch} if later else {"limit": NO_ROOM}
    code, command = run(COMMANDS[name], here, **disk)
    assert code == 2
    words = "No space left on device" if later else "File too large"
    check_one_line(command.stderr.replace("\n\u2603", ""), "error:", words)
    assert "None" not in command.stderr
    assert contents(here) == before


@pytest.mark.parametrize("kind", FILES)
def test_ctrl_c_during_a_run_writes_at_most_a_journal(kind, tmp_path):
    def before(notify):
        ProgressLines.__call__ = lambda *_: notify()

    file = PROBLEMS / f"{FILES[kind]}.toml"
    code, command = stop(["run", file, "--jobs", "1"], tmp_path, before, signal.SIGINT)
    assert code == INTERRUPTED, command.stderr
    check_one_line(command.stderr.lower(), "stopped")
    assert set(contents(tmp_path)) == {"out", f"out/{file.stem}.runs.jsonl"}


def test_all_kinds_of_problems_are_tested():
    assert set(FILES) == set(KINDS) - {"solvers"}
    for kind, name in FILES.items():
        assert files.load_file(PROBLEMS / f"{name}.toml").kind == kind


def test_an_unexpected_error_is_reported_as_a_defect(here):
    def patch(_notify):
        def broken(*_, **__):
            raise ZeroDivisionError("a bug")

        type(files.load_file(QUICKSTART)).perform = broken

    before = contents(here)
    code, command = run(COMMANDS["run"], here, patch)
    assert code == 1
    assert "ZeroDivisionError" in command.stderr
    assert "This is a defect of convexmarket, not of your input. Please report it" in command.stderr
    assert contents(here) == before


def test_the_exit_code_indicates_failed_reports(here):
    problems = here / "problems"
    problems.mkdir()
    shutil.copy(QUICKSTART, problems)
    (problems / "bad.toml").write_text('kind = "nonsense"')
    arguments = ["report", "--all", "--force", "--reports", "out"]

    code, command = run(arguments, here)
    assert code == 3
    assert "nonsense" in command.out.decode()
    assert (here / "out" / "quickstart" / "index.html").is_file()
    (problems / "bad.toml").unlink()
    assert run(arguments, here)[0] == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_a_target_of_the_wrong_type_is_refused(here, name):
    arguments = COMMANDS[name]
    if name == "report in place":
        arguments = ["report", "sellers.csv"]
    elif name == "report --index":
        arguments = ["report", "--index", "sellers.csv"]
    elif name in REPLACES_A_FOLDER:
        arguments = [*arguments[:-1], "sellers.csv"]
    else:
        place = -2 if arguments[-1] == "--force" else -1
        arguments = [*arguments[:place], "reports", *arguments[place:][1:]]
    before = contents(here)
    code, command = run(arguments, here)
    assert code == 2
    check_one_line(command.stderr.replace("\n\u2603", ""), "error:")
    assert contents(here) == before


def read_by_all(file):
    return all(folder.stat().st_mode & 0o001 for folder in file.parents)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_only_folder_is_refused(here, name):
    nobody = 65534 if os.geteuid() == 0 else None  # root can write to all folders
    needed = [Path(files.__file__), Path(pytest.__file__)]
    if nobody is not None and not all(map(read_by_all, needed)):
        pytest.skip("the user nobody cannot read the package")
    for path in [here, *here.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for path in here.parents:
        if path.stat().st_uid == os.geteuid() and path != Path("/tmp"):
            path.chmod(path.stat().st_mode | 0o055)
    before = contents(here)

    def unprivileged(_notify):
        if nobody is not None:
            codecs.lookup("utf-8-sig")  # while the process is still root
            os.setgroups([])
            os.setgid(nobody)
            os.setuid(nobody)

    code, command = run(COMMANDS[name], here, unprivileged)
    for path in [here, *here.rglob("*")]:
        path.chmod(0o755)
    assert code == 2, command.stderr
    check_one_line(command.stderr.replace("\n\u2603", ""), "error:", "ermission denied")
    assert contents(here) == before
