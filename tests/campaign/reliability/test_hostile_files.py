"""Commands reject untrusted files with a typed error or read them correctly."""

import json
import shutil
import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import settings

import convexmarket as cm
from convexmarket.cli.experiments import report_names
from convexmarket.report import compare_reports, read_report
from tests import ROOT
from tests.campaign.reliability.mutations import mutations
from tests.learners.test_saving import MODELS, ROWS, TARGETS, signed

REPORTS = [ROOT / "reports" / name for name in report_names(ROOT / "problems")]


def numbers():
    """Return a random generator and the number of examples that the Hypothesis profile sets."""
    seed = np.random.SeedSequence().entropy if not settings().derandomize else 0
    print(f"seed {seed}")
    return np.random.default_rng(seed), settings().max_examples


def read_again(folder, changed, twin, out, compared):
    folder.joinpath("results.json").write_text(json.dumps(changed), encoding="utf-8")
    if compared:
        compare_reports(twin, folder)
        return
    shutil.rmtree(out, ignore_errors=True)
    read_report(folder).write(out)
    json.loads(out.joinpath("results.json").read_text())


@pytest.mark.parametrize("report", REPORTS, ids=lambda path: path.name)
def test_untrusted_results_are_read_or_refused(report, attack, tmp_path):
    rng, tries = numbers()
    twin = tmp_path / report.name
    shutil.copytree(report, twin)
    document = json.loads((report / "results.json").read_text())
    changed = mutations(document, tries * 7 // 25, rng)
    attempts = (
        (label, partial(read_again, twin, other, report, tmp_path / "out", number % 3 == 0))
        for number, (label, other) in enumerate(changed)
    )
    attack(f"hostile results.json of {report.name}", attempts)


def load_and_use(path, content):
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = cm.load_model(path)
        repr(model)
        text = [np.asarray(model.predict(ROWS))]
        if hasattr(model, "predict_proba"):
            text.append(model.predict_proba(ROWS))
        again = cm.load_model(cm.save_model(model, path.with_suffix(".again.json")))
        same = np.array_equal(again.predict(ROWS), text[0])
        if hasattr(model, "fit"):
            labels = model.classes_[[0, 1] * 6] if hasattr(model, "classes_") else TARGETS
            model.fit(ROWS, labels, epsilon=1.0)
    finite = all(np.all(np.isfinite(part)) for part in text if part.dtype.kind == "f")
    if not finite:
        return "a prediction is not finite"
    return None if same else "a second copy of the model predicts other values"


@pytest.mark.parametrize("name", MODELS)
def test_untrusted_models_are_loaded_correctly_or_refused(name, attack, tmp_path):
    rng, tries = numbers()
    path = cm.save_model(MODELS[name](), tmp_path / "m.json", guarantee="rows")
    changed = mutations(json.loads(path.read_text()), 3 * tries, rng)
    attempts = (
        (label, partial(load_and_use, path, sign(other) if number % 10 else dumped(other)))
        for number, (label, other) in enumerate(changed)
    )
    attack(f"hostile models: {name}", attempts)


def dumped(content):
    return json.dumps(content).encode()


def sign(content):
    """Return a changed model with a matching checksum, as an attacker could write it."""
    return signed({"sha256": "", **content})
