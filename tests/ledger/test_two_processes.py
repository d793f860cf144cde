"""Test that simultaneous charges do not exceed a budget (see also tests/process)."""

import pytest

import convexmarket as cm
from convexmarket.errors import BudgetExceededError
from tests.process.builders import at_once, check_integrity, needs_fork
from tests.process.ledger.builders import guarantee


@needs_fork
@pytest.mark.parametrize("inherited", [False, True])
def test_only_one_of_two_racing_processes_charges_the_budget(tmp_path, inherited):
    check_one_wins(tmp_path / "l", inherited, 4)


def check_one_wins(path, inherited, trials):
    ledger = cm.Ledger.create(path)
    for trial in range(trials):
        ids = [f"{trial}-a", f"{trial}-b"]
        ledger.sell(ids, 1.0, 0.0)

        def work(ids=ids):
            opened = ledger if inherited else cm.Ledger(path)
            account = opened.account(ids)
            try:
                account.check(guarantee([0.75, 0.75]))  # this check can succeed in both processes
                account.charge(guarantee([0.75, 0.75]))
            except BudgetExceededError:
                return False
            return True

        assert sorted(at_once([work, work])) == [False, True]
        assert ledger.account(ids).remaining.tolist() == [0.25, 0.25]
    check_integrity(ledger.path)
