"""Local workers of Dask run the code of the process that started them, and of no other."""

import asyncio
import contextlib
import os
from functools import partial

import pytest

from convexmarket.errors import ParameterError

distributed = pytest.importorskip("distributed")

import dask  # noqa: E402
from distributed.core import rpc  # noqa: E402
from distributed.protocol.pickle import dumps  # noqa: E402

from convexmarket.partitions import workers  # noqa: E402


@pytest.fixture(autouse=True)
def scheduler_as_before():
    """A client of Dask that cannot connect stays in the configuration."""
    before = dask.config.get("scheduler", None)
    yield
    dask.config.set(scheduler=before)


def by_the_scheduler(address, security, work):
    with distributed.Client(address, timeout=2, security=security) as second:
        second.submit(work, pure=False).result(timeout=20)


def by_a_worker(address, security, work):
    """Ask the first worker itself, without its scheduler."""

    async def ask():
        given = security.get_connection_args("client") if security else {}
        async with rpc(address, timeout=2, connection_args=given) as worker:
            await worker.run(function=dumps(work))

    asyncio.run(asyncio.wait_for(ask(), 10))


def runs_code(mark, attack, address, security):
    """Return whether a second client that knows an address makes a folder with it."""
    with contextlib.suppress(Exception):  # a refusal, of any kind
        attack(address, security, partial(os.mkdir, mark))
    found = mark.exists()
    if found:
        mark.rmdir()
    return found


def addresses(client):
    worker = next(iter(client.scheduler_info()["workers"]))
    return [(by_the_scheduler, client.scheduler.address), (by_a_worker, worker)]


def test_the_attacks_succeed_on_workers_without_certificates(tmp_path):
    plain = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(**plain) as client:
        for attack, address in addresses(client):
            assert runs_code(tmp_path / "mark", attack, address, None), attack


def test_no_other_process_runs_code_on_local_workers(tmp_path):
    other = distributed.Security.temporary()
    with workers("local") as client:
        for attack, address in addresses(client):
            assert address.startswith("tls://127.0.0.1")
            for wrong in (address.replace("tls:", "tcp:"), None), (address, None), (address, other):
                assert not runs_code(tmp_path / "mark", attack, *wrong), (attack, wrong)
            own = client.security
            assert runs_code(tmp_path / "mark", attack, address, own), (
                attack
            )  # with its certificate


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1"])
def test_a_scheduler_without_certificates_has_to_be_trusted(address):
    with pytest.raises(ParameterError, match=r"no TLS: .* runs code as you\. .*--trust-scheduler"):
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
