"""Runs that the tests of experiments share with their campaigns."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from convexmarket.data.datasets import wdbc
from convexmarket.lab import privacy_audits

#: What takes most of the time, or differs from what stays in a setting only.
LONG_AUDITS = (
    "accounting paper, as printed",
    "accounting sharp, the other rows as they are",
    "accounting sharp, minimum_epsilon 0.01",
    "alpha 10, in floating point",
    "alpha 10, paper",
    "alpha 1, tight",
    "one point, process",
    "one process",
    "one question",
    "one round",
)


def few_rows(features=None):
    """Return forty rows of the breast-cancer data."""
    market = wdbc()
    return replace(market, X_train=market.X_train[:40, :features], y_train=market.y_train[:40])


@contextmanager
def audits_with(draws, slow_draws, without=(), of_learners=200):
    """Let audits have so many draws, and leave those with some settings out."""
    audit = partial(privacy_audits.audit_privacy, draws=of_learners)
    with ExitStack() as patched:
        patched.enter_context(patch.object(privacy_audits, "audit_privacy", audit))
        for name, value in (("DRAWS", draws), ("SLOW_DRAWS", slow_draws)):
            patched.enter_context(patch.object(privacy_audits, name, value))
        for name in ("_logistic_jobs", "_ridge_jobs", "_release_jobs"):
            jobs = getattr(privacy_audits, name)

            def fewer(*given, jobs=jobs):
                return [job for job in jobs(*given) if job[1] not in without]

            patched.enter_context(patch.object(privacy_audits, name, fewer))
        yield


def check_audits(audits):
    """Check that nothing is refuted, and that objective perturbation is nearly exhausted."""
    table = privacy_audits.audit_table(audits)
    assert table["passed"].all(), table
    sharp = table[table["settings"] == "accounting sharp"]
    assert sharp["ratio"].item() >= 0.95
    return set(table["mechanism"])
