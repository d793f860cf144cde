"""A small, fixed part of the campaign: every target, on examples that are the same every time."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

import convexmarket as cm

from .calls import ABSTRACT, RESULTS, functions
from .running import Tally, Target, TooSlow, campaign, outcome, time_limit
from .targets import GATE, SHARES, TARGETS


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_unexpected(target):
    @settings(
        max_examples=GATE.get(target.name, 50),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(target.examples)
    def run(example):
        assert outcome(target, example) in ("accepted", "refused")

    run()


def test_every_target_has_its_share():
    assert list(SHARES) == [target.name for target in TARGETS]
    assert sum(SHARES.values()) == 100_000


def test_every_public_name_is_called_or_said_not_to_be():
    errors = {name for name in cm.__all__ if name.endswith(("Error", "Warning"))}
    not_calls = {name for name in cm.__all__ if not callable(getattr(cm, name))}
    assert errors | not_calls | RESULTS | ABSTRACT | set(functions()) >= set(cm.__all__)
    assert not (RESULTS | ABSTRACT) & set(functions())


def test_a_defect_is_found():
    def check(example):
        return "accepted" if example < 100 else str(1 / (example - example))

    from hypothesis.strategies import integers

    tally = Tally()
    campaign(Target("broken", integers(0, 1000), check), 200, 0, tally)
    assert tally.total == 200
    assert tally.outcomes["failed"] == sum(tally.counts.values()) > 0
    (kind,) = tally.counts
    assert kind.startswith("ZeroDivisionError")


def test_an_endless_example_ends():
    def endless():
        while True:
            pass

    with pytest.raises(TooSlow), time_limit(0.05):
        endless()
