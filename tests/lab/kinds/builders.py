"""Runs that the tests of experiments share with their campaigns."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np

from convexmarket.data.datasets import wdbc
from convexmarket.lab import privacy_audits
from convexmarket.lab.kinds.online_study.run import run_online_study
from convexmarket.lab.problem.loading import parse_problem

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


# ------------------------------------------------------------------------- the online study

ONLINE_STUDY = """
kind = "online-study"
title = "Sellers who come one by one"
[prior]
family = "uniform"
low = 0.0
high = 4.0
[guess]
family = "uniform"
low = 0.0
high = 9.0
[buyer]
mu = 1.0
sigma = 2.0
gamma = 0.5
[study]
sizes = [200, 1000]
policies = ["expectation", "algorithm-3", "replanned", "learnt", "guess"]
draws = 3
[run]
seed = 5
jobs = 1
"""
ONE = 'study.policies=["expectation"]'
#: Numbers of sellers, and by how much more than hindsight the market lost: two priors, 20 draws.
MEASURED_RATIOS = [(1_000, 0.017, 0.029), (10_000, 0.005, 0.015), (100_000, 0.001, 0.003)]


def run_online(*overrides):
    """Run the small study with some changes."""
    return run_online_study(parse_problem(ONLINE_STUDY, overrides))


def check_measured_ratios(measured, draws):
    """Check means for mu = sigma = gamma = 1: within what 20 other draws could give."""
    sizes, *known = zip(*measured, strict=True)
    settings = ["buyer.mu=1.0", "buyer.sigma=1.0", "buyer.gamma=1.0", ONE]
    settings += [f"study.sizes={list(sizes)}", f"study.draws={draws}"]
    ratios = []
    for (low, high), expected in zip([(1.0, 5.0), (0.0, 4.0)], known, strict=True):
        found = run_online(*settings, f"prior.low={low}", f"prior.high={high}").tables["points"]
        excess = found.ratio.to_numpy() - 1
        assert (np.abs(np.log(excess / np.array(expected))) < np.log(2.5)).all(), (low, excess)
        ratios.append(found)
    return ratios
