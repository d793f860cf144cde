"""Test statements of docs/statements.toml that no other test covers."""

import numpy as np
import pytest
from scipy.integrate import quad

import convexmarket as cm
from convexmarket.report import read_tables
from tests import ROOT


@pytest.mark.parametrize("prior", [cm.Uniform(0, 1), cm.Beta(1, 3)], ids=["uniform", "beta"])
def test_the_moments_of_small_margins_follow_from_the_density_of_the_virtual_cost(prior):
    """The limits are f lambda^2 / (2 gamma) and f lambda^3 / (3 gamma) (A, Eqs. (36), (37))."""
    gamma = 0.7
    density = prior.pdf(0.0) / 2  # the virtual cost is about 2c near 0
    for multiplier, tolerance in ((1e-3, 4e-3), (1e-5, 4e-5)):
        top = multiplier / gamma  # margins are zero above this virtual cost
        for power, expected in (
            (1, density * multiplier**2 / (2 * gamma)),
            (2, density * multiplier**3 / (3 * gamma)),
        ):
            moment, _ = quad(
                lambda c, p=power, m=multiplier: (
                    max(m - gamma * float(prior.virtual_cost(c)), 0.0) ** p * prior.pdf(c)
                ),
                0.0,
                top,
                epsabs=0.0,
                limit=200,
            )
            assert moment == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize(
    "loss",
    [
        2 * cm.Spread() + cm.Noise(),
        2 * cm.terms.SquaredSpread() + cm.Noise(),
        2 * cm.Spread() + cm.Noise() + cm.Losses([0.3, 0.1, 0.2]),
    ],
    ids=["norm", "square", "losses"],
)
def test_payments_have_the_same_formula_for_every_loss(loss):
    """The payment is c eps(c) plus the integral of eps(z) up to c_hi (A, III.3, remark 1)."""
    prior, reports = cm.Uniform(0, 1), np.array([0.1, 0.3, 0.6])

    def purchase(z):
        changed = cm.Sellers([z, *reports[1:]], prior=prior)
        return cm.allocate(cm.Market(changed, loss + 0.5 * cm.Payments())).epsilon[0]

    market = cm.Market(cm.Sellers(reports, prior=prior), loss + 0.5 * cm.Payments())
    rent, error = quad(purchase, reports[0], 1.0, epsabs=1e-5, epsrel=1e-4, limit=60)
    expected = reports[0] * purchase(reports[0]) + rent
    assert cm.payments(market, cm.allocate(market))[0] == pytest.approx(expected, abs=1e-4 + error)


def test_output_perturbation_as_printed_keeps_the_granted_epsilon():
    """Audit the noise and weights of R, Theorem 3.2, as printed, with exact privacy losses."""
    rng = np.random.default_rng(0)
    X, granted = rng.uniform(0, 1, (30, 2)), rng.uniform(0.5, 2.0, 30)
    y = np.clip(X @ [0.5, -0.4] + rng.normal(0, 0.1, 30), -1, 1)
    learner = cm.PersonalizedRidge(
        1.0,
        perturbation="output",
        weighting="granted",
        sensitivity="paper",
        fit_intercept=False,
        target_range=(-1.0, 1.0),
    )
    audit = cm.audit_privacy(learner, X, y, epsilon=granted, n_rows=1, draws=40, random_state=0)
    assert audit.passed
    assert audit.ratio > 0.3  # the attack is effective, although the noise is too large
    fitted = learner.fit(X, y, epsilon=granted, random_state=cm.privacy.Simulation(0))
    assert (fitted.epsilon_ <= granted * (1 + 1e-12)).all()


def test_table_14_is_reproduced_within_a_factor_of_one_and_a_half():
    """Compare the 72 cells of private models in R, Table 14, with the errors of this package."""
    cells = read_tables(ROOT / "reports/ridge")["ridge-medical-published"]
    table = cells[cells.file.str.endswith("table14.csv") & (cells.method != "nonprivate")]
    assert len(table) == 72
    assert table.ratio.between(1 / 1.5, 1.5).all()
    np.testing.assert_allclose(table.ratio, table.ours / table.published, rtol=1e-9)


def test_virtual_costs_equal_those_of_appendix_c():
    """Check the virtual costs of c = 0.1 and c = 0.6 for U[0, 1] (B, Appendix C)."""
    np.testing.assert_allclose(cm.Uniform(0, 1).virtual_cost([0.1, 0.6]), [0.2, 1.2], rtol=1e-15)
