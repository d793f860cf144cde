"""Kill hundreds of processes at random times, and check that no completed step is lost."""

import pytest

from tests.process.builders import needs_fork
from tests.process.cli.test_killed_lists import check_killed_list
from tests.process.ledger import builders as ledger
from tests.process.online import builders as online

pytestmark = needs_fork
CHECKS = (
    online.check_random_kills,
    online.check_kills_in_creation,
    online.check_kills_in_closing,
    ledger.check_random_kills,
    ledger.check_kills_in_creation,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.__module__}.{check.__name__}")
def test_no_durable_quote_is_lost_when_processes_are_killed(tmp_path, check):
    check(tmp_path / "here", 400)


def test_a_killed_list_of_nine_hundred_sellers_can_be_continued(tmp_path):
    check_killed_list(tmp_path, 900)
