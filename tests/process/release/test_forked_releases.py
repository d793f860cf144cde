"""Two processes cannot query the same release, because they would draw the same noise."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import NotSupportedError
from tests.process.builders import Child, needs_fork


@needs_fork
@pytest.mark.parametrize("kind", ["function", "interactive"])
def test_a_forked_process_cannot_query_a_release_of_its_parent(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (300, 2))
    erm = cm.KernelERM(regularization=0.1).fit(X, np.where(X[:, 0] > 0, 1, -1))
    release = (
        cm.release.FunctionRelease(erm, 1.0, 1e-6)
        if kind == "function"
        else cm.InteractiveRelease(erm, 1.0, 1e-6, max_queries=5, max_updates=2)
    )

    def ask(notify):
        try:
            release.predict(X[:1])
        except NotSupportedError as error:
            notify(str(error))

    ((message,),) = Child(ask).end()
    assert "created in another process" in message
    assert release.predict(X[:1]).shape == (1,)
