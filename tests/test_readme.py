"""The Python that the documents show runs as it is shown."""

import re

import pytest

from convexmarket.report import figures
from tests import ROOT
from tests.cli.builders import draw_nothing

NOT_RUN = "<!-- not run -->"
FENCE = re.compile(
    r"^(?P<skip>" + re.escape(NOT_RUN) + r"\s*?\n\s*)?^```python[ \t]*\n(?P<code>.*?)^```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)


def blocks(path):
    """Return the Python blocks of a document that are to be run, as (line, code)."""
    text = path.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start("code")) + 1, match["code"])
        for match in FENCE.finditer(text)
        if not match["skip"]
    ]


def collected():
    """Return a parameter for every block of the README, and of docs/ for the group of pages."""
    readme, docs = ROOT / "README.md", sorted((ROOT / "docs").rglob("*.md"))
    return [
        pytest.param(path, line, code, id=f"{path.relative_to(ROOT)}:{line}", marks=marks)
        for path, marks in [(readme, []), *((path, [pytest.mark.page]) for path in docs)]
        for line, code in blocks(path)
    ]


def test_the_readme_is_a_page():
    assert blocks(ROOT / "README.md")
    assert len((ROOT / "README.md").read_bytes()) <= 6 * 1024


def shown(path, code):
    """Return the output that a document shows below a block, or None."""
    text = path.read_text(encoding="utf-8")
    found = re.search(
        re.escape(code) + r"```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL
    )
    return found and found[1]


@pytest.mark.filterwarnings("error::DeprecationWarning", "error::RuntimeWarning")
@pytest.mark.parametrize(("path", "line", "code"), collected())
def test_the_block_runs(path, line, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(figures, "saved", draw_nothing)
    # A reader's directory: the problem files are there, and what is written is theirs.
    for name in ("problems", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    # Padded, so that a traceback names the line of the document.
    exec(compile("\n" * (line - 1) + code, str(path), "exec"), {"__name__": "__main__"})
    output = shown(path, code)
    assert output is None or capsys.readouterr().out == output


def test_blocks_are_found_and_skipped_as_said(tmp_path):
    document = tmp_path / "page.md"
    document.write_text(
        "# Page\n\n```python\na = 1\n```\n\n```sh\nls\n```\n\n"
        f"{NOT_RUN}\n```python\nraise SystemExit\n```\n\n"
        f"{NOT_RUN}\n\n```python\nraise SystemExit\n```\n\n"
        "```python\nb = 2\n\nc = 3\n```\n\n```\n```python\n"
    )
    assert blocks(document) == [(4, "a = 1\n"), (23, "b = 2\n\nc = 3\n")]
