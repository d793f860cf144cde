"""Check the names in docs/statements.toml. ``python -m tests.test_statements`` writes the page."""

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from importlib import import_module

import pytest

from convexmarket.report import escape_markdown
from tests import ROOT

PAGE = ROOT / "docs/statements.md"
STATEMENTS: dict[str, dict[str, str]] = tomllib.loads(
    PAGE.with_suffix(".toml").read_text(encoding="utf-8")  # duplicate keys raise an error
)
PAPERS = {
    "A": "Mechanism design for heterogeneous differentially private data acquisition",
    "B": "Earlier version of A",
    "R": "Personalised privacy for ridge regression",
    "K": "Differentially private learning with kernels",
}
VERDICTS = ["holds", "holds, with our constant", "in part", "wrong"]
INTRODUCTION = """# Statements of the papers

The table lists the statements of the four papers that can be tested by computation. Each row
contains a verdict, the code that implements the statement, a test and, in many cases, a report. The
page [Theory](theory.md) lists the papers and symbols. Names of code are relative to `convexmarket`.

- *holds*: the statement is true as stated.
- *holds, with our constant*: the statement is true with a constant that the package proves.
- *in part*: the statement is true under a further condition, or in some cases.
- *wrong*: a proof, a counterexample or an experiment refutes the statement.

`python -m tests.test_statements` writes this page from [statements.toml](statements.toml).
"""


def row(key: str, entry: dict[str, str]) -> str:
    """Format a statement as a table row with verdict, text, comment and evidence."""
    path, _, test = entry.get("test", "").partition("::test_")
    report, why = entry.get("report", ""), entry.get("why", "")
    statement = f"{escape_markdown(key[3:])}: “{escape_markdown(entry['says'])}”"
    evidence = [
        f"`{entry['by']}`" if "by" in entry else "",
        f"[{test.replace('_', ' ')}](../{path})" if test else "",
        f"report [{report}](../reports/{report}/report.md)" if report else "",
    ]
    if why:
        start = why[0].upper() if re.match(r"[a-z]+[ ,]", why) else why[0]
        statement += f" {escape_markdown(start + why[1:]).rstrip('.')}."
    cells = [f"**{entry['verdict']}**", statement, "; ".join(filter(None, evidence))]
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """Return the text of the page, with counts of verdicts and a table for each paper."""
    count = Counter((key[0], entry["verdict"]) for key, entry in STATEMENTS.items())
    heads = ["| | " + " | ".join(VERDICTS) + " |", "|:---|" + "---:|" * len(VERDICTS)]
    numbers = [f"| {p} | {' | '.join(str(count[p, v]) for v in VERDICTS)} |" for p in PAPERS]
    parts = [INTRODUCTION, *heads, *numbers]
    for paper, title in PAPERS.items():
        parts += [f"\n## {paper}. {title}\n"]
        parts += ["| verdict | statement | evidence |", "|:---|:---|:---|"]
        parts += [row(key, entry) for key, entry in STATEMENTS.items() if key[0] == paper]
    return "\n".join(parts) + "\n"


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def looked_up(name: str) -> object:
    """Import a name below ``convexmarket``, ``problems`` or ``tests``."""
    path = name if name.startswith(("problems.", "tests.")) else f"convexmarket.{name}"
    module, _, last = path.rpartition(".")
    parent = import_module(module)
    return getattr(parent, last) if hasattr(parent, last) else import_module(path)


@pytest.mark.parametrize("key", STATEMENTS)
def test_names_in_statements_exist(key):
    entry = STATEMENTS[key]
    assert set(entry) <= {"says", "by", "test", "report", "verdict", "why"}
    assert key[:3] in {f"{paper}, " for paper in PAPERS}
    assert entry["says"]
    assert entry["verdict"] in VERDICTS
    assert entry.get("why") or entry["verdict"].startswith("holds")
    assert looked_up(entry["by"]) is not None
    path, name = entry["test"].split("::")
    assert name in functions_of(path)
    if "report" in entry:
        assert (ROOT / "reports" / entry["report"] / "report.md").is_file()


def test_the_page_is_written_from_the_statements():
    assert PAGE.read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
