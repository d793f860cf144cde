"""Write the goldens: the Markdown of the report of every stored result.

    python -m tests.report.golden [KIND ...]          from results.json, running nothing
    python -m tests.report.golden --run [KIND ...]    runs problem.toml first, and stores what came out

The results of two kinds are made up, so that every outcome is in them and no number is a time that
somebody's machine took: see :data:`MADE_UP`. Read the difference before it is committed.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

from convexmarket.experiments import run_problem
from convexmarket.problems import load_problem, parse_problem
from convexmarket.report import build_report, read_results
from convexmarket.report.render import markdown_page
from convexmarket.report.results import write_results
from tests import ROOT
from tests.report.builders import GOLDEN, STORED, made, problem_text
from tests.report.solver_study_runs import make_result, make_runs


def made_up_study() -> Any:
    """Return a study of three seeds at two sizes."""
    runs = make_runs(seeds=3, sizes=(100, 100_000))
    problem = parse_problem(problem_text("solver-study"))
    return make_result(runs[runs.setting == "default"], problem=problem)


MADE_UP = {"release-comparison": made, "solver-study": made_up_study}


def renew_results(kind: str) -> None:
    """Run the problem of a kind, or make up its result, and store what comes out."""
    folder = GOLDEN / kind
    if kind in MADE_UP:
        result = MADE_UP[kind]()
    else:  # by its relative path, which is stored with the results
        result = run_problem(load_problem((folder / "problem.toml").relative_to(ROOT)))
    shutil.rmtree(folder / "tables", ignore_errors=True)
    (folder / "tables").mkdir()
    write_results(result, (), folder)
    if not any((folder / "tables").iterdir()):
        (folder / "tables").rmdir()


def golden_markdown(kind: str) -> str:
    """Return the Markdown that the stored result of a kind shows."""
    return markdown_page(build_report(read_results(GOLDEN / kind)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.report.golden")
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
