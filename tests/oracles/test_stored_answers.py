"""Compare the quick records with recomputed answers. The campaign compares all records."""

import pytest

from tests.oracles.store import TOPICS, differences, failures, read


@pytest.mark.parametrize("topic", [topic for topic in TOPICS if topic != "reports"])
def test_the_package_computes_the_stored_answers(topic):
    records = [record for record in read(topic) if record["quick"]]
    assert records
    assert failures(topic, records) == []


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        (1.0, 1.0 + 2e-9),
        (1.0, float("nan")),
        (float("inf"), 1e308),
        ([1.0, 1e-9], [1.0, 4e-9]),
        ({"eta": 1.0}, {"eta": 1.0, "gap": 0.0}),
        ({"error": "SolverError"}, {"eta": 1.0}),
        ("exact", "conic"),
    ],
)
def test_a_difference_is_detected(stored, new):
    assert len(differences(stored, new)) == 1


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        (1.0, 1.0 + 0.5e-9),
        (float("nan"), float("nan")),
        ([float("inf"), 1.0], [float("inf"), 1.0]),
        ([1.0, 0.0], [1.0, 0.9e-9]),
        ({"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ],
)
def test_answers_that_differ_by_rounding_are_equal(stored, new):
    assert differences(stored, new) == []


def test_a_difference_is_reported_with_its_path():
    (text,) = differences({"roots": [{"eta": [1.0, 2.0]}]}, {"roots": [{"eta": [1.0, 2.5]}]})
    assert text.startswith("roots[0].eta[1]: stored 2.0, now 2.5")
