"""All stored answers about allocations and bounds."""

import pytest

from tests.oracles.store import failures, read

CHUNKS = 20


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_package_computes_all_stored_answers(chunk):
    assert failures("allocations", read("allocations")[chunk::CHUNKS]) == []
