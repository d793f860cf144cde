"""Audit every mechanism, and test the command that prints the audits."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from convexmarket.attacks import mechanisms
from convexmarket.attacks.mechanisms import audit_mechanisms
from convexmarket.data.datasets import wdbc
from tests.cli.builders import invoke, plain

SHORT = ("accounting sharp", "output perturbation", "one point, Laplace")


def few_rows(features=None):
    """Return twenty rows of the breast-cancer data."""
    market = wdbc()
    return replace(market, X_train=market.X_train[:20, :features], y_train=market.y_train[:20])


def audited(draws, data, slow_draws, **options):
    """Audit all mechanisms on the given data with the given numbers of draws and replacements."""
    audit = mechanisms.audit_privacy

    def fewer(*terms, replacements=None, **settings):
        some = replacements and [part[:: 1 if draws > 20 else 5] for part in replacements]
        return audit(*terms, **({"draws": draws, "replacements": some} | settings))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mechanisms, "audit_privacy", fewer)
        patch.setattr(mechanisms, "wdbc", lambda: data)
        patch.setattr(mechanisms, "DRAWS", draws)
        patch.setattr(mechanisms, "SLOW_DRAWS", slow_draws)
        return audit_mechanisms(0, **options)


def check(table):
    """Check that all audits pass, and that the loss of objective perturbation is near the claim."""
    assert table["passed"].all(), table
    assert table.loc[table["settings"] == "accounting sharp", "ratio"].item() >= 0.95
    return set(table["mechanism"])


def test_all_mechanisms_pass_their_audits():
    steps, data = [], few_rows(features=2)
    table = audited(20, data, 8, mechanisms=SHORT, progress=lambda *step: steps.append(step))
    assert check(table) == {"PrivateLogisticRegression", "PersonalizedRidge", "TestSetRelease"}
    assert steps[-1] == ("audits", len(table), len(table))
    single = audited(20, data, 8, mechanisms=["output perturbation"])
    same = table[table.mechanism == "PersonalizedRidge"].reset_index(drop=True)
    pd.testing.assert_frame_equal(single, same)


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 3)])
@pytest.mark.parametrize("suffix", [".json", ".csv"])
def test_the_command_prints_and_writes_the_audits(monkeypatch, tmp_path, passed, code, suffix):
    row = {"mechanism": "Learner", "settings": "as it is", "method": "exact", "claimed": 2.0}
    row |= {"measured": 1.5 if passed else np.inf, "passed": passed, "statement": "REFUTED: row 1"}
    row["ratio"] = row["measured"] / 2.0
    table = pd.DataFrame([row])
    monkeypatch.setattr(mechanisms, "audit_mechanisms", lambda *_, **__: table)
    file = tmp_path / f"audit{suffix}"
    done = invoke("report", "--audit", "--out", file)
    assert done.exit_code == code, done.output
    assert ("REFUTED" in done.output) is not passed
    assert f"{0 if passed else 1} of 1 guarantees refuted" in done.output
    if suffix == ".json":
        written = json.loads(file.read_text())[0]
        assert written["measured"] == (1.5 if passed else "Infinity")
    else:
        written = pd.read_csv(file).iloc[0]
    assert written["mechanism"] == "Learner"
    assert bool(written["passed"]) is passed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mechanism", "Ridge"], "'Ridge' is unknown; give one of PrivateLogisticRegression,"),
        (["--out", "audit.xlsx"], "neither .csv nor .json"),
    ],
)
def test_invalid_options_are_refused_before_any_work(options, words):
    done = invoke("report", "--audit", *options)
    assert done.exit_code == 2
    assert words in plain(done.output)
