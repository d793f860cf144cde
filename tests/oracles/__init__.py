"""Stored results that the package must reproduce (:mod:`tests.oracles.store`)."""
