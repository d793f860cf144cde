"""Stored answers that the package must reproduce; see :mod:`tests.oracles.store`."""
