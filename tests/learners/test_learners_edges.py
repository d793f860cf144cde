"""Arguments that bounds on the risk refuse, and rows too long for any kernel."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.learners.kernels import Kernel

CONSTANTS = {"alpha": 1.0, "n_features": 2, "label_noise": 0.1, "delta": 0.5}
BOUND = CONSTANTS | {"rate": 100.0, "coef_norm": 1.0, "smallest_eigenvalue": 1.0}
REFUSED = [
    ("alpha", 0.0, "alpha must be positive and finite, not 0.0"),
    ("alpha", np.inf, "alpha must be positive and finite, not inf"),
    ("n_features", 0, "n_features must be at least 1, not 0"),
    ("label_noise", -0.1, "label_noise must be nonnegative and finite, not -0.1"),
    ("label_noise", np.nan, "label_noise must be nonnegative and finite, not nan"),
    ("delta", 0.0, "delta must lie strictly between 0 and 1, not 0.0"),
    ("delta", 1.0, "delta must lie strictly between 0 and 1, not 1.0"),
]
OF_BOUND = [
    ("coef_norm", -1.0, "coef_norm must be nonnegative and finite, not -1.0"),
    ("smallest_eigenvalue", np.inf, "smallest_eigenvalue must be nonnegative and finite, not inf"),
    ("rate", 0.0, "rate must be positive"),
    ("rate", np.nan, "rate must be positive"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_risk_constants_refuse(name, value, message):
    with pytest.raises(cm.ParameterError, match=message):
        cm.ridge_risk_constants(**CONSTANTS | {name: value})


@pytest.mark.parametrize(("name", "value", "message"), [*REFUSED, *OF_BOUND])
def test_the_error_bound_refuses(name, value, message):
    with pytest.raises(cm.ParameterError, match=message):
        cm.ridge_error_bound([0.5, 0.5], **BOUND | {name: value})


def test_rows_whose_norms_overflow_are_outside_every_domain():
    kernel = Kernel("rbf")
    kernel.check_domain(np.full((1, 2), 1e150), "X")
    with pytest.raises(cm.DataError, match="X holds rows whose norms overflow: scale them"):
        kernel.check_domain(np.array([[0.0, 0.0], [1e200, 0.0]]), "X")
