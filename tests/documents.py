"""Run the Python blocks of the documentation and update the outputs below them.

``python -m tests.documents [--varying] [FILE ...]`` runs every block and writes its output to the
text block below it. ``--varying`` also rewrites the marked outputs, which depend on fresh noise. An
output is kept if its numbers agree within a tolerance, because solvers differ in the last digits,
and if no number shows many more digits than the code prints.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from tests import ROOT

NOT_RUN = "<!-- not run -->"
VARIES = "<!-- varies -->"  # precedes outputs that depend on fresh noise
BLOCK = re.compile(
    r"^(?P<skip>" + re.escape(NOT_RUN) + r"\s*?\n\s*)?^```python[ \t]*\n(?P<code>.*?)^```[ \t]*\n"
    r"(?P<shown>\n(?P<varies>" + re.escape(VARIES) + r"\n)?```text\n(?P<output>.*?)^```[ \t]*\n)?",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e[+-]?\d+)?(?!\w)")


class Block(NamedTuple):
    """Python block of a document, with its first line, its code and the shown output."""

    line: int
    code: str
    output: str | None = None
    varies: bool = False


def blocks(path: Path) -> list[Block]:
    """Return the executable Python blocks of a document."""
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            text.count("\n", 0, match.start("code")) + 1,
            match["code"],
            match["output"],
            bool(match["varies"]),
        )
        for match in BLOCK.finditer(text)
        if not match["skip"]
    ]


def documents() -> Iterator[Path]:
    """Yield the paths of the README and of all pages of the site except the generated ones."""
    yield ROOT / "README.md"
    for path in sorted((ROOT / "docs").rglob("*.md")):
        if not {"auto_tutorials", "generated"} & set(path.parts):
            yield path


@contextlib.contextmanager
def reader_folder(folder: Path) -> Iterator[None]:
    """Change to a temporary folder with links to files of the repository."""
    for name in ("problems", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def run(block: Block, path: Path) -> str:
    """Run a block and return its output. Tracebacks refer to lines of the document."""
    printed = io.StringIO()
    pd.set_option("display.width", 100)
    code = compile("\n" * (block.line - 1) + block.code, str(path), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, {"__name__": "__main__"})
    return "".join(line.rstrip() + "\n" for line in printed.getvalue().splitlines())


def agree(shown: str, printed: str, tolerance: float = 2e-3) -> bool:
    """Check whether two outputs are equal, up to a relative tolerance for numbers.

    A shown number can have up to three more digits, because trailing zeros are not printed.
    """
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(
        abs(float(a) - float(b)) <= tolerance * max(abs(float(a)), abs(float(b))) + 1e-8
        and len(a) <= len(b) + 3
        for a, b in pairs
    )


def rewrite(path: Path, *, varying: bool = False) -> None:
    """Run the blocks of a document and write their outputs below them.

    The outputs that depend on fresh noise are replaced only if ``varying`` is true.
    """
    text = path.read_text(encoding="utf-8")

    def replaced(match: re.Match[str]) -> str:
        if match["skip"]:
            return match[0]
        line = text.count("\n", 0, match.start("code")) + 1
        with tempfile.TemporaryDirectory() as folder, reader_folder(Path(folder)):
            output = run(Block(line, match["code"]), path)
        head = f"```python\n{match['code']}```\n"
        keep = not varying if match["varies"] else agree(match["output"] or "", output)
        if match["output"] is not None and keep:
            output = match["output"]
        note = f"{VARIES}\n" if match["varies"] else ""
        return head + (f"\n{note}```text\n{output}```\n" if output else "")

    path.write_text(BLOCK.sub(replaced, text), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.documents", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: all")
    parser.add_argument("--varying", action="store_true", help="also rewrite random outputs")
    options = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    warnings.simplefilter("ignore")
    for path in options.files or documents():
        print(path, file=sys.stderr)
        rewrite(path, varying=options.varying)
