"""Test the scripts of the papers' experiments: stored rows, falsifiable claims and reports."""

import functools

import numpy as np
import pandas as pd
import pytest

from convexmarket.report import read_tables
from problems.papers.__main__ import NAMES, PARTS
from problems.papers.__main__ import experiment as named
from problems.papers.methods import tables_of
from tests import ROOT, one_in
from tests.oracles.reports import RENAMED
from tests.oracles.store import read

SPECS = {RENAMED.get(each["name"], each["name"]): each["spec"] for each in read("reports")}
REPORTS = [name.replace("_", "-") for name in NAMES]
#: Name of the report that contains each part of an experiment.
HOME = {part.replace("_", "-"): report for report in PARTS for part in PARTS[report]}
ALONE = sorted([*(name for name in REPORTS if name.replace("-", "_") not in PARTS), *HOME])
#: For each experiment, a table with equal rows in quick and full runs, and its key columns.
ROWS = {
    "limits-variants": ("runs", ["market", "value"]),
    "limits": ("points", ["objective.payments.weight", "constraints.max_epsilon"]),
    "joint-methods": ("runs", ["group", "instance", "name"]),
    "joint-wdbc": ("candidates", ["scenario", "model", "gamma", "mu", "sigma", "regularization"]),
    "joint": ("draws", ["point", "draw"]),
    "online": ("draws", ["policy", "fraction", "size", "draw"]),
    "ridge": ("draws", ["sweep", "value", "method", "loss", "draw"]),
    "release": ("models", ["size", "fit"]),
}
#: Experiments whose quick run takes more than ten seconds.
SLOW = ["ridge-weights", "ridge-bound", "joint-methods", "joint-spread", "joint-wdbc"]
SLOW += ["joint-variance", "online-learning", "online-uniform15", "release-circles"]
SLOW += ["release-wdbc"]
CHANGES = [
    lambda values, _: values * 100.0,
    lambda values, _: values + 1.0,
    lambda values, _: values / 100.0,
    lambda values, _: values[::-1],
    lambda values, _: values * np.geomspace(1.0, 1e-6, values.size),
    lambda values, rng: values * np.exp(3.0 * rng.standard_normal(values.size)),
    lambda values, _: values.max() + values.min() - values,
    lambda values, _: np.full(values.size, np.median(values)),
]


def experiment(name):
    return named(name.replace("-", "_"))


@functools.cache  # several tests use the tables of a report
def tables_in(report):
    return read_tables(ROOT / "reports" / report)


def stored(name):
    frames = tables_in(HOME.get(name, name).replace("_", "-"))
    frames = {key: frame.copy(deep=False) for key, frame in frames.items()}
    frames = tables_of(frames, name) if name in HOME else frames
    return {key.replace("virtual-costs", "virtual_costs"): frames[key] for key in frames}


def rows_of(name):
    return ROWS.get(name) or ROWS[name.partition("-")[0]]


@pytest.mark.parametrize("name", [*(n for n in ALONE if n not in SLOW), *one_in(10, SLOW)])
def test_a_quick_run_reproduces_the_stored_rows(name):
    table, keys = rows_of(name)
    quick = experiment(name).compute(quick=True)[table]
    of = list(SPECS[name]["tables"].values())
    layouts = [each for each in of if each["table"] == table] or of  # the layout of the first table
    if "model" in keys:  # rows of the naive model can have equal keys
        quick = quick[quick.model != "naive"]
    both = quick.merge(stored(name)[table], on=keys, suffixes=("", "_stored"))
    assert len(both) == len(quick) > 0
    rules = layouts[0]["columns"].items()
    columns = {name: rule for name, rule in rules if isinstance(rule, float) and name not in keys}
    assert columns
    for column, rule in columns.items():
        expected = both[f"{column}_stored"].to_numpy(dtype=float)
        scale = rule * max(np.abs(expected[np.isfinite(expected)]).max(initial=0.0), 1e-30)
        values = both[column].astype(float)
        np.testing.assert_allclose(values, expected, rule, scale, err_msg=column)


def verdicts(name, frames):
    """Return a dictionary with the verdict of each claim."""
    claims = experiment(name).claims(frames)
    return {text: np.asarray(holds).tolist() for text, holds, _, _ in claims}


def is_read(claims, before, frames):
    """Check whether the claims change, or raise an error, for the given tables."""
    try:
        return repr(list(claims(frames))) != before
    except (LookupError, NameError, AttributeError, ValueError, TypeError):
        return True


def changed(name, frames, rng):
    """Yield tables in which one of the columns that the claims use is changed."""
    claims = experiment(name).claims
    before, read = repr(list(claims(frames))), []
    for name, frame in frames.items():
        others = {key: frames[key] for key in frames if key != name}
        read += [
            (name, column)
            for column in (frame if is_read(claims, before, others) else ())
            if is_read(claims, before, others | {name: frame.drop(columns=column)})
        ]
    for change in CHANGES:
        for name, column in read:
            values = frames[name][column].to_numpy()
            if values.dtype.kind == "b":
                for other in (~values, True, False) if change is CHANGES[0] else ():
                    yield frames | {name: frames[name].assign(**{column: other})}
            elif values.dtype.kind == "f" and (known := np.isfinite(values)).any():
                other = values.copy()
                other[known] = change(values[known], rng)
                yield frames | {name: frames[name].assign(**{column: other})}


@pytest.mark.parametrize("name", one_in(3, ALONE))
def test_every_claim_can_fail(name):
    frames = stored(name)
    before, moved = verdicts(name, frames), set()
    assert before
    for other in changed(name, frames, np.random.default_rng(0)):
        try:
            after = verdicts(name, other)
        except (ValueError, LookupError, ArithmeticError, AttributeError):
            continue  # these tables cannot occur
        moved |= {text for text in before if after.get(text, before[text]) != before[text]}
        if moved == set(before):
            return
    assert set(before) - moved == set()


@pytest.mark.parametrize("name", REPORTS)
def test_the_script_reproduces_the_stored_report_from_its_tables(name):
    frames = stored(name)
    page = experiment(name).report(frames)
    again = {table.name: table.frame for table in page.tables}
    pd.testing.assert_frame_equal(again["claims"], frames["claims"])
    assert page.finding
    assert page.question
    assert any(block.caption for block in page.figures)


def test_scripts_have_at_most_280_lines_and_3_000_in_total():
    folder = ROOT / "problems/papers"
    lines = {path: len(path.read_text().splitlines()) for path in folder.rglob("*.py")}
    assert {path.name for path in folder.glob("*.py") if lines[path] > 280} == set()
    assert sum(lines.values()) <= 3_000
