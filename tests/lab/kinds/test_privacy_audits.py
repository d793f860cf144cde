"""Every mechanism under attack, and the command that shows it."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from convexmarket.attacks import Neighbours, PrivacyAudit
from convexmarket.cli import app
from convexmarket.lab.privacy_audits import MechanismAudit, audit_mechanisms, audit_table
from tests.lab.kinds.builders import LONG_AUDITS, audits_with, check_audits, few_rows


@pytest.fixture(scope="module")
def heard():
    return []


@pytest.fixture(scope="module")
def few_audits(heard):
    """The real thing on few rows and features, with few draws."""
    with audits_with(20, 8, LONG_AUDITS, of_learners=20):
        return audit_mechanisms(0, lambda *told: heard.append(told), few_rows(features=4))


def test_mechanisms_hold_and_objective_perturbation_is_nearly_exhausted(few_audits, heard):
    audited = check_audits(few_audits)
    assert {"PrivateLogisticRegression", "PersonalizedRidge", "TestSetRelease"} <= audited
    assert heard[0] == ("audits", 0, len(few_audits))


def found(passed):
    audit = PrivacyAudit(
        "a mechanism",
        "exact",
        np.array([0, 1]),
        np.array([1.0, 2.0]),
        np.array([0.5, 1.5 if passed else np.inf]),
        0.0,
        0.999,
        (),
        Neighbours(0, *(np.zeros((2, 1)), np.zeros(2)) * 2, None),
    )
    return [MechanismAudit("Learner", "as it is", audit, 1.0)]


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 3)])
@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_the_command_shows_and_writes_what_was_found(monkeypatch, tmp_path, passed, code, suffix):
    monkeypatch.setattr(
        "convexmarket.lab.privacy_audits.audit_mechanisms",
        lambda seed, advance, **_: found(passed),
    )
    file = tmp_path / f"audit{suffix}"
    result = CliRunner().invoke(app, ["report", "--audit", "--out", str(file)])
    assert result.exit_code == code, result.output
    assert ("REFUTED" in result.output) is not passed
    if suffix == ".json":
        line = json.loads(file.read_text())[0]
        assert line["measured"] == (1.5 if passed else "Infinity")
    else:
        line = pd.read_csv(file).iloc[0]
    assert line["mechanism"] == "Learner"
    assert bool(line["passed"]) is passed


@pytest.mark.campaign
def test_one_mechanism_alone_is_told_as_soon_as_it_is_done_and_found_the_same(
    few_audits, monkeypatch
):
    monkeypatch.setattr(
        "convexmarket.lab.privacy_audits.audit_mechanisms",
        lambda seed, advance, **options: audit_mechanisms(
            seed, advance, few_rows(features=4), **options
        ),
    )
    with audits_with(20, 8, LONG_AUDITS, of_learners=20):
        result = CliRunner().invoke(
            app, ["report", "--audit", "--mechanism", "NonPersonalizedRidge"]
        )
    assert result.exit_code == 0, result.output
    expected = audit_table([one for one in few_audits if one.name == "NonPersonalizedRidge"])
    ratio = f"{expected['ratio'].item():.3f}"
    assert f"NonPersonalizedRidge: alpha 10: {ratio} of what is claimed, holds" in result.stderr
    assert ratio in result.stdout


def test_a_mechanism_that_is_none_is_refused_before_any_work():
    result = CliRunner().invoke(app, ["report", "--audit", "--mechanism", "Ridge"])
    assert result.exit_code == 2
    assert "'Ridge' is none of PrivateLogisticRegression, PersonalizedRidge," in " ".join(
        result.output.split()
    )


def test_another_kind_of_file_is_refused_before_any_work(tmp_path):
    result = CliRunner().invoke(app, ["report", "--audit", "--out", str(tmp_path / "audit.xlsx")])
    assert result.exit_code == 2
    assert ".csv or .json" in result.output
