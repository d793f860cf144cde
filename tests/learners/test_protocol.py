"""Test that the guarantees of all learners are valid and that seeds are not stored."""

import copy
import pickle
import re
from functools import partial

import numpy as np
import pytest
from scipy.special import expit

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.perturbed import ObjectivePerturbation
from convexmarket.privacy import Simulation
from tests import ROOT
from tests.learners.builders import kernel_erm, noisy_descent, output_ridge

LEARNERS = [
    cm.PrivateLogisticRegression,
    cm.learners.PrivateLinearSVC,
    cm.learners.PrivateHuberRegressor,
    cm.PersonalizedRidge,
    partial(cm.PersonalizedRidge, perturbation="statistics"),
    output_ridge,
    partial(output_ridge, weighting="equal"),
    noisy_descent(),
]


def rows(n_rows=200):
    """Draw rows in the intersection of the unit box and the unit ball, with labels -1 and 1."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 0.5, (n_rows, 3))
    return X, np.where(X[:, 0] > 0.25, 1, -1), rng.choice([0.0, 0.5, 2.0], n_rows)


GUIDE = ROOT / "docs" / "howto" / "learners.md"


def guides_learner():
    """Return the user-defined learner of docs/howto/learners.md."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.S)
    (code,) = [block for block in blocks if "class PrivateMean" in block]
    result = {}
    exec(code.partition("rng = np.random.default_rng(0)")[0], result)
    shown = code[code.index("class PrivateMean") : code.index("\n\n\nrng =")]
    assert shown.count("\n") < 30
    return result["PrivateMean"]


@pytest.mark.parametrize("make", [*LEARNERS, guides_learner])
def test_a_learner_keeps_the_granted_epsilon_with_default_settings(make):
    """Grant epsilons that include zeros and do not sum to one."""
    learner = make()
    if make is guides_learner:
        learner = learner()
    X, y, epsilon = rows()
    assert epsilon.sum() != pytest.approx(1.0)
    fitted = learner.fit(X, y, epsilon=epsilon)
    assert fitted is learner
    remaining = fitted.guarantee_.epsilon
    assert remaining.shape == (len(X),)
    assert np.all(remaining <= epsilon)
    assert remaining.max() > 0.9 * epsilon.max() or getattr(learner, "weighting", "") == "equal"
    mu, sigma = learner.risk(3)
    assert min(mu, sigma) > 0


def test_the_papers_algorithm_states_its_excess_over_the_granted_epsilon():
    X, y, epsilon = rows()
    model = cm.PrivateLogisticRegression(1e-3, accounting="paper", calibration="noise")
    text = model.fit(X, y, epsilon=epsilon).guarantee_
    worst = np.max(text.epsilon[epsilon > 0] / epsilon[epsilon > 0])
    assert worst > 1
    assert f"up to {worst:.3g}" in text.assumptions[1]
    assert text.assumptions[1].startswith("EXCEEDED: ")


def test_a_kernel_model_has_the_same_interface_and_no_guarantee():
    X, y, epsilon = rows(60)
    erm = cm.KernelERM().fit(X, y, epsilon=epsilon)
    assert np.array_equal(np.isinf(erm.guarantee_.epsilon), epsilon > 0)
    assert "must not be published" in str(erm.guarantee_)
    shifts = erm.row_sensitivities_
    assert np.all(shifts[epsilon == 0] == 0)
    with pytest.raises(ParameterError, match="pass them to the release"):
        erm.fit(X, y, accountant=cm.PrivacyAccountant(epsilon))


@pytest.mark.parametrize(
    "learner",
    [partial(cm.PrivateLogisticRegression, 1e-3, epsilon=np.inf), partial(kernel_erm, gamma=20.0)],
)
@pytest.mark.parametrize("classes", [(0, 1), ("B", "M"), (1, -1), (False, True)])
def test_the_second_label_is_the_positive_class(classes, learner):
    X, y = rows()[0] - 0.25, rows()[1]
    labels = np.asarray(classes)[(y > 0).astype(int)]
    model, reference = learner(classes=classes).fit(X, labels), learner().fit(X, y)
    assert model.score(X, labels) == np.mean(model.predict(X) == labels) > 0.9
    margins = model.decision_function(X)
    assert np.array_equal(margins, reference.decision_function(X))
    assert np.array_equal(model.predict(X) == classes[1], margins > 0)
    if hasattr(model, "predict_proba"):
        assert model.predict_proba(X)[:, 1] == pytest.approx(expit(margins))
        return
    assert np.array_equal(model.labels([-1.0, 0.0, 1e-9]), np.asarray(classes)[[0, 0, 1]])
    with pytest.raises(ParameterError, match="contain NaN"):
        model.labels([-1.0, np.nan])


@pytest.mark.parametrize("n_features", [2, 30, 300])
def test_float32_rows_at_the_bound_are_accepted_and_scaled(n_features, monkeypatch):
    X = np.random.default_rng(0).normal(size=(400, n_features)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1)[:, None]
    assert np.linalg.norm(X.astype(np.float64), axis=1).max() > 1 + 1e-12
    y = np.where(X[:, 0] > 0, 1, -1)
    seen = []
    release = ObjectivePerturbation.release
    monkeypatch.setattr(
        ObjectivePerturbation,
        "release",
        lambda self, rows, *rest: seen.append(rows) or release(self, rows, *rest),
    )
    model = cm.PrivateLogisticRegression().fit(X, y, epsilon=1.0)
    assert seen[0].dtype == np.float64
    assert np.linalg.norm(seen[0], axis=1).max() <= 1.0
    assert np.array_equal(model.predict(X), model.predict(X.astype(np.float64)))
    with pytest.raises(DataError, match="longer than data_norm"):
        model.fit(X * np.float32(1.001), y, epsilon=1.0)
    with pytest.raises(DataError, match="longer than data_norm"):
        model.fit(X.astype(np.float64), y, epsilon=1.0)


def everything(value, collected):
    """Collect all objects that an object references directly or indirectly."""
    collected.append(value)
    if hasattr(value, "__dict__"):
        value = vars(value)
    if isinstance(value, dict):
        for item in value.values():
            everything(item, collected)
    elif isinstance(value, list | tuple):
        for item in value:
            everything(item, collected)
    return collected


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize(
    "source", [20_240_229, np.random.SeedSequence(20_240_229), np.random.default_rng(20_240_229)]
)
def test_no_fitted_model_stores_its_seed(learner, source):
    """Check that pickles, copies and texts of a model do not contain the seed of its noise."""
    X, y, epsilon = rows()
    model = learner().fit(X, y, epsilon=epsilon, random_state=Simulation(source))
    for held in (model, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        sources = (Simulation, np.random.Generator, np.random.SeedSequence, np.random.BitGenerator)
        assert not [part for part in everything(held, []) if isinstance(part, sources)]
        assert "20240229" not in repr(held) + str(held.get_params())
    assert b"numpy.random" not in pickle.dumps(model)
    refit = copy.deepcopy(model).fit(X, y, epsilon=epsilon)
    assert not np.array_equal(refit.coef_, model.coef_)  # a copy draws new noise


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_seeded_fit_gives_a_warning_unless_it_is_a_simulation(learner):
    X, y, epsilon = rows()
    with pytest.warns(cm.PrivacyLeakWarning, match="Simulation"):
        learner().fit(X, y, epsilon=epsilon, random_state=0)
    model = learner().fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    assert model.guarantee_.assumptions[0].startswith("SIMULATION: ")
    assert "fresh seed" in learner().fit(X, y, epsilon=epsilon).guarantee_.assumptions[0]


def test_a_random_state_of_the_constructor_follows_the_rules_of_fit():
    X, y, epsilon = rows()
    given = cm.PrivateLogisticRegression(random_state=Simulation(3)).fit(X, y, epsilon=epsilon)
    passed = cm.PrivateLogisticRegression().fit(X, y, epsilon=epsilon, random_state=Simulation(3))
    np.testing.assert_array_equal(given.coef_, passed.coef_)
    with pytest.warns(cm.PrivacyLeakWarning, match="Simulation"):
        cm.PersonalizedRidge(random_state=0).fit(X, y, epsilon=epsilon)


def audit(learner, epsilon, **options):
    X, y = np.zeros((10, 1)), np.linspace(-1, 1, 10)
    options = {"replacements": (np.zeros((2, 1)), [-1.0, 1.0]), "random_state": 0} | options
    options = {"draws": 800} | options
    return cm.audit_privacy(learner, X, y, epsilon=epsilon, **options)


def test_a_user_defined_learner_is_audited_like_a_built_in_one():
    custom = guides_learner()
    honest = audit(custom(), np.linspace(0.5, 2.0, 10), rows=[9])
    assert honest.passed, honest.statement()
    assert honest.measured[0] > 0.6 * honest.claimed[0]


@pytest.mark.campaign  # statistical audits are slow
def test_broken_user_defined_learners_are_refuted():
    custom = guides_learner()

    class LittleNoise(custom):
        def fit(self, X, y, *, epsilon, **options):
            text = custom().fit(X, y, epsilon=epsilon).guarantee_
            super().fit(X, y, epsilon=3 * np.asarray(epsilon), **options)
            self.guarantee_ = text
            return self

    class KeepsTheMean(custom):
        def fit(self, X, y, *, epsilon, **options):
            super().fit(X, y, epsilon=epsilon, **options)
            self.exact_ = float(np.mean(y))
            return self

    for broken in (LittleNoise, KeepsTheMean):
        assert not audit(broken(), 1.0, rows=[0], draws=500).passed, broken


def test_a_learner_without_published_numbers_cannot_be_audited():
    class Silent(guides_learner()):
        def fit(self, X, y, **options):
            super().fit(X, y, **options)
            del self.mean_
            return self

    with pytest.raises(ParameterError, match="has no numbers to attack"):
        audit(Silent(), 1.0)


def test_an_audit_charges_no_account():
    """Check a learner without simulations. Simulated fits are never charged."""

    class Plain(guides_learner()):
        def fit(self, X, y, *, epsilon, rows=None, accountant=None):
            return super().fit(X, y, epsilon=epsilon, rows=rows, accountant=accountant)

    with cm.privacy.account(budget=np.inf) as counted:
        audit(Plain(), 1.0, rows=[0], draws=500)
    assert counted.releases == ()
