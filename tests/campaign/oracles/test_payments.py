"""All stored answers about payments; each chunk is one in so many."""

import pytest

from tests.oracles.store import failures, read

CHUNKS = 10


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_package_computes_all_stored_answers(chunk):
    assert failures("payments", read("payments")[chunk::CHUNKS]) == []
