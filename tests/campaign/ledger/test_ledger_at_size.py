"""A ledger of a hundred thousand sellers."""

from tests.ledger.builders import check_many_sellers


def test_a_hundred_thousand_sellers(tmp_path):
    check_many_sellers(tmp_path, 100_000)
