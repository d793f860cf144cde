"""Damaged copies of markets and ledgers raise an error or work like the original databases."""

import numpy as np
import pytest
from hypothesis import settings

from tests.ledger.damage import build_states, damaged_copy, use

#: Factor for the number of damaged copies, which is 3,000 in the campaign.
MANY = 15


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    return build_states(tmp_path_factory.mktemp("whole"))


def test_damaged_databases_raise_an_error_or_keep_their_contents(states, tmp_path, attack):
    seed = np.random.SeedSequence().entropy
    kinds = list(states.values())

    def tries():
        for k in range(MANY * settings.default.max_examples):
            state = kinds[k % len(kinds)]
            copy, damage = damaged_copy(state, tmp_path / "copy", np.random.default_rng([seed, k]))
            yield f"{damage}, default_rng([{seed}, {k}])", lambda copy=copy: use(copy)

    attack("a damaged database is read, quoted, charged, closed", tries())
