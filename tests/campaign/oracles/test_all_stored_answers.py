"""Recompute all stored solutions, and the tables of reports that need less than a minute.

``python -m tests.oracles reports`` recomputes all tables.
"""

import pytest

from tests.oracles.store import failures, read

#: Number of tests among which the records of each topic are divided.
PARTS = {"allocations": 40, "joint": 6, "learners": 12, "ledgers": 4, "online": 6}
PARTS |= {"payments": 10, "reports": 8}


@pytest.mark.parametrize(
    ("topic", "part"), [(topic, part) for topic, parts in PARTS.items() for part in range(parts)]
)
def test_the_package_computes_all_stored_answers(topic, part):
    records = [record for record in read(topic) if not record["spec"].get("long")]
    assert failures(topic, records[part :: PARTS[topic]]) == []
