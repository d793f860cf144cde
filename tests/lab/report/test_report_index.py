"""The index of reports: what it lists, what it leaves out and what it refuses to replace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from convexmarket.errors import ParameterError
from convexmarket.lab.report.index import write_index

EVIL = "<script>alert('x')</script> | **bold**"


def make_report(folder: Path, **problem: Any) -> Path:
    """Write as much of a report as the index reads."""
    (folder / "figures").mkdir(parents=True)
    Image.new("RGB", (640, 400), "#0072b2").save(folder / "figures" / "curve.png")
    (folder / "report.md").write_text("# Title\n\n![A curve](figures/curve.png)\n")
    results = {
        "problem": {"kind": "solver-study", "title": "A title", "description": "Two\nlines."}
        | problem,
        "provenance": {"versions": {"convexmarket": "1.2", "python": "3.11", "numpy": "2"}},
    }
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_lists_what_is_a_report(tmp_path: Path) -> None:
    make_report(tmp_path / "b")
    make_report(tmp_path / "a b", title=EVIL)
    (tmp_path / "no-report").mkdir()
    page = write_index(tmp_path)
    text = page.read_text(encoding="utf-8")
    assert page == tmp_path.resolve() / "index.html"
    assert text.index("a%20b/index.html") < text.index('href="b/index.html"')
    assert "no-report" not in text
    assert "2 reports" in text
    assert text.count("<script>") == 1
    assert "Not to be read" not in text
    assert (tmp_path / "README.md").read_text(encoding="utf-8").splitlines()[4:8] == [
        "| report | kind | what it is about | written with |",
        "|:---|:---|:---|:---|",
        "| [&lt;script&gt;alert('x')&lt;/script&gt; \\| \\*\\*bold\\*\\*](a%20b/report.md) "
        "| solver study | Two lines. | convexmarket 1.2, python 3.11 |",
        "| [A title](b/report.md) | solver study | Two lines. | convexmarket 1.2, python 3.11 |",
    ]


def test_the_first_figure_of_a_report_is_its_picture(tmp_path: Path) -> None:
    make_report(tmp_path / "a b")
    text = write_index(tmp_path).read_text(encoding="utf-8")
    assert '<img src="a%20b/figures/curve.png"' in text


@pytest.mark.parametrize("damage", ["missing", "no figure"])
def test_a_picture_that_there_is_not_is_left_out(tmp_path: Path, damage: str) -> None:
    folder = make_report(tmp_path / "one")
    if damage == "missing":
        (folder / "figures" / "curve.png").unlink()
    else:
        (folder / "report.md").write_text("# Title\n")
    text = write_index(tmp_path).read_text(encoding="utf-8")
    assert "<img" not in text
    assert "A title" in text


@pytest.mark.parametrize(
    ("content", "reason"),
    [("{", "not valid JSON"), ("[]", "no &#39;problem&#39;"), ("{}", "no &#39;problem&#39;")],
)
def test_what_cannot_be_read_is_listed_with_the_reason(
    tmp_path: Path, content: str, reason: str
) -> None:
    make_report(tmp_path / "fine")
    make_report(tmp_path / "broken")
    (tmp_path / "broken" / "results.json").write_text(content)
    text = write_index(tmp_path).read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("<li>broken: ")]
    assert reason in line
    assert str(tmp_path) not in text
    assert "1 report," in text
    assert "\n- broken: " in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_the_same_reports_give_the_same_bytes_and_an_index_replaces_an_index(
    tmp_path: Path,
) -> None:
    make_report(tmp_path / "one")
    first = write_index(tmp_path).read_bytes()
    assert write_index(tmp_path).read_bytes() == first
    make_report(tmp_path / "two")
    assert write_index(tmp_path).read_bytes() != first
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two", "index.html", "README.md"}


@pytest.mark.parametrize("name", ["README.md", "index.html"])
def test_an_existing_file_is_replaced_with_force_alone(tmp_path: Path, name: str) -> None:
    make_report(tmp_path / "one")
    (tmp_path / name).write_text("precious")
    with pytest.raises(ParameterError, match=f"{name} exists; pass --force"):
        write_index(tmp_path, force=False)
    assert {path.name for path in tmp_path.iterdir()} == {"one", name}
    assert (tmp_path / name).read_text() == "precious"


def test_a_report_and_a_folder_that_is_not_there_are_refused(tmp_path: Path) -> None:
    folder = make_report(tmp_path / "one")
    with pytest.raises(ParameterError, match="is a report itself; name the folder above"):
        write_index(folder)
    with pytest.raises(ParameterError, match="there is no folder"):
        write_index(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "damage",
    [
        {"problem": {}, "provenance": {"versions": "1.2"}},
        {"problem": {}, "provenance": {"versions": None}},
        {"problem": {"title": "\ud800"}, "provenance": {"versions": {}}},
        {"problem": "none", "provenance": {"versions": {}}},
    ],
)
def test_one_damaged_report_is_listed_as_such_and_the_others_as_ever(
    tmp_path: Path, damage: dict[str, Any]
) -> None:
    make_report(tmp_path / "good")
    make_report(tmp_path / "bad")
    (tmp_path / "bad" / "results.json").write_text(json.dumps(damage))
    text = write_index(tmp_path).read_text(encoding="utf-8")
    assert 'href="good/index.html"' in text
    assert "Not to be read" in text
    assert 'href="bad/index.html"' not in text


def test_a_picture_that_would_fill_the_memory_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_report(tmp_path / "one")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert "data:image/png" not in write_index(tmp_path).read_text(encoding="utf-8")
