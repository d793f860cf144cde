"""Write the goldens: the Markdown of the report of every stored result.

    python -m tests.lab.report.golden [KIND ...]         from results.json, running nothing
    python -m tests.lab.report.golden --run [KIND ...]   from a new run of problem.toml, kept first

Read the difference before it is committed. The results of two kinds are made up: see
:data:`tests.lab.report.builders.MADE_UP`.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from convexmarket.lab import build_report, run_problem
from convexmarket.lab.problem.loading import load_problem
from convexmarket.lab.report.render import markdown_page
from convexmarket.lab.report.results import read_results, write_results
from tests import ROOT
from tests.lab.report.builders import GOLDEN, STORED


def renew_results(kind: str) -> None:
    """Run the problem of a kind, or make up its result, and store what comes out."""
    folder = GOLDEN / kind
    # By its relative path, which is stored with the results.
    result = run_problem(load_problem((folder / "problem.toml").relative_to(ROOT)))
    shutil.rmtree(folder / "tables", ignore_errors=True)
    (folder / "tables").mkdir()
    write_results(result, folder)
    if not any((folder / "tables").iterdir()):
        (folder / "tables").rmdir()


def golden_markdown(kind: str) -> str:
    """Return the Markdown that the stored result of a kind shows."""
    return markdown_page(build_report(read_results(GOLDEN / kind)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.report.golden")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(STORED))
    parser.add_argument("--run", action="store_true", help="run the problems first")
    options = parser.parse_args()
    os.chdir(ROOT)
    for kind in options.kinds or STORED:
        if options.run:
            renew_results(kind)
        file: Path = GOLDEN / kind / "report.md"
        file.write_text(golden_markdown(kind), encoding="utf-8")
        print(f"Wrote {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
