"""Run all benchmarks and write docs/benchmarks.md: ``python -m tests.benchmarks [RESULTS.json]``.

If the JSON file of an earlier ``pytest --benchmark-json`` is given, the command only writes the
page.
"""

import json
import os
import subprocess
import sys
from importlib import import_module
from inspect import getdoc
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/benchmarks.md"
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
INTRODUCTION = """# Benchmarks

`python -m tests.benchmarks` writes this page. Each ratio of times compares the median times of two
functions that are called alternately in one run. Times in seconds depend on the machine. The
benchmarks check gaps and numbers of solves, but not times.

[Large lists](large-lists.md) contains measurements for lists of up to 10^8 sellers and for lists
that are stored in partitions. The [reports](../reports/README.md) compare solvers and formulations,
with confidence intervals. [Private learners by default](private-learners.md) compares the errors of
the learners with default and tuned settings."""


def run(results: Path) -> None:
    """Run all benchmarks with one thread for linear algebra."""
    command = ["-m", "pytest", "-q", "--benchmark-only", f"--benchmark-json={results}"]
    subprocess.run(
        [sys.executable, *command, "tests/benchmarks"],
        cwd=ROOT,
        check=True,
        env={**os.environ, **THREADS},
    )


def page(results: dict) -> str:
    """Return the page, with a section for each file and a table for each benchmark."""
    parts = [INTRODUCTION, machine(results["machine_info"])]
    runs = sorted(results["benchmarks"], key=lambda run: run["fullname"].split("[")[0])
    for file, of_file in groupby(runs, key=lambda run: run["fullname"].split("::")[0]):
        module = import_module(file.removesuffix(".py").replace("/", "."))
        parts.append(f"## {getdoc(module).splitlines()[0].rstrip('.')}")
        for name, of_test in groupby(of_file, key=lambda run: run["name"].split("[")[0]):
            parts += [f"**{summary(getattr(module, name))}**", table([*of_test])]
    return "\n\n".join(parts) + "\n"


def machine(info: dict) -> str:
    """Describe the machine on which the benchmarks ran."""
    cpu = info["cpu"]
    return f"{cpu['count']} cores ({cpu['brand_raw']}), Python {info['python_version']}."


def summary(test) -> str:
    """Return the first line of a benchmark's docstring, or the benchmark's name."""
    line = (getdoc(test) or test.__name__.removeprefix("test_").replace("_", " ")).splitlines()[0]
    return line.rstrip(".")


def table(runs: list[dict]) -> str:
    """Return a table of the parameters, median times and other results of a benchmark."""
    rows = [
        {
            **{
                name: "none" if value is None else str(value)
                for name, value in (run["params"] or {}).items()
            },
            "seconds": number(run["stats"]["median"]),
            **{name: number(value) for name, value in flat(run["extra_info"])},
        }
        for run in runs
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[row.get(name, "") for name in columns] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def flat(extra: dict) -> list[tuple[str, object]]:
    """Return the items of a dictionary, in which a nested dictionary is replaced by its items."""
    return [
        pair
        for name, value in extra.items()
        for pair in (value.items() if isinstance(value, dict) else [(name, value)])
    ]


def number(value: object) -> str:
    """Format a float with two significant digits and an integer with all digits."""
    return f"{float(f'{value:.2g}'):g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        results = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "results.json"
        if len(sys.argv) == 1:
            run(results)
        PAGE.write_text(page(json.loads(results.read_text())))
