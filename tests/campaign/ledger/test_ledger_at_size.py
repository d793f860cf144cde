"""A ledger of a hundred thousand sellers, and many races of two processes."""

import pytest

from tests.ledger.builders import check_many_sellers
from tests.ledger.test_two_processes import check_one_wins
from tests.process.builders import needs_fork


def test_a_ledger_of_one_hundred_thousand_sellers_is_correct(tmp_path):
    check_many_sellers(tmp_path, 100_000)


@needs_fork
@pytest.mark.parametrize("inherited", [False, True])
def test_only_one_of_two_racing_processes_charges_the_budget(tmp_path, inherited):
    check_one_wins(tmp_path / "l", inherited, 50)
