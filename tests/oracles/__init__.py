"""Stored results that the package must reproduce; see :mod:`tests.oracles.store`."""
