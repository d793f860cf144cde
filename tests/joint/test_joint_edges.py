"""A minimiser that fails."""

import numpy as np
import pytest

from convexmarket.errors import SolverError
from convexmarket.joint import model_step
from tests.joint.builders import convex_joint


def test_a_minimiser_that_fails_is_a_solver_error(monkeypatch):
    def fail(*arguments):
        raise np.linalg.LinAlgError("singular matrix")

    monkeypatch.setattr(model_step, "minimise", fail)
    joint = convex_joint(0, m=6)
    with pytest.raises(SolverError, match="method failed: singular matrix"):
        model_step.best_model(joint, np.full(6, 1 / 6), 1.0)
