"""Run the experiments of the papers and write their reports.

python -m problems.papers [NAME ...] [--quick] [--out FOLDER]
"""

import argparse
import time
from importlib import import_module
from pathlib import Path

#: The experiments of each report with several parts.
PARTS = {
    "joint": ["joint_published", "joint_noise", "joint_spread", "joint_variance"],
    "limits": ["limits_promise", "limits_variants"],
    "online_uniform": ["online_uniform15", "online_uniform04", "online_near_zero"],
    "release": ["release_circles", "release_wdbc"],
    "ridge": ["ridge_synthetic", "ridge_medical"],
    "ridge_choices": ["ridge_bound", "ridge_weights"],
}
NAMES = sorted([*PARTS, "joint_methods", "joint_wdbc", "online_fraction", "online_learning"])


def experiment(name):
    """Return the experiment of this name, an object or module with compute, claims and report."""
    group = import_module(f"problems.papers.{name.partition('_')[0]}")
    if made := getattr(group, "EXPERIMENTS", {}).get(name):
        parts = {part.replace("_", "-"): experiment(part) for part in PARTS.get(name, ())}
        return made(parts) if parts else made()
    return import_module(f"problems.papers.{name}")


def main() -> None:
    """Run the named experiments, or all experiments."""
    parser = argparse.ArgumentParser(prog="python -m problems.papers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="use only a few draws")
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
