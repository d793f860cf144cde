"""Run the experiments of the papers and write their reports.

python -m problems.papers [NAME ...] [--quick] [--out FOLDER]
"""

import argparse
import time
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


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
        experiment = import_module(f"problems.papers.{name}")
        report = experiment.report(experiment.compute(quick=given.quick))
        report.write(given.out / name.replace("_", "-"), force=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
