"""All stored answers about learners; each chunk is one in so many."""

import pytest

from tests.oracles.store import failures, read

CHUNKS = 12


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_package_computes_all_stored_answers(chunk):
    assert failures("learners", read("learners")[chunk::CHUNKS]) == []
