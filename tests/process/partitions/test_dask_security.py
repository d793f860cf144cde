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


def by_the_scheduler(address, security, work, timeout):
    with distributed.Client(address, timeout=timeout, security=security) as second:
        second.submit(work, pure=False).result(timeout=10 * timeout)


def by_a_worker(address, security, work, timeout):
    """Send the work to the first worker itself, without its scheduler."""

    async def send():
        given = security.get_connection_args("client") if security else {}
        async with rpc(address, timeout=timeout, connection_args=given) as worker:
            await worker.run(function=dumps(work))

    asyncio.run(asyncio.wait_for(send(), 5 * timeout))


def runs_code(mark, attack, address, security):
    """Let a second client make a folder; an error is raised if the folder is absent."""
    attack(address, security, partial(os.mkdir, mark), 60)  # a busy machine may need seconds
    mark.rmdir()


def is_refused(mark, attack, address, security):
    """Return whether a second client fails to make a folder within two seconds."""
    with contextlib.suppress(Exception):  # a refusal, of any kind
        attack(address, security, partial(os.mkdir, mark), 2)
    return not mark.exists()


def addresses(client):
    worker = next(iter(client.scheduler_info()["workers"]))
    return [(by_the_scheduler, client.scheduler.address), (by_a_worker, worker)]


def test_the_attacks_succeed_on_workers_without_certificates(tmp_path):
    plain = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.Client(**plain) as client:
        for attack, address in addresses(client):
            runs_code(tmp_path / "mark", attack, address, None)


def test_no_other_process_runs_code_on_local_workers(tmp_path):
    other = distributed.Security.temporary()
    with workers("local") as client:
        for attack, address in addresses(client):
            assert address.startswith("tls://127.0.0.1")
            for wrong in (address.replace("tls:", "tcp:"), None), (address, None), (address, other):
                assert is_refused(tmp_path / "mark", attack, *wrong), (attack, wrong)
            runs_code(tmp_path / "mark", attack, address, client.security)


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
