"""Thousands of damaged copies of markets and ledgers are refused or work as before."""

import numpy as np
import pytest
from hypothesis import settings

from tests.ledger.damage import build_states, damaged_copy, use, use_commands

#: Tries for each example of a property: 3,000 in the campaign.
MANY, COMMANDS = 15, 1


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    return build_states(tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    ("name", "times", "attempt"),
    [
        ("a damaged database is read, quoted, charged, closed", MANY, use),
        ("a damaged database and the commands", COMMANDS, use_commands),
    ],
)
def test_damaged_databases_are_refused_or_unchanged(name, times, attempt, states, tmp_path, attack):
    seed = np.random.SeedSequence().entropy
    kinds = list(states.values())

    def tries():
        for k in range(times * settings.default.max_examples):
            state = kinds[k % len(kinds)]
            copy, damage = damaged_copy(state, tmp_path / "copy", np.random.default_rng([seed, k]))
            yield f"{damage}, default_rng([{seed}, {k}])", lambda copy=copy: attempt(copy)

    attack(name, tries())
