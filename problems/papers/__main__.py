"""Run the experiments of the papers and write their reports.

python -m problems.papers [NAME ...] [--quick] [--out FOLDER]
"""

import argparse
import time
from importlib import import_module
from pathlib import Path

#: The experiments of each module that holds several; those of other modules have their names.
GROUPS = {
    "joint": ["noise", "published", "spread", "variance"],
    "online": ["fraction", "learning", "near_zero", "uniform04", "uniform15"],
    "release": ["circles", "wdbc"],
    "ridge": ["bound", "medical", "synthetic", "weights"],
}
NAMES = ["joint_methods", "joint_wdbc", "pareto"]
NAMES = sorted([*NAMES, *(f"{group}_{name}" for group in GROUPS for name in GROUPS[group])])


def experiment(name):
    """Return the experiment of a name: a module or an object with compute, claims and report."""
    group, _, member = name.partition("_")
    if member in GROUPS.get(group, ()):
        return import_module(f"problems.papers.{group}").EXPERIMENTS[member]()
    return import_module(f"problems.papers.{name}")


def main() -> None:
    """Run the named experiments, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m problems.papers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="a few draws of each, to try it out")
    parser.add_argument("--out", type=Path, default=Path("reports"), help="folder of the reports")
    given = parser.parse_args()
    names = [name.replace("-", "_") for name in given.names] or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no experiment {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    for name in names:
        began = time.monotonic()
        script = experiment(name)
        report = script.report(script.compute(quick=given.quick))
        report.write(given.out / name.replace("_", "-"), force=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
