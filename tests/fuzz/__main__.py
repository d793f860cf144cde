"""The campaign: ``python -m tests.fuzz --examples 100000 --seed 0``.

Examples are shared out among the targets, most of them to cheap ones. What fails is counted by
kind, with the shortest example of each; the last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import time

from .running import Tally, Target, campaign
from .targets import SHARES, TARGETS

ROUNDS, SMALLEST = 50, 25


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=100_000, help="in all, over the targets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", action="append", help="only targets with this in their name")
    parser.add_argument("--hang", type=float, default=600.0, help="seconds until a hard stop")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so long")
    given = parser.parse_args(arguments)
    chosen = [t for t in TARGETS if not given.target or any(w in t.name for w in given.target)]
    tallies, failed = run(chosen, given.examples, given.seed, given.minutes, given.hang)
    for target, tally in zip(chosen, tallies, strict=True):
        print(f"{target.name}: {dict(tally.outcomes)}, {tally.seconds:.0f} s")
        for kind, times in tally.counts.most_common():
            print(f"  {times} x {kind}\n      {tally.failures[kind]}")
    outcomes = ("accepted", "refused", "failed")
    totals = {one: sum(tally.outcomes[one] for tally in tallies) for one in outcomes}
    targets = {t.name: dict(tally.outcomes) for t, tally in zip(chosen, tallies, strict=True)}
    print(json.dumps({"seed": given.seed, "total": totals, "targets": targets}))
    return int(failed)


def run(
    chosen: list[Target], examples: int, seed: int, minutes: float, hang: float
) -> tuple[list[Tally], bool]:
    """Run all targets in rounds, so that whenever it ends each had its share."""
    until = time.monotonic() + 60 * minutes
    whole = sum(SHARES[target.name] for target in chosen)
    tallies = [Tally() for _ in chosen]
    told: set[str] = set()
    for number in range(1, ROUNDS + 1):
        for target, tally in zip(chosen, tallies, strict=True):
            count = round(examples * SHARES[target.name] / whole * number / ROUNDS) - tally.total
            # A few examples would only be the simplest ones, over and over.
            if count < (SMALLEST if number < ROUNDS else 1) or time.monotonic() > until:
                continue
            # Compiled code does not hear the signal; this ends it, with a traceback.
            faulthandler.dump_traceback_later(hang, exit=True)
            try:
                campaign(target, count, seed * 100_003 + number, tally)
            except KeyboardInterrupt:  # what was found so far is still reported
                until = 0.0
            faulthandler.cancel_dump_traceback_later()
            for kind in set(tally.counts) - told:
                print(f"{target.name}: {kind}\n    {tally.failures[kind]}", file=sys.stderr)
            told |= set(tally.counts)
        done, bad = sum(t.total for t in tallies), sum(t.outcomes["failed"] for t in tallies)
        print(f"round {number} of {ROUNDS}: {done} examples, {bad} failed", file=sys.stderr)
        if number % 5 == 0:  # all that is left if compiled code ends the process
            counts = {t.name: t_.total for t, t_ in zip(chosen, tallies, strict=True)}
            print(json.dumps(counts), file=sys.stderr)
    return tallies, any(tally.counts for tally in tallies)


if __name__ == "__main__":
    sys.exit(main())
