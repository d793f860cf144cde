"""Errors contain the row and the column of a private cell but not its contents."""

import traceback

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.errors import ConvexMarketError
from convexmarket.learners.predictor import Kernel
from convexmarket.privacy import Guarantee
from convexmarket.release import PublicPredictor

PRIVATE = "HIV-positive"
GOOD = np.array([[0.1, 0.2], [0.3, 0.4], [0.2, 0.1]])
TABLE = pd.DataFrame({"age": [0.1, 0.3, 0.2], "status": [0.2, PRIVATE, 0.1]})
WORDS = [0.1, PRIVATE, 0.2]
SIGNS = np.array([-1, 1, 1])
PRIOR = cm.Uniform(0, 1)


def logistic(X, y):
    return cm.PrivateLogisticRegression(0.1).fit(X, y, epsilon=1.0)


def ridge(X, y):
    return cm.PersonalizedRidge().fit(X, y, epsilon=1.0)


def predicted(X):
    guarantee = Guarantee(np.array([1.0]), 0.0, "a release", "exact", ())
    kernel = Kernel("rbf", data_norm=1.0)
    return PublicPredictor(kernel, GOOD, np.ones(3), guarantee).predict(X)


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda: logistic(TABLE, SIGNS), "row 1 of column 'status'"),
        (lambda: logistic(TABLE.to_numpy(), SIGNS), "row 1 of column 1"),
        (lambda: logistic(GOOD, [-1, PRIVATE, 1]), "labels are not in the public classes"),
        (lambda: ridge(TABLE, [0.1, 0.2, 0.3]), "row 1 of column 'status'"),
        (lambda: ridge(GOOD, WORDS), "y must hold numbers: row 1"),
        (lambda: ridge(GOOD, [0.1, 0.2, 0.3]).predict(TABLE), "row 1 of column 'status'"),
        (lambda: predicted(TABLE), "row 1 of column 'status'"),
        (lambda: cm.Sellers(WORDS, PRIOR), "sensitivities must hold numbers: row 1 "),
        (lambda: cm.PersonalizedRidge().fit(GOOD, [0, 0, 0], epsilon=WORDS), "row 1 "),
        (lambda: PRIOR.cdf(WORDS), "row 1 "),
        (
            lambda: cm.Sellers([0.6, 0.123456], cm.Uniform(0.5, 1)),
            r"the first is sensitivities\[1\]\.",
        ),
        (lambda: cm.Sellers([0.5, 0.123456], [PRIOR, cm.Uniform(0.5, 1)]), r"sensitivities\[1\]"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_an_error_names_only_row_and_column(call, where):
    with pytest.raises(ConvexMarketError, match=where) as refused:
        call()
    assert PRIVATE not in "".join(traceback.format_exception(refused.value))[-2_000:]
    assert PRIVATE not in str(refused.value)
    assert "0.123456" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
