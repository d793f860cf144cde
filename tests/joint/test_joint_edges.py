"""The nonlinear solver where it is missing, too old, or gives up; and a minimiser that fails."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import NotSupportedError, SolverError
from convexmarket.joint import model_step, nonlinear
from tests.joint.builders import convex_joint


def test_an_older_cvxpy_has_no_nonlinear_interface(monkeypatch):
    monkeypatch.setattr(nonlinear.metadata, "version", lambda name: "1.8.2")
    with pytest.raises(NotSupportedError, match=r'this is 1\.8\.2: pip install "cvxpy>=1\.9"'):
        cm.allocate_jointly(convex_joint(0, m=6), "nlp")


@pytest.mark.parametrize(
    ("absent", "message"),
    [
        (("unopy",), "the optional package unopy, .*pip install unopy$"),
        (("unopy", "sparsediffpy"), "packages unopy and sparsediffpy, .*unopy sparsediffpy$"),
    ],
)
def test_missing_packages_are_named_with_what_installs_them(monkeypatch, absent, message):
    monkeypatch.setattr(nonlinear.metadata, "version", lambda name: "1.9.0")
    monkeypatch.setattr(nonlinear.util, "find_spec", lambda name: None if name in absent else name)
    with pytest.raises(NotSupportedError, match=message):
        cm.allocate_jointly(convex_joint(0, m=6), "nlp")


def test_a_nonlinear_solver_that_fails_is_an_error_with_its_words(monkeypatch):
    monkeypatch.setattr(nonlinear, "check_nonlinear_solver", lambda: None)
    with pytest.raises(SolverError, match=r"the nonlinear solver failed .*; start from another"):
        cm.allocate_jointly(
            convex_joint(0, m=6), "nlp", starts=1, solver_options={"solver": "NONESUCH"}
        )


def test_a_minimiser_that_fails_is_a_solver_error(monkeypatch):
    def fail(*arguments):
        raise np.linalg.LinAlgError("singular matrix")

    monkeypatch.setattr(model_step, "minimise", fail)
    joint = convex_joint(0, m=6)
    with pytest.raises(SolverError, match=r"\(dogleg\) failed: singular matrix"):
        model_step.best_model(joint, np.full(6, 1 / 6), 1.0)
