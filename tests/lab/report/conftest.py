"""The stored trade-off, as a fixture."""

import pytest

from tests.lab.report.builders import stored


@pytest.fixture(scope="session")
def tradeoff_result():
    return stored("tradeoff")
