"""Thousands of damaged copies of markets and ledgers: refused, or as if nothing had happened."""

import shutil

import numpy as np
import pytest
from hypothesis import settings

from tests.ledger.damage import State, build_states, damaged_copy, unseal, use, use_commands

#: Tries for each example of a property: 3,000 in the campaign.
MANY, COMMANDS, UNSEALED = 15, 1, 5


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    return build_states(tmp_path_factory.mktemp("whole"))


def unsealed(state, folder):
    """Return a copy of version 2, which had no seals."""
    copy = State(shutil.copytree(state.folder, folder), state.name, state.holds)
    unseal(copy)
    return copy


def use_unsealed(state):
    """Without a seal, what is altered cannot be told; all else can."""
    wrong = use(state)
    return None if wrong is not None and wrong.startswith("altered") else wrong


@pytest.mark.parametrize(
    ("name", "times", "attempt"),
    [
        ("a damaged database is read, quoted, charged, closed", MANY, use),
        ("a damaged database of version 2: another error", UNSEALED, use_unsealed),
        ("a damaged database and the commands", COMMANDS, use_commands),
    ],
)
def test_damage_is_refused_or_changes_nothing(name, times, attempt, states, tmp_path, attack):
    seed = np.random.SeedSequence().entropy
    kinds = list(states.values())
    if attempt is use_unsealed:
        kinds = [state for name, state in states.items() if "hot journal" not in name]
        kinds = [unsealed(state, tmp_path / str(k)) for k, state in enumerate(kinds)]

    def tries():
        for k in range(times * settings.default.max_examples):
            state = kinds[k % len(kinds)]
            copy, damage = damaged_copy(state, tmp_path / "copy", np.random.default_rng([seed, k]))
            yield f"{damage}, default_rng([{seed}, {k}])", lambda copy=copy: attempt(copy)

    attack(name, tries())
