"""Audits confirm the claims of correct mechanisms, and refute broken mechanisms."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

import convexmarket as cm
from convexmarket.attacks.formula_audits import law_check
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.perturbed import objective_perturbation_log_density
from convexmarket.privacy import Guarantee, Simulation
from convexmarket.privacy.lattice import lattice_blur
from convexmarket.privacy.random_sources import gamma_sphere_noise
from tests import one_in
from tests.attacks.builders import laplace_audit, logistic_audit, ridge_audit, rows
from tests.learners.builders import output_ridge

# --------------------------------------------------------------- logistic regression


@pytest.mark.campaign
@pytest.mark.parametrize("regularization", one_in(2, [0.01, 0.1]))
def test_measured_loss_is_close_to_the_sharp_claim(regularization):
    eta = 100.0 / regularization
    audit = logistic_audit(cm.PrivateLogisticRegression(regularization), eta=eta)
    assert audit.passed
    assert audit.ratio >= 0.95


@pytest.mark.campaign
def test_the_witness_reproduces_the_measured_loss():
    """The witness of an audit contains two data sets in the public domain, and an output."""
    X, y, weights = rows()
    learner = cm.PrivateLogisticRegression(0.25, data_norm=2.0)
    eta = learner.fit(X, y, epsilon=weights * 500.0).eta_
    audit = cm.audit_privacy(
        learner, X, y, epsilon=weights * 500.0, n_rows=3, draws=10, random_state=0
    )
    pair = audit.witness
    terms = (weights, eta, 0.25, 2.0)
    loss = objective_perturbation_log_density(
        pair.output, pair.X, pair.y, *terms
    ) - objective_perturbation_log_density(pair.output, pair.X_other, pair.y_other, *terms)
    best = int(np.argmax(audit.measured / audit.claimed))
    assert loss == pytest.approx(audit.measured[best], rel=1e-12)
    assert pair.row == audit.rows[best]
    assert np.flatnonzero(np.any(pair.X_other != pair.X, axis=1)).tolist() == [pair.row]
    for side in (pair.X, pair.X_other):
        assert np.linalg.norm(side, axis=1).max() <= 2.0 * (1 + 1e-12)
    assert set(np.unique(pair.y)) <= {-1, 1}


@pytest.mark.campaign
def test_the_second_noise_is_audited():
    learner = cm.PrivateLogisticRegression(0.05, solver_epsilon=0.01, tol=1e-8)
    audit = logistic_audit(learner, rows=[0])
    assert audit.passed, audit.statement()
    assert any("second noise" in check.name for check in audit.checks)
    learner = SecondNoiseHalved(0.05, solver_epsilon=0.01)
    assert not logistic_audit(learner, rows=[0]).passed


class OtherNoise:
    """Base class of mechanisms whose noise distribution differs from the claim."""

    def draw_noise(self, n_features, generator):
        return 0.5 * gamma_sphere_noise(n_features, generator)

    def fit(self, *arguments, **options):
        with pytest.MonkeyPatch.context() as patch:
            for name in ("perturbed.gamma_sphere_draw", "ridge_math.gamma_sphere_noise"):
                patch.setattr(f"convexmarket.learners.{name}", self.draw_noise)
            return super().fit(*arguments, **options)


def broken(mutant, learner=cm.PrivateLogisticRegression):
    """Derive a broken learner from a correct learner."""
    return type(mutant.__name__, (mutant, learner), {})


class NoiseHalved(OtherNoise):
    """Halve the norms of the noise."""


class SecondNoiseHalved(cm.PrivateLogisticRegression):
    def fit(self, *arguments, **options):
        def halved(*terms):
            step, scale = lattice_blur(*terms)
            return step, scale // 2

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("convexmarket.learners.perturbed.lattice_blur", halved)
            return super().fit(*arguments, **options)


class NoiseInOneDirection(OtherNoise):
    """Draw noise with correct norms but nonuniform directions."""

    def draw_noise(self, n_features, generator):
        return np.abs(gamma_sphere_noise(n_features, generator))


class NoiseAlongAnAxis(OtherNoise):
    """Draw noise with correct norms along the first axis, with random signs."""

    def draw_noise(self, n_features, generator):
        noise = gamma_sphere_noise(n_features, generator)
        return np.copysign(np.linalg.norm(noise), noise[0]) * np.eye(n_features)[0]


class LessNoiseInAHalf(OtherNoise):
    """Draw noise with uniform directions, but with smaller norms in one half-space."""

    def draw_noise(self, n_features, generator):
        two = [gamma_sphere_noise(n_features, generator) for _ in range(2)]
        norms = sorted(np.linalg.norm(two, axis=1))
        return two[0] / np.linalg.norm(two[0]) * norms[int(two[0][0] > 0)]


class NoiseWithoutRowFive(OtherNoise):
    """Reduce the noise to 1 % if the label of row 5 is 1."""

    def fit(self, X, y, *arguments, **options):
        self._share = 1e-2 if np.asarray(y)[5] == 1 else 1.0
        return super().fit(X, y, *arguments, **options)

    def draw_noise(self, n_features, generator):
        return self._share * gamma_sphere_noise(n_features, generator)


class WithoutEta:
    def fit(self, *arguments, **options):
        super().fit(*arguments, **options)
        del self.eta_
        return self


class EtaOfUsedLabels(cm.PrivateLogisticRegression):
    """Encode the number of positive labels in the last digits of eta."""

    def fit(self, X, y, *, epsilon, **options):
        super().fit(X, y, epsilon=epsilon, **options)
        self.eta_ += 1e-9 * np.count_nonzero(np.asarray(y)[np.asarray(epsilon) > 0] == 1)
        return self


class DeltaLeftOut(cm.PrivateLogisticRegression):
    """Calibrate the noise as in Algorithm 1, but claim the granted epsilon with a delta of zero."""

    def fit(self, X, y, *, epsilon, **options):
        self.calibration = "noise"
        super().fit(X, y, epsilon=epsilon, **options)
        self._claim(np.asarray(epsilon))
        return self

    def _claim(self, epsilon):
        text = self.guarantee_
        self.guarantee_ = Guarantee(epsilon, 0.0, text.mechanism, text.accounting, text.assumptions)
        self.epsilon_ = self.guarantee_.epsilon


class WeightsAboveTheCap(DeltaLeftOut):
    """Claim the guarantee of capped weights, but train with uncapped weights."""

    def _claim(self, epsilon):
        super()._claim(np.minimum(epsilon, 1.5 * epsilon.mean()))


class HeavierRow(cm.PrivateLogisticRegression):
    """Claim the guarantee of the given weights, but double the largest weight."""

    def fit(self, X, y, *, epsilon, **options):
        correct = cm.PrivateLogisticRegression(**self.get_params())
        correct.fit(X, y, epsilon=epsilon, **options)
        heavier = np.array(epsilon)
        heavier[np.argmax(epsilon)] *= 2.0
        heavier *= np.sum(epsilon) / heavier.sum()
        self.__dict__.update(super().fit(X, y, epsilon=heavier, **options).__dict__)
        self.guarantee_, self.epsilon_ = correct.guarantee_, correct.epsilon_
        return self


class LabelSetInferred(cm.PrivateLogisticRegression):
    """Infer a public argument from the private rows without a warning."""

    inferred = "classes"

    def fit(self, X, y, **options):
        learner = cm.PrivateLogisticRegression(self.regularization, **{self.inferred: None})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cm.PrivacyLeakWarning)
            result = vars(learner.fit(X, y, **options))
        self.__dict__.update(result | {self.inferred: getattr(self, self.inferred)})
        return self


class NormInferred(LabelSetInferred):
    """Infer ``data_norm`` from the longest private row without a warning."""

    inferred = "data_norm"


#: The smallest expected ratio of measured to claimed loss, for each broken mechanism.
BROKEN = {
    NoiseHalved: 1.05,
    NoiseInOneDirection: 0.0,
    NoiseAlongAnAxis: 0.0,
    LessNoiseInAHalf: 0.0,
    EtaOfUsedLabels: np.inf,
    DeltaLeftOut: 1.05,
    WeightsAboveTheCap: 1.05,
    HeavierRow: 0.0,
    LabelSetInferred: np.inf,
    NormInferred: np.inf,
}


def test_a_broken_logistic_regression_is_refuted():
    check_caught(NoiseHalved, draws=30)  # the campaign tests all learners in BROKEN with more draws


def test_norms_in_half_spaces_are_compared():
    rng, mutant = np.random.default_rng(0), LessNoiseInAHalf()
    claimed = np.stack([gamma_sphere_noise(3, rng) for _ in range(6400)])
    noises = np.stack([mutant.draw_noise(3, rng) for _ in range(160)])
    assert not law_check("law", noises, claimed, 0.999)[0].passed


def check_caught(mutant, **options):
    """Check that an audit refutes a broken learner and measures the expected ratio.

    The audit of DeltaLeftOut plans a calibrated eta, which exists if 6 w exceeds log(1 + 5 w) for
    each weight w. At eta = 6, the sharp bound is at least 1.28 times the claim.
    """
    eta = 6.0 if mutant is DeltaLeftOut else 300.0
    audit = logistic_audit(broken(mutant)(0.05), eta, **options)
    assert not audit.passed
    assert "REFUTED" in audit.statement()
    assert audit.ratio >= BROKEN[mutant]


@pytest.mark.campaign
def test_the_requested_rows_are_audited():
    assert not logistic_audit(broken(NoiseWithoutRowFive)(0.05), rows=[5], draws=10).passed


@pytest.mark.campaign
def test_rows_without_weight_have_no_loss_and_do_not_mask_other_rows():
    X, y, weights = rows()
    weights[0] = 0.0
    weights /= weights.sum()
    options = {"epsilon": weights * 300.0, "draws": 10, "random_state": 0}
    correct = cm.PrivateLogisticRegression(0.05)
    audit = cm.audit_privacy(correct, X, y, rows=[0, 1], **options)
    assert audit.passed, audit.statement()
    assert audit.measured[0] == audit.claimed[0] == 0.0
    assert not cm.audit_privacy(EtaOfUsedLabels(0.05), X, y, rows=[0], **options).passed


def test_auditing_a_fit_without_noise_raises_an_error():
    with pytest.raises(ParameterError, match="no guarantee to audit"):
        logistic_audit(cm.PrivateLogisticRegression(0.05), eta=np.inf)


@pytest.mark.campaign
def test_an_inferred_label_set_is_refuted():
    learner = cm.PrivateLogisticRegression(0.05, classes=None)
    assert logistic_audit(learner, draws=10).ratio == np.inf


# ------------------------------------------------------------------ ridge regression


RIDGES = {
    "tight": output_ridge(1.0),
    "paper": output_ridge(1.0, sensitivity="paper"),
    "shifted": output_ridge(0.5, feature_range=(-1.0, 2.0), target_range=(-3.0, 1.0)),
    "equal": output_ridge(1.0, weighting="equal"),
    "coarse lattice": output_ridge(1.0, rounding=2.0**-12),
    "floating point": output_ridge(1.0, rounding=None),
}


@pytest.mark.parametrize("name", one_in(3, RIDGES))
def test_a_correct_ridge_regression_passes(name):
    check_honest_ridge(name, draws=40 if name == "floating point" else 15)


def check_honest_ridge(name, **options):
    audit = ridge_audit(RIDGES[name], **options)
    assert audit.passed, audit.statement()
    assert audit.ratio > 0.05


def test_the_witness_of_a_ridge_reproduces_the_measured_loss():
    mechanism = output_ridge(2.0, rounding=None)
    epsilon = np.linspace(0.5, 2.0, 20)
    audit = ridge_audit(mechanism, epsilon, n_rows=2, draws=10)
    pair = audit.witness
    models = [
        clone(mechanism).fit(X, y, epsilon=epsilon, random_state=Simulation(7))
        for X, y in ((pair.X, pair.y), (pair.X_other, pair.y_other))
    ]
    distance = np.linalg.norm(models[0].coef_ - models[1].coef_) * 1.0
    best = int(np.argmax(audit.measured / audit.claimed))
    assert distance * models[0].noise_rate_ == pytest.approx(audit.measured[best], rel=1e-6)


PDP_OP = {"perturbation": "output", "fit_intercept": False}


class RidgeRangeInferred(cm.PersonalizedRidge):
    def fit(self, X, y, **options):
        correct = output_ridge(self.regularization, target_range=(float(y.min()), float(y.max())))
        self.__dict__.update(correct.fit(X, y, **options).__dict__ | {"target_range": (-1.0, 1.0)})
        return self


class RidgeWithoutWeights(cm.PersonalizedRidge):
    """Claim different guarantees for the rows, but give all rows equal weights."""

    def fit(self, X, y, *, epsilon, **options):
        self.weighting = np.full(len(X), 1.0 / len(X))
        text = output_ridge(self.regularization).fit(X, y, epsilon=epsilon, **options)
        super().fit(X, y, epsilon=np.full(len(X), np.mean(epsilon)), **options)
        self.guarantee_, self.epsilon_ = text.guarantee_, text.epsilon_
        self.weighting = "granted"
        return self


BROKEN_RIDGES = [
    broken(NoiseHalved, cm.PersonalizedRidge)(30.0, rounding=None, **PDP_OP),
    *(broken(kind, cm.PersonalizedRidge)() for kind in (NoiseHalved, NoiseWithoutRowFive)),
    *(kind(30.0, **PDP_OP) for kind in (RidgeRangeInferred, RidgeWithoutWeights)),
]


@pytest.mark.parametrize("learner", BROKEN_RIDGES[:3], ids=str)
def test_a_broken_ridge_regression_is_refuted(learner):
    audit = ridge_audit(learner, rows=[5])
    assert not audit.passed, audit.statement()


def test_the_guarantee_of_the_audited_ridge_is_claimed():
    claimed = ridge_audit(cm.PersonalizedRidge(weighting="equal"), rows=[0, 1], draws=10).claimed
    assert claimed[0] == claimed[1]


# --------------------------------------------------------------------------- releases


def test_frequencies_prove_most_of_the_loss_of_a_laplace_mechanism():
    audit = laplace_audit(1.0, claimed=1.0, draws=8000)
    assert 0.75 < audit.measured[0] <= 1.0
    assert audit.passed


@pytest.mark.campaign
def test_frequencies_refute_insufficient_noise_and_account_for_delta():
    assert not laplace_audit(0.5, claimed=1.0, draws=3000).passed
    assert laplace_audit(0.5, claimed=1.0, delta=0.4, draws=4000).passed


def test_default_replacements_are_other_rows():
    """Without noise, the audit always distinguishes a row from the default replacement."""
    audit = laplace_audit(0.0, claimed=1.0, replacements=None, draws=600)
    assert audit.measured[0] > 3.0


# ---------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": [60]}, "rows must be positions"),
        ({"rows": []}, "rows must be positions"),
        ({"rows": [0.5]}, "rows must be positions"),
        ({"draws": 0}, "draws must be .*.*, got 0"),
        ({"n_rows": -1}, "n_rows must be .*.*, got -1"),
        ({"confidence": 1.0}, "confidence must"),
        ({"confidence": "high"}, "confidence must"),
    ],
)
def test_errors_name_arguments_out_of_range(change, message):
    with pytest.raises(ParameterError, match=message):
        logistic_audit(cm.PrivateLogisticRegression(0.05), **change)


def test_invalid_data_are_refused():
    learner = cm.PrivateLogisticRegression(0.05)
    for X, y in (([[np.nan]], [1]), ([], []), ([[0.1], [0.2]], [1]), ([["a"]], [1])):
        with pytest.raises(DataError):
            cm.audit_privacy(learner, X, y, epsilon=1.0)
    for other in (3, Ridge(), cm.PersonalizedRidge):
        with pytest.raises(ParameterError, match="mechanism must be"):
            cm.audit_privacy(other, [[0.1]], [1], epsilon=1.0)
    for view, words in ((None, "points="), (float, "must give a Guarantee")):
        with pytest.raises(ParameterError, match=words):
            cm.audit_privacy(lambda X, y: lambda seed: 0.0, [[0.1], [0.2]], [1, 0], view=view)


def test_errors_name_missing_and_unsupported_arguments():
    X, y, _ = rows()
    with pytest.raises(ParameterError, match="epsilon is missing"):
        cm.audit_privacy(cm.PrivateLogisticRegression(), X, y)
    with pytest.raises(ParameterError, match="fit of WithoutEta does not set eta_"):
        logistic_audit(broken(WithoutEta)())
    with pytest.raises(ParameterError, match=r"points= is not supported for.* use one of epsilon"):
        cm.audit_privacy(cm.PrivateLogisticRegression(), X, y, points=X)
    with pytest.raises(ParameterError, match="epsilon= is not supported for"):
        cm.audit_privacy(lambda X, y: lambda seed: 0.0, X, y, epsilon=1.0)
    with pytest.raises(ParameterError, match="must give a Guarantee"):
        cm.audit_privacy(lambda X, y: lambda seed: 0.0, X, y, guarantee=1.0, view=lambda a: [a])


def test_ridge_uses_exact_and_statistical_audits():
    rng = np.random.default_rng(0)
    X = rng.random((30, 2))
    y = np.clip(X @ [0.5, -0.5], -1, 1)
    options = {"epsilon": np.linspace(0.5, 2.0, 30), "random_state": 0}
    audit = cm.audit_privacy(cm.PersonalizedRidge(), X, y, n_rows=1, draws=10, **options)
    assert audit.passed, audit.statement()
    assert 0.9 < audit.ratio <= 1.0
    sums = cm.PersonalizedRidge(perturbation="statistics")
    assert cm.audit_privacy(sums, X, y, rows=[29], draws=20, **options).method == "statistical"
