"""Every mechanism under attack, and the command that shows it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from convexmarket.cli import app
from convexmarket.datasets import wdbc
from convexmarket.experiments import privacy_audits
from convexmarket.experiments.privacy_audits import MechanismAudit, audit_mechanisms, audit_table
from convexmarket.privacy_audit import Neighbours, PrivacyAudit


@pytest.fixture(scope="module")
def few_audits():
    """The real thing on forty rows, with few draws."""
    market = wdbc()
    small = replace(market, X_train=market.X_train[:40], y_train=market.y_train[:40])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privacy_audits, "DRAWS", 120)
        patch.setattr(privacy_audits, "SLOW_DRAWS", 60)
        heard = []
        audits = audit_mechanisms(0, lambda *told: heard.append(told), small)
    assert heard[0] == ("audits", 0, len(audits))
    return audits


def test_every_mechanism_holds(few_audits):
    table = audit_table(few_audits)
    assert table["passed"].all(), table
    audited = set(table["mechanism"])
    assert {"PrivateLogisticRegression", "PersonalizedRidge", "SampledRidge"} <= audited
    assert {"TestSetRelease", "InteractiveRelease", "PublicRelease", "FunctionRelease"} <= audited


def test_objective_perturbation_is_nearly_exhausted(few_audits):
    table = audit_table(few_audits)
    sharp = table[table["settings"] == "accounting sharp"]
    assert sharp["ratio"].item() >= 0.95


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
        "convexmarket.cli.audit.audit_mechanisms", lambda seed, advance, **_: found(passed)
    )
    file = tmp_path / f"audit{suffix}"
    result = CliRunner().invoke(app, ["audit", "--out", str(file)])
    assert result.exit_code == code, result.output
    assert ("REFUTED" in result.output) is not passed
    if suffix == ".json":
        line = json.loads(file.read_text())[0]
        assert line["measured"] == (1.5 if passed else "Infinity")
    else:
        line = pd.read_csv(file).iloc[0]
    assert line["mechanism"] == "Learner"
    assert bool(line["passed"]) is passed


def test_one_mechanism_alone_is_told_as_soon_as_it_is_done_and_found_the_same(
    few_audits, monkeypatch
):
    market = wdbc()
    small = replace(market, X_train=market.X_train[:40], y_train=market.y_train[:40])
    monkeypatch.setattr(
        "convexmarket.cli.audit.audit_mechanisms",
        lambda seed, advance, **options: audit_mechanisms(seed, advance, small, **options),
    )
    result = CliRunner().invoke(app, ["audit", "--mechanism", "NonPersonalizedRidge"])
    assert result.exit_code == 0, result.output
    expected = audit_table([one for one in few_audits if one.name == "NonPersonalizedRidge"])
    ratio = f"{expected['ratio'].item():.3f}"
    assert f"NonPersonalizedRidge: alpha 10: {ratio} of what is claimed, holds" in result.stderr
    assert ratio in result.stdout


def test_a_mechanism_that_is_none_is_refused_before_any_work():
    result = CliRunner().invoke(app, ["audit", "--mechanism", "Ridge"])
    assert result.exit_code == 2
    assert "'Ridge' is none of PrivateLogisticRegression, PersonalizedRidge," in " ".join(
        result.output.split()
    )


def test_another_kind_of_file_is_refused_before_any_work(tmp_path):
    result = CliRunner().invoke(app, ["audit", "--out", str(tmp_path / "audit.xlsx")])
    assert result.exit_code == 2
    assert ".csv or .json" in result.output
