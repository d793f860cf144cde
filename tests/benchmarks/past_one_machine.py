"""Measure the times and the memory that docs/large-lists.md contains, and print the table.

``python -m tests.benchmarks.past_one_machine --rows 6 7`` measures 10^6 and 10^7 rows. 10^8 rows
require partitions. Each line is measured in a separate process with at most two workers of 1.5 GiB.
Times are total CPU seconds, which depend little on the load of the machine. Workers have already
imported the package.
"""

import argparse
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from tempfile import TemporaryDirectory
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

import convexmarket as cm
from convexmarket import partitions
from convexmarket.learners import PersonalizedRidge, PrivateLogisticRegression
from convexmarket.privacy import Simulation
from tests.benchmarks.__main__ import THREADS
from tests.lists import price_list

PRIOR = cm.Uniform(0.02, 0.10)
WEIGHTS = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001}
CAPS = (None, 5.0)
WHERE = {"memory": 0, "one worker": 1, "two workers": 2}
PART = 1 << 20
FEATURES = [f"x{k}" for k in range(10)]


def usage() -> tuple[float, int]:
    """Return the CPU seconds of this process and its peak memory in MiB."""
    used = getrusage(RUSAGE_SELF)
    status = Path("/proc/self/status").read_text()  # ru_maxrss includes memory of the parent
    peak = int(status.split("VmHWM:")[1].split()[0])
    return used.ru_utime + used.ru_stime, peak >> 10


class Meter:
    """Measure the CPU time and the memory of this process and of the workers."""

    def __init__(self, client: Any) -> None:
        self._client, self._compute = client, dask.compute
        dask.compute = self._counted
        self.lines: list[dict[str, Any]] = []
        self._begin()

    def _counted(self, *wanted: Any, **options: Any) -> Any:
        result = self._compute(*wanted, **options)
        self._passes += 1
        self._fetched += len(pickle.dumps(result))
        return result

    def _used(self) -> list[tuple[float, int]]:
        return [usage(), *(self._client.run(usage).values() if self._client else [])]

    def _begin(self) -> None:
        self._passes = self._fetched = 0
        self._since = self._used()

    def record(self, job: str) -> None:
        """Record the CPU time and peak memory since the last call."""
        used = self._used()
        cpu = sum(now - before for (now, _), (before, _) in zip(used, self._since, strict=True))
        peak = [peak for _, peak in used]
        line = {"job": job, "passes": self._passes, "fetched": self._fetched / 2**20}
        self.lines.append({**line, "cpu": cpu, "peak": peak})
        self._begin()


def sellers(meter: Meter, folder: Path, parted: bool, cap: float | None) -> None:
    """Measure checks, an allocation, payments and an audit for a Parquet file without ids."""
    if parted:
        column = dd.read_parquet(folder / "sellers", columns=["sensitivity"])["sensitivity"]
        if cap is None:
            dask.compute(column.count(), column.sum(), (column**2).sum())
            meter.record("count, sum, squares")
    else:
        column = pd.read_parquet(folder / "sellers", columns=["sensitivity"])["sensitivity"]
    make = partitions.sellers if parted else cm.Sellers
    market = cm.Market.standard(make(column, PRIOR), **WEIGHTS, cap=cap)
    meter.record("check" if cap is None else "")
    allocation = cm.allocate(market)
    meter.record("allocate")
    dask.compute(cm.payments(market, allocation).sum())
    meter.record("payments")
    cm.audit_incentives(market)
    meter.record("audit")


def price(meter: Meter, folder: Path, parted: bool, cap: float | None) -> None:
    """Measure the computation of offers, payments and an audit for a Parquet file with ids."""
    table = partitions.table(folder / "sellers") if parted else folder / "sellers.csv"
    deal = price_list(table, PRIOR, **WEIGHTS, cap=cap, id="id")
    deal.write(folder / ("offers" if parted else "offers.csv"), audit=deal.audit())
    meter.record("price, Parquet" if parted else "price, CSV")
    if parted or cap is not None:
        return
    written = pa.Table.from_pandas(deal.offers.reset_index(), preserve_index=False)
    meter.record("")
    table = pyarrow.csv.read_csv(folder / "sellers.csv")
    np.sort(table["sensitivity"].to_numpy())
    pyarrow.csv.write_csv(written, folder / "again.csv")
    meter.record("price, by pyarrow")


def fits(meter: Meter, folder: Path, parted: bool, cap: None) -> None:
    """Measure the fits of private models to the rows of a Parquet file."""
    source = folder / "rows"
    if parted:
        X = partitions.rows(dd.read_parquet(source).to_dask_array(lengths=True))
    else:
        X = pd.read_parquet(source).to_numpy()
    labels = np.load(folder / "labels.npy")
    epsilon = np.full(labels.size, 0.1)
    meter.record("")
    for name, model in (
        ("logistic regression", PrivateLogisticRegression(0.01)),
        ("ridge regression", PersonalizedRidge()),
    ):
        model.fit(X, labels, epsilon=epsilon, random_state=Simulation(0))
        meter.record(name)


JOBS: dict[str, Callable[..., None]] = {"sellers": sellers, "price": price, "fits": fits}


@contextmanager
def workers(number: int) -> Iterator[Any]:
    """Yield a Dask client of ``number`` workers, each of which has 1.5 GiB of memory."""
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "memory_limit": "1.5GiB", "dashboard_address": None}
    with LocalCluster(n_workers=number, **options) as cluster, Client(cluster) as client:
        client.run(usage)
        yield client


def measure(job: str, folder: Path, where: str, cap: float | None) -> None:
    """Run one job and print its measurements as JSON."""
    number = WHERE[where]
    with workers(number) if number else nullcontext() as client:
        meter = Meter(client)
        JOBS[job](meter, folder, bool(number), cap)
    print(json.dumps([line | {"where": where, "cap": cap} for line in meter.lines if line["job"]]))


def prepare(folder: Path, rows: int, wanted: list[str]) -> None:
    """Write the files of sellers and rows that the measurements read."""
    rng = np.random.default_rng(0)
    (folder / "sellers").mkdir()
    with_ids = "price" in wanted
    for part, start in enumerate(range(0, rows, PART)):
        size = min(PART, rows - start)
        frame = pd.DataFrame({"sensitivity": PRIOR.sample(size, rng)})
        if with_ids:
            frame.insert(0, "id", [f"s{k}" for k in range(start, start + size)])
            header = pyarrow.csv.WriteOptions(include_header=not part)
            if rows < 10**8:
                with open(folder / "sellers.csv", "ab") as csv:
                    pyarrow.csv.write_csv(pa.Table.from_pandas(frame), csv, header)
        frame.to_parquet(folder / "sellers" / f"part.{part:04}.parquet")
    if "fits" in wanted:
        (folder / "rows").mkdir()
        labels = []
        for part, start in enumerate(range(0, rows, PART >> 2)):
            size = min(PART >> 2, rows - start)
            X = rng.uniform(0.0, 0.3, (size, len(FEATURES)))
            labels.append(np.where(X[:, 0] > 0.15, 1, -1))
            path = folder / "rows" / f"part.{part:04}.parquet"
            pd.DataFrame(X, columns=FEATURES).to_parquet(path)
        np.save(folder / "labels.npy", np.concatenate(labels))


def measured(exponent: int, wanted: list[str]) -> list[dict[str, Any]]:
    """Return the measurements for 10^exponent rows, for 10^8 only in partitions without a cap."""
    wanted = [job for job in wanted if exponent < 8 or job != "fits"]
    result: list[dict[str, Any]] = []
    with TemporaryDirectory() as name:
        prepare(Path(name), 10**exponent, wanted)
        for job in wanted:
            for cap in CAPS if exponent < 8 and job != "fits" else CAPS[:1]:
                for where in WHERE if exponent < 8 else ["two workers"]:
                    command = [sys.executable, "-m", "tests.benchmarks.past_one_machine"]
                    given = ["--one", json.dumps([job, name, where, cap])]
                    environment = {**os.environ, **THREADS, "PYTHONWARNINGS": "ignore"}
                    ended = subprocess.run(
                        [*command, *given], env=environment, check=True, stdout=subprocess.PIPE
                    )
                    lines = json.loads(ended.stdout.splitlines()[-1])
                    result += [line | {"rows": exponent} for line in lines]
                    print(table(result), end="\n\n", file=sys.stderr, flush=True)
                    shutil.rmtree(f"{name}/offers", ignore_errors=True)
    return result


def table(lines: list[dict[str, Any]]) -> str:
    """Return a table with a row for each job, size and cap, and a column for each location.

    The cells contain CPU seconds and the peak memory of the calling process and of the workers.
    """
    cells = [["job", "rows", "cap", "passes", "MiB fetched", *WHERE], ["---"] * (5 + len(WHERE))]
    of = {}
    for line in lines:
        of.setdefault((line["job"], line["rows"], line["cap"]), {})[line["where"]] = line
    jobs = list(dict.fromkeys(job for job, *_ in of))
    for job, rows, cap in sorted(of, key=lambda key: (jobs.index(key[0]), key[1], key[2] or 0)):
        places = of[job, rows, cap]
        row = [job, f"10^{rows}", "" if cap is None else f"{cap:g}", "", ""]
        if apart := places.get("two workers"):
            row[3:] = [str(apart["passes"]), f"{apart['fetched']:.1f}"]
        for line in map(places.get, WHERE):
            row.append(f"{line['cpu']:.2g} ({', '.join(map(str, line['peak']))})" if line else "")
        cells.append(row)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def main() -> None:
    """Measure the resources of the selected jobs and print their table."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--rows", type=int, nargs="+", default=[6], help="exponents of 10")
    given.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    given.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = given.parse_args()
    if options.one:
        job, folder, where, cap = options.one
        measure(job, Path(folder), where, cap)
        return
    lines = [line for exponent in options.rows for line in measured(exponent, options.jobs)]
    print(table(lines))


if __name__ == "__main__":
    main()
