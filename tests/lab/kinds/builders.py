"""Runs that the tests of experiments share with their campaigns."""

import json
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

from convexmarket.data.datasets import wdbc
from convexmarket.lab import privacy_audits
from convexmarket.lab.problem.loading import load_problem
from tests import ROOT

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


# ---------------------------------------------------------------------------- solver studies

#: Where solvers lie that misbehave.
STUBS = str(ROOT / "tests" / "lab" / "study")

STUDIED = """
kind = "variants"
title = "sellers"
[sellers]
count = 100
[prior]
family = "uniform"
low = 1.0
high = 5.0
[objective]
spread = {weight = 1.0}
noise = {weight = 1.0}
payments = {weight = 1.0}
[[variants]]
name = "one"
"""

STUDY = """
kind = "solver-study"
title = "who solves it"
[study]
problems = {problems}
solvers = {solvers}
formulations = ["primal", "projection"]
classes = ["allocation"]
sizes = {sizes}
seeds = 1
settings = {settings}
[limits]
seconds = {seconds}
megabytes = 1000
[run]
jobs = {jobs}
"""


def solver_study_in(
    folder,
    solvers=("exact", "CLARABEL"),
    problems=("market.toml",),
    sizes=(20,),
    settings=("default",),
    seconds=30.0,
    jobs=1,
    more="",
):
    """Write a study and what it studies into a folder, and return it."""
    for name in problems:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(STUDIED)
    lists = {"solvers": solvers, "problems": problems, "sizes": sizes, "settings": settings}
    text = STUDY.format(
        seconds=seconds,
        jobs=jobs,
        **{name: json.dumps(list(given)) for name, given in lists.items()},
    )
    (folder / "study.toml").write_text(text + more)
    return load_problem(folder / "study.toml")


def stubs(*names):
    """Return solvers that misbehave, as plugins; STUBS has to be importable."""
    return {name.upper(): f"stub_solvers:{name}" for name in names}


def outcomes(result, **wanted):
    """Return how the runs ended that have these values."""
    rows = result.tables["runs"]
    for name, value in wanted.items():
        rows = rows[rows[name] == value]
    return sorted(set(rows.outcome))
