"""Every accounting has its sentence on the page."""

from typing import get_args

from convexmarket.privacy import Accounting
from convexmarket.report.tradeoff import ACCOUNTING_WORDS


def test_every_accounting_is_put_into_words():
    assert set(ACCOUNTING_WORDS) == set(get_args(Accounting))
