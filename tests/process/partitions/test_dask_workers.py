"""Test commands that use Dask workers, one of which is killed."""

import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import convexmarket as cm
from convexmarket.cli import app
from convexmarket.partitions import table, workers
from tests.lists import price_list

pytest.importorskip("distributed")
dd = pytest.importorskip("dask.dataframe")

PRIOR = cm.Uniform(0.02, 0.10)


@pytest.fixture
def sellers(tmp_path):
    reports = PRIOR.sample(120_000, np.random.default_rng(0))
    table = pd.DataFrame({"id": [f"s{k}" for k in range(reports.size)], "sensitivity": reports})
    for part in range(12):
        table[part::12].to_parquet(tmp_path / f"sellers{part:02}.parquet")
    return tmp_path


def test_a_killed_worker_does_not_change_the_result(sellers):
    given = {"mu": 1.0, "sigma": 100.0, "gamma": 0.001, "cap": 5.0, "id": "id"}

    def written(folder):
        deal = price_list(table(sellers), PRIOR, **given)
        deal.write(sellers / folder)
        return deal.totals

    with workers("local") as client:
        whole = written("whole")
        answer = []

        def work():
            answer.append(written("offers"))

        thread = threading.Thread(target=work)
        before = client.run(os.getpid)
        thread.start()
        until = time.monotonic() + 60
        while not list(sellers.glob(".offers.*.new/part.*")) and time.monotonic() < until:
            time.sleep(0.002)
        os.kill(next(iter(before.values())), signal.SIGKILL)
        thread.join(120)
        assert set(client.run(os.getpid).values()) != set(before.values())
    assert len(answer) == 1
    assert answer[0] == whole
    single, other = (dd.read_parquet(sellers / name).compute() for name in ("whole", "offers"))
    pd.testing.assert_frame_equal(single, other, check_exact=True)


def test_the_command_line_starts_local_workers(sellers):
    standard = ["--prior", "uniform:0.02,0.10", "--mu", "1", "--sigma", "100", "--gamma", "0.001"]
    written = ["--dask", "local", "--out", str(sellers / "offers")]
    result = CliRunner().invoke(app, ["price", str(sellers), *standard, *written])
    assert result.exit_code == 0, result.output
    assert "relative gap" in result.output
    assert len(dd.read_parquet(sellers / "offers")) == 120_000
