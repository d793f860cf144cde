"""Compare the stored results with newly computed results, or store the new results.

python -m tests.oracles [TOPIC ...] [--quick] [--only NAME] [--jobs N] [--rewrite]
"""

import argparse
import sys

from joblib import Parallel, delayed

from tests.oracles.store import TOPICS, check, read, recomputed, write


def main() -> int:
    """Run the command. Return 1 if a result differs from the stored result, and 0 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracles", description=__doc__)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"of {', '.join(TOPICS)}")
    parser.add_argument("--quick", action="store_true", help="use only quick records")
    parser.add_argument("--only", default="", help="use only records whose names contain this text")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--rewrite", action="store_true", help="store the new results")
    request = parser.parse_args()
    if unknown := set(request.topics) - set(TOPICS):
        parser.error(f"no topic {', '.join(sorted(unknown))}; there are {', '.join(TOPICS)}")
    differ = 0
    for topic in request.topics or TOPICS:
        records = read(topic)
        chosen = [
            item
            for item in records
            if request.only in item["name"] and item["quick"] >= request.quick
        ]
        work = recomputed if request.rewrite else check
        tasks = (delayed(work)(topic, item["spec"] if request.rewrite else item) for item in chosen)
        results = Parallel(n_jobs=request.jobs, return_as="generator")(tasks)
        for item, result in zip(chosen, results, strict=True):
            if request.rewrite:
                item["answer"] = result
            elif result:
                differ += 1
                print(*(f"{topic}/{item['name']}: {text}" for text in result), sep="\n", flush=True)
        print(f"{topic}: {len(chosen)}", file=sys.stderr, flush=True)
        if request.rewrite:
            write(topic, records)
    if differ:
        print(f"{differ} answers differ", file=sys.stderr)
    return int(differ > 0)


if __name__ == "__main__":
    sys.exit(main())
