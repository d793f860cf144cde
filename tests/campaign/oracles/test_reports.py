"""The stored tables of reports whose problems take less than a minute.

``python -m tests.oracles reports`` computes the others, too.
"""

import pytest

from tests.oracles.store import failures, read

CHUNKS = 8


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_problems_give_the_stored_tables(chunk):
    quick = [record for record in read("reports") if not record["spec"]["long"]]
    assert failures("reports", quick[chunk::CHUNKS]) == []
