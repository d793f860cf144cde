"""What docs/statements.toml claims exists; ``python -m tests.test_statements`` writes its page."""

import ast
import tomllib
from collections import Counter
from functools import cache
from importlib import import_module

import pytest

from convexmarket.report import escape_markdown
from tests import ROOT

PAGE = ROOT / "docs/statements.md"
STATEMENTS: dict[str, dict[str, str]] = tomllib.loads(
    PAGE.with_suffix(".toml").read_text(encoding="utf-8")  # which allows no key twice
)
PAPERS = {
    "A": "Mechanism design for heterogeneous differentially private data acquisition",
    "B": "Its earlier version",
    "R": "Personalised privacy for ridge regression",
    "K": "Differentially private learning with kernels",
}
VERDICTS = ["holds", "holds, with our constant", "in part", "wrong", "not yet"]
INTRODUCTION = """# What the papers say, and what we find

Every statement of the four papers that can be computed: where we compute it, the test that holds
it, the report that shows it, and whether it is right. Papers and symbols are those of
[theory.md](theory.md); names are below `convexmarket`.

- *holds, with our constant*: true as stated, or once repaired, and a better constant is proven.
- *in part*: true under a condition that is not named, or in some of the cases that are.
- *wrong*: refuted by a proof, a counterexample, or a run.
- *not yet*: neither code nor a test.

Written from [statements.toml](statements.toml) by `python -m tests.test_statements`.
"""


def row(key: str, told: dict[str, str]) -> str:
    path, _, test = told.get("test", "").partition("::test_")
    report, why = told.get("report", ""), told.get("why", "")
    cells = [
        escape_markdown(key[3:]),
        escape_markdown(told["says"]),
        f"`{told['by']}`" if "by" in told else "",
        f"[{test.replace('_', ' ')}](../{path})" if test else "",
        f"[{report}](../reports/{report}/report.md)" if report else "",
        f"**{told['verdict']}**" + (f": {escape_markdown(why)}" if why else ""),
    ]
    return f"| {' | '.join(cells)} |"


def page() -> str:
    count = Counter((key[0], told["verdict"]) for key, told in STATEMENTS.items())
    heads = ["| | " + " | ".join(VERDICTS) + " |", "|:---|" + "---:|" * len(VERDICTS)]
    numbers = [f"| {p} | {' | '.join(str(count[p, v]) for v in VERDICTS)} |" for p in PAPERS]
    parts = [INTRODUCTION, *heads, *numbers]
    for paper, title in PAPERS.items():
        parts += [f"\n## {paper}. {title}\n"]
        parts += ["| place | what it says | computed by | test | report | what we find |"]
        parts += ["|:---|:---|:---|:---|:---|:---|"]
        parts += [row(k, told) for k, told in STATEMENTS.items() if k[0] == paper]
    return "\n".join(parts) + "\n"


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def looked_up(name: str) -> object:
    """Import ``convexmarket.NAME``, or a method of the papers: a module, or an object of one."""
    path = name if name.startswith("problems.") else f"convexmarket.{name}"
    module, _, last = path.rpartition(".")
    found = import_module(module)
    return getattr(found, last) if hasattr(found, last) else import_module(path)


@pytest.mark.parametrize("key", STATEMENTS)
def test_what_a_statement_names_exists(key):
    told = STATEMENTS[key]
    assert set(told) <= {"says", "by", "test", "report", "verdict", "why"}
    assert key[:3] in {f"{paper}, " for paper in PAPERS}
    assert told["says"]
    assert told["verdict"] in VERDICTS
    assert told.get("why") or told["verdict"].startswith("holds")
    if told["verdict"] != "not yet":
        assert looked_up(told["by"]) is not None
        path, name = told["test"].split("::")
        assert name in functions_of(path)
    if "report" in told:
        assert (ROOT / "reports" / told["report"] / "report.md").is_file()


def test_the_page_is_written_from_the_statements():
    assert PAGE.read_text(encoding="utf-8") == page()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
