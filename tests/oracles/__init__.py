"""Answers that a rewrite of the package must reproduce; see :mod:`tests.oracles.store`."""
