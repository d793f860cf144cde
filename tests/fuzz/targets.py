"""All targets, and how many of a campaign's examples each gets."""

from __future__ import annotations

from . import calls, commands, files, learning, lists, mathematics, runs
from .running import Target

MODULES = (files, lists, mathematics, calls, learning, runs, commands)
TARGETS: list[Target] = [target for module in MODULES for target in module.TARGETS]

#: Out of a hundred thousand.
SHARES = {
    "problem tables": 16_000,
    "problem schema": 12_000,
    "problem bytes": 14_000,
    "problem overrides": 8_000,
    "list tables": 2_000,
    "list prices": 1_000,
    "list bytes": 13_000,
    "priors": 3_000,
    "prior texts": 8_000,
    "allocation": 4_500,
    "allocation laws": 2_000,
    "allocation declared": 500,
    "variants": 600,
    "variants at any scale": 300,
    "payments": 600,
    "function calls": 5_000,
    "method calls": 3_000,
    "accounts": 3_000,
    "release bounds": 500,
    "fits": 1_000,
    "online policies": 500,
    "runs": 1_000,
    "commands": 500,
}

#: Examples in the tests, where fifty would take too long.
GATE = {
    "problem tables": 30,
    "problem schema": 30,
    "list tables": 10,
    "list prices": 8,
    "priors": 30,
    "allocation declared": 8,
    "variants": 5,
    "variants at any scale": 4,
    "payments": 5,
    "release bounds": 8,
    "fits": 20,
    "online policies": 8,
    "runs": 3,
    "commands": 6,
}
