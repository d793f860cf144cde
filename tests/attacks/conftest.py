"""Shorten the searches of audits, because the tests do not need the largest loss."""

import pytest

from convexmarket.attacks import formula_audits


@pytest.fixture(autouse=True)
def short_search(monkeypatch):
    monkeypatch.setattr(formula_audits, "STARTS", 1)
    monkeypatch.setitem(formula_audits.SEARCH, "maxiter", 150)
