"""All targets, and how many of a campaign's examples each gets."""

from __future__ import annotations

from . import calls, commands, files, learning, lists, mathematics, runs
from .running import Target

MODULES = (files, lists, mathematics, calls, learning, runs, commands)
TARGETS: list[Target] = [target for module in MODULES for target in module.TARGETS]

#: Out of a hundred thousand, so that all of them fit into ten minutes of one processor.
SHARES = {
    "problem tables": 600,
    "problem schema": 2_000,
    "problem bytes": 20_000,
    "problem overrides": 30_000,
    "list tables": 300,
    "list prices": 100,
    "list bytes": 4_000,
    "priors": 3_000,
    "prior texts": 30_000,
    "allocation": 5_000,
    "allocation laws": 1_500,
    "allocation declared": 300,
    "variants": 150,
    "variants at any scale": 100,
    "payments": 50,
    "function calls": 700,
    "method calls": 700,
    "accounts": 800,
    "release bounds": 100,
    "fits": 400,
    "online policies": 50,
    "runs": 50,
    "commands": 100,
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
