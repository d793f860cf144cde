"""If a Dask worker is killed during a fit, the result does not change."""

import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.partitions import rows, workers
from convexmarket.privacy import Simulation

pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

N_ROWS, N_PARTS = 4_000, 8


def block(reads: Path | None, _: object, block_id: tuple[int, int] = (0, 0)) -> np.ndarray:
    """Return a block of rows. The second read of block 3 kills the worker."""
    if reads is not None and block_id[0] == 3:
        times = len(list(reads.iterdir()))
        (reads / str(times)).touch()
        if times == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return np.random.default_rng(block_id[0]).uniform(0.0, 0.5, (N_ROWS // N_PARTS, 3))


@pytest.fixture(scope="module", autouse=True)
def client():
    with workers("local"):
        yield


@pytest.mark.parametrize(
    "learner", [cm.PrivateLogisticRegression(0.01), cm.PersonalizedRidge()], ids=repr
)
def test_a_killed_worker_does_not_change_the_model(learner, tmp_path):
    chunks = ((N_ROWS // N_PARTS,) * N_PARTS, (3,))
    y = np.random.default_rng(0).choice([-1, 1], N_ROWS)
    models = []
    for reads in (None, tmp_path):
        X = da.zeros((N_ROWS, 3), chunks=chunks).map_blocks(partial(block, reads), dtype=float)
        learner.fit(rows(X), y, epsilon=np.full(N_ROWS, 0.5), random_state=Simulation(1))
        models.append(learner.coef_)
    assert len(list(tmp_path.iterdir())) > 2  # a read, a kill and a second read
    np.testing.assert_array_equal(*models)
