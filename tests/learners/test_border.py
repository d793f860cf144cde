"""Test that extreme and invalid rows give finite results or typed errors, without leaks."""

import itertools
import warnings
from decimal import Decimal
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

import convexmarket as cm
from convexmarket.checks import moderate, row_norms
from convexmarket.errors import ConvexMarketError, DataError, ParameterError
from convexmarket.learners.domain import Ball
from convexmarket.privacy import Simulation
from convexmarket.privacy.lattice import MOST_STEPS, clipped_steps
from tests import one_in
from tests.learners.builders import noisy_descent, output_ridge

ENDS = (0.0, 5e-324, 1e-310, 2.3e-308, 1e-170, 1e-150, 1e-8, 1.0, 1e8, 1e150, 1e170, 1.7e308)
entries = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [*ENDS, *(-end for end in ENDS)]
)
LEARNERS = {
    "logistic": cm.PrivateLogisticRegression(),
    "hinge": cm.learners.PrivateLinearSVC(),
    "Huber": cm.learners.PrivateHuberRegressor(),
    "personalised": cm.PersonalizedRidge(),
    "output": output_ridge(),
    "statistics": cm.PersonalizedRidge(perturbation="statistics"),
    "kernel": cm.KernelERM(),
    "kernel of numbers": cm.KernelERM("huber", "linear", data_norm=1.0),
}


def rows(seed=0, n_rows=40):
    X = np.random.default_rng(seed).uniform(0.0, 0.5, (n_rows, 4))
    return X, np.where(X[:, 0] > 0.25, 1, -1)


def fit(learner, X, y, epsilon=1.0):
    return cm.learners.private_learner.unfitted(learner).fit(
        X, y, epsilon=epsilon, random_state=Simulation(0)
    )


@cache
def fitted(name):
    X, y = rows()
    return fit(LEARNERS[name], X, y / 2.0 if name == "kernel of numbers" else y)


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("row", [[1.7e308, -1.7e308] * 2, [1e-165] * 4, [1.7e308] * 4])
def test_no_finite_row_is_identified_in_a_noisy_descent(row, hidden):
    """Without clipping, a margin of inf - inf became -2**63 and revealed the row in most fits."""
    identified = 0
    for seed in range(2):
        X, y = rows(seed, 100)
        fits = []
        for other in (row, np.zeros(4)):
            X[0] = other
            learner = noisy_descent()(hidden)
            fits.append(learner.fit(X, y, epsilon=1.0, random_state=Simulation(seed)).coef_)
        # typical rows change the coefficients by up to 0.2
        identified += np.linalg.norm(fits[0] - fits[1]) > 1.0
    assert identified == 0


@given(
    st.lists(st.lists(entries, min_size=3, max_size=3), min_size=1, max_size=4),
    st.sampled_from([1e-100, 0.3, 1.0, 1e100]),
    st.sampled_from([1e-100, 10.0, 1e100]),
    st.sampled_from([0, 2]),
    st.floats(1e-3, 1.7e308),
)
@example([[1.7e308, -1.7e308, 1.7e308]], 1.0, 10.0, 0, 1.0)
@example([[1e-165, 1e-165, 1e-165]], 1e-100, 10.0, 0, 1.7e308)
def test_no_clipped_gradient_exceeds_its_radius(found, clip, max_norm, hidden, epsilon):
    X, learner = moderate(np.array(found)), noisy_descent()(hidden, clip=clip, max_norm=max_norm)
    size = learner.size(3)
    parameters = np.random.default_rng(0).normal(size=size)
    parameters *= max_norm / np.linalg.norm(parameters)
    try:
        radii = learner.radii(np.full(len(X), epsilon), size, True)
    except ParameterError:
        return
    steps = clipped_steps(learner.gradients(X, np.ones(len(X)), parameters), clip, radii)
    lengths = np.linalg.norm(steps.astype(float), axis=1)
    assert np.all(lengths <= (radii + np.sqrt(size) / 2) * (1 + 1e-6))
    assert np.all(radii * len(X) <= MOST_STEPS)


@given(st.lists(st.lists(entries, min_size=2, max_size=2), min_size=1, max_size=4))
def test_norms_neither_overflow_nor_underflow(found):
    X = moderate(np.array(found))
    exact = [float(sum(Decimal(x) ** 2 for x in row).sqrt()) for row in X.tolist()]
    assert row_norms(X) == pytest.approx(exact, rel=1e-12)
    assert np.all((X == 0) | ((np.abs(X) >= 1e-150) & (np.abs(X) <= 1e150)))


def test_tiny_rows_above_a_tiny_bound_are_refused():
    """Without scaling, the norm of a row with entries of 1e-165 would underflow to 0."""
    with pytest.raises(DataError, match="1 of 1 rows are longer"):
        Ball(1e-170).rows(np.full((1, 2), 1e-165))
    for learner in (cm.PrivateLogisticRegression, cm.learners.PrivateHuberRegressor):
        with pytest.raises(ParameterError, match="data_norm"):
            learner(data_norm=1e-170).fit(*rows(), epsilon=1.0)


@pytest.mark.parametrize("name", LEARNERS)
@given(
    st.lists(entries, min_size=4, max_size=4),
    st.sampled_from([1e-300, 1e-9, 1.0, 1e9, 1e300, 1.7e308]),
)
def test_any_finite_row_gives_finite_numbers_or_a_typed_error(name, row, epsilon):
    X, y = rows()
    X[0] = row
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "invalid value|overflow", RuntimeWarning)
        try:
            model = fit(LEARNERS[name], X, y, epsilon)
        except ConvexMarketError:
            return
    published = model.coef_ if hasattr(model, "coef_") else model.decision_function(X[1:])
    assert np.isfinite(published).all()


PARAMETERS = {
    "logistic": ("regularization", "data_norm", "tol", "solver_epsilon"),
    "hinge": ("regularization", "data_norm", "tol", "width"),
    "Huber": ("regularization", "data_norm", "tol", "threshold", "target_range"),
    "personalised": ("regularization", "feature_range", "target_range"),
    "output": ("regularization", "max_norm", "rounding", "feature_range", "target_range"),
    "statistics": ("regularization", "feature_range", "target_range"),
    "kernel": ("regularization", "gamma", "tol", "data_norm"),
    "kernel of numbers": ("regularization", "data_norm"),
}
LIMITS = (5e-324, 1e-310, 1e-160, 1e-99, 1e-20, 1e20, 1e99, 1e160, 1.7e308, 2**60, 10**400)


@pytest.mark.parametrize(("name", "limit"), one_in(13, itertools.product(LEARNERS, LIMITS)))
def test_any_parameter_gives_finite_numbers_or_a_typed_error(name, limit):
    X, y = rows()
    for parameter in PARAMETERS[name]:
        value = (-limit, limit) if parameter.endswith("range") else limit
        learner = cm.learners.private_learner.unfitted(LEARNERS[name]).set_params(
            **{parameter: value}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = fit(learner, X * min(1.0, limit) if "norm" in parameter else X, y)
            except ConvexMarketError:
                continue
        published = model.coef_ if hasattr(model, "coef_") else model.decision_function(X[1:])
        assert np.isfinite(published).all(), parameter


SECRET = 123456.789
SEEN = ("123456", "123457", "1.2345")


def texts_of(error):
    """Return the messages and notes of an exception and of all its causes."""
    texts = []
    while error is not None:
        texts += [str(error), repr(error), *getattr(error, "__notes__", [])]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def malformed():
    """Return malformed inputs of many types, most of which contain the secret number."""
    X = rows()[0]
    X[3, 1] = SECRET
    table = pd.DataFrame(X, columns=list("abcd"))
    cells = X.astype(object)
    return {
        "too long": X,
        "complex": X.astype(complex),
        "complex cells": [[complex(x) for x in row] for row in X.tolist()],
        "a complex table": table.astype(complex),
        "text": X.astype(str),
        "text of a list": [[str(x) for x in row] for row in X.tolist()],
        "a table of text": table.astype(str),
        "bytes": X.astype("S"),
        "categories": table.astype("category"),
        "a dict in a cell": np.where(cells == SECRET, {"cell": SECRET}, cells),
        "a list in a cell": [[*row[:3], [row[3]]] for row in X.tolist()],
        "an array in a cell": np.array([[np.array(x) for x in row] for row in X] + [[0]], object),
        "ragged": [row[: 1 + place % 4] for place, row in enumerate(X.tolist())],
        "a vector": X[:, 1],
        "a cube": X[None],
        "a number": np.float64(SECRET),
        "a word": str(SECRET),
        "a number of Python": SECRET,
        "an array of no dimension": np.array(SECRET),
        "sparse": csr_matrix(X),
        "missing": np.where(X < 0.1, np.nan, X),
        "infinite": np.where(X < 0.1, np.inf, X),
        "dates": X.astype("M8[s]"),
        "records": np.array([tuple(row) for row in X], dtype="f8,f8,f8,f8"),
        "decimals": np.array([[Decimal(x) for x in row] for row in X], dtype=object),
        "huge integers": [[10**400 + 123456 for _ in row] for row in X.tolist()],
        "nothing": X[:0],
        "fewer rows": X[:-1],
        "a generator": (row for row in X),
        "a set": {SECRET},
        "a mapping": dict(enumerate(X[:, 1])),
    }


@pytest.mark.parametrize(("name", "kind"), one_in(7, itertools.product(LEARNERS, malformed())))
def test_errors_and_warnings_never_quote_a_row(name, kind):
    X, y = rows()
    if name in ("Huber", "personalised", "kernel of numbers"):
        y = y / 2.0
    bad, learner = malformed()[kind], LEARNERS[name]
    column = bad[:, 1] if isinstance(bad, np.ndarray) and bad.ndim == 2 else bad
    column = bad.iloc[:, 1] if isinstance(bad, pd.DataFrame) else column
    calls = [
        lambda: fit(learner, bad, y),
        lambda: fit(learner, X, column),
        lambda: fitted(name).predict(bad),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            texts = []
            try:
                call()
            except ConvexMarketError as error:  # other errors fail the test
                texts.append(texts_of(error))
        texts += [str(single.message) for single in caught]
        for text in texts:
            assert not any(mark in text for mark in SEEN), text


@pytest.mark.parametrize("kind", ["complex", "complex cells", "text", "a table of text", "dates"])
@pytest.mark.parametrize("name", LEARNERS)
def test_rows_of_another_type_are_refused(name, kind):
    with pytest.raises(DataError, match="X must hold numbers"):
        fit(LEARNERS[name], malformed()[kind], rows()[1])


@pytest.mark.parametrize("epsilon", ["1", ["1"] * 40, True, [True] * 40, 1 + 0j, b"1", [None] * 40])
@pytest.mark.parametrize("name", LEARNERS)
def test_an_epsilon_of_another_type_is_refused(name, epsilon):
    with pytest.raises(ParameterError, match="epsilon must hold numbers"):
        fit(LEARNERS[name], *rows(), epsilon)
