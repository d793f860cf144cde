"""Local Dask workers run only code of the process that started them."""

import asyncio
import multiprocessing
import os
import time
from functools import partial
from pathlib import Path

import pytest

from convexmarket.errors import ParameterError

distributed = pytest.importorskip("distributed")

import dask  # noqa: E402
from distributed.core import rpc  # noqa: E402
from distributed.protocol.pickle import dumps  # noqa: E402

from convexmarket.partitions import workers  # noqa: E402


@pytest.fixture(autouse=True)
def scheduler_as_before():
    """Restore the Dask configuration, because it still refers to a client that failed."""
    before = dask.config.get("scheduler", None)
    yield
    dask.config.set(scheduler=before)


#: Time limits (seconds): for a successful attack on a busy machine, and for a refused attack.
SUCCESS, REFUSAL = 100.0, 20.0


def by_the_scheduler(mark, address, security):
    with distributed.Client(address, timeout="60s", security=security) as second:
        second.submit(os.mkdir, mark, pure=False).result()


def by_a_worker(mark, address, security):
    """Send the work directly to the first worker, without the scheduler."""

    async def send():
        given = security.get_connection_args("client") if security else {}
        async with rpc(address, connection_args=given) as worker:
            await worker.run(function=dumps(partial(os.mkdir, mark)))

    asyncio.run(send())


def try_all(folder, attacks, seconds):
    """Run each attack in a separate process, and check whether it created its folder in time."""
    spawn = multiprocessing.get_context("spawn")
    marks = [folder / str(number) for number in range(len(attacks))]
    running = [
        spawn.Process(target=attack, args=(str(mark), *terms))
        for mark, (attack, *terms) in zip(marks, attacks, strict=True)
    ]
    for process in running:
        process.start()
    deadline = time.monotonic() + seconds
    for process in running:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()  # a refused client can continue to try
        process.join()
    made = [mark.exists() for mark in marks]
    for mark in filter(Path.exists, marks):
        mark.rmdir()
    return made


def addresses(client):
    worker = next(iter(client.scheduler_info()["workers"]))
    return [(by_the_scheduler, client.scheduler.address), (by_a_worker, worker)]


def test_the_attacks_succeed_on_workers_without_certificates(tmp_path):
    plain = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(**plain) as client:
        attacks = [(*attack, None) for attack in addresses(client)]
        assert try_all(tmp_path, attacks, SUCCESS) == [True, True]


def test_no_other_process_runs_code_on_local_workers(tmp_path):
    other = distributed.Security.temporary()
    with workers("local") as client:
        assert all(address.startswith("tls://127.0.0.1") for _, address in addresses(client))
        wrong = [
            (attack, *terms)
            for attack, address in addresses(client)
            for terms in (
                (address.replace("tls:", "tcp:"), None),
                (address, None),
                (address, other),
            )
        ]
        assert not any(try_all(tmp_path, wrong, REFUSAL))
        right = [(*attack, client.security) for attack in addresses(client)]
        assert try_all(tmp_path, right, SUCCESS) == [True, True]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1"])
def test_a_scheduler_without_certificates_must_be_trusted_explicitly(address):
    with pytest.raises(
        ParameterError, match=r"no TLS: .* can run code as you; .*--trust-scheduler"
    ):
        workers(address)
    with pytest.raises(ParameterError, match="no scheduler answers"):
        workers(address, trust_scheduler=True)
    with pytest.raises(ParameterError, match=r"no scheduler answers \(TLS expects"):
        workers("tls://127.0.0.1:1")


def test_a_trusted_scheduler_is_used():
    plain = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**plain) as cluster,
        workers(cluster.scheduler_address, trust_scheduler=True) as client,
    ):
        assert client.submit(sum, [1, 2]).result() == 3
