"""The Python blocks of the documentation print the outputs that the documentation shows."""

import pytest

from convexmarket.report import figures
from tests import ROOT, documents
from tests.cli.builders import draw_nothing


def collected():
    """Return a test parameter for every block of the README and, in the group `page`, of docs/."""
    return [
        pytest.param(
            path,
            block,
            id=f"{path.relative_to(ROOT)}:{block.line}",
            marks=[] if path.name == "README.md" else [pytest.mark.page],
        )
        for path in documents.documents()
        for block in documents.blocks(path)
    ]


def test_the_readme_is_short_and_has_examples():
    assert documents.blocks(ROOT / "README.md")
    assert len((ROOT / "README.md").read_bytes()) <= 6 * 1024


@pytest.mark.filterwarnings(
    "error::DeprecationWarning",
    "error::RuntimeWarning",
    "ignore:The inplace keyword in DataFrame",  # pandas 3.1 issues a warning for a call in Dask
)
@pytest.mark.parametrize(("path", "block"), collected())
def test_a_block_prints_the_shown_output(path, block, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(figures, "saved", draw_nothing)
    with documents.reader_folder(tmp_path):
        printed = documents.run(block, path)
    shown = block.output or ""
    if block.varies:
        assert bool(shown) == bool(printed)
        return
    assert documents.agree(shown, printed), f"shown:\n{shown}\nprinted:\n{printed}"


def test_blocks_are_parsed_with_their_outputs(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n```python\na = 1\n```\n\n```sh\nls\n```\n\n"
        f"{documents.NOT_RUN}\n\n```python\nraise SystemExit\n```\n\n"
        "```python\nprint(2.5)\n```\n\n```text\n2.5001\n```\n"
    )
    assert documents.blocks(page) == [
        documents.Block(4, "a = 1\n"),
        documents.Block(18, "print(2.5)\n", "2.5001\n"),
    ]
    assert documents.agree("gap 2.5001 (a)", "gap 2.5 (a)")
    assert not documents.agree("gap 2.5", "gap 2.6")
    assert not documents.agree("gap 2.500113725", "gap 2.5")
    assert not documents.agree("gap 2.5", "span 2.5")
