"""Hostile inputs give a correct result or an error that describes the mistake.

A target has the number of examples of the Hypothesis profile, times the weight of the target.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.campaign.fuzz import calls, files, mathematics
from tests.campaign.fuzz.running import Target, WrongAnswerError, outcome

MODULES = (files, mathematics, calls)
TARGETS = {target.name: target for module in MODULES for target in module.TARGETS}


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_inputs_are_accepted_correctly_or_refused(name):
    target = TARGETS[name]

    @settings(
        max_examples=settings.default.max_examples * target.weight,
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(target.examples)
    def run(example):
        assert outcome(target, example) in ("accepted", "refused")

    run()


def endless(example):
    while True:
        pass


@pytest.mark.parametrize(
    ("check", "error"), [(lambda x: str(1 / x), ZeroDivisionError), (endless, WrongAnswerError)]
)
def test_defects_and_hangs_are_reported(check, error):
    with pytest.raises(error):
        outcome(Target("broken", st.just(0), check, seconds=0.05), 0)
