"""Markets, terms and constraints have formulas in plain text and in LaTeX."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from matplotlib.mathtext import MathTextParser
from pylatexenc.latexwalker import LatexWalker

import convexmarket as cm
from convexmarket import terms

Q = [0.5, 0.5]
GAMMA = cp.Parameter(nonneg=True, name="gamma", value=1.0)
SELLERS = cm.Sellers([0.1, 0.6], cm.Uniform(0, 1))

PIECES = {
    "||a||_2": cm.Spread(),
    "||a||_3": cm.Spread(3),
    "||a - q||_inf": cm.Spread(np.inf, Q),
    "||a||_2^2": terms.SquaredSpread(),
    "sum_i a_i log a_i": terms.NegativeEntropy(),
    "sum_i a_i log (a_i/q_i)": terms.NegativeEntropy(Q),
    "1/eta": cm.Noise(),
    "1/eta^2": terms.SquaredNoise(),
    "sum_i l_i a_i": cm.Losses([1.0, 2.0]),
    "sum_i psi_i eps_i": cm.Payments(),
    "sum_i psi_i eps_i^2": cm.Payments(cm.PowerCost(2)),
    "sum_i psi_i (exp(eps_i) - 1)": cm.Payments(terms.ExponentialCost()),
    "sum_i psi_i (1 eps_i + 2 (eps_i - 0.5)_+)": cm.Payments(terms.TieredCost([1, 3], [0.5])),
    "a'Sigma a": terms.QuadraticSpread(np.eye(2)),
    "CVaR_0.9(psi eps)": terms.CVaR(0.9, of="payments"),
    "max_g mean_{i in g} eps_i": terms.Fairness("minimax", ["a", "b"]),
    "sum_i (1 + 0.2) psi_i eps_i": terms.RobustCosts("box", 0.2),
    "(sum_i psi_i eps_i + || r_i psi_i eps_i ||_2)": terms.RobustCosts("ellipsoid", [0.1, 0.2]),
    "(sum_i psi_i eps_i + largest_1 (0.2 psi_i eps_i))": terms.RobustCosts("budget", 0.2, 1),
    "a_i <= 1.5/m": cm.Cap(1.5),
    "a_i <= k_i/m": cm.Cap([1.0, 2.0]),
    "eps_i <= gamma": cm.MaxEpsilon(GAMMA),
    "eps_i <= e_i": terms.GivenEpsilon([0.1, 0.2]),
    "sum_i psi_i eps_i <= 1e-05": cm.Budget(1e-5),
    'sum_{i in "a_1 $^_%"} a_i >= 0.3, sum_{i in g} a_i = sum_{i in h} a_i': cm.GroupShare(
        ["a_1 $^_%", "b"], at_least={"a_1 $^_%": 0.3}, equal=True
    ),
    "0.5 <= eta <= 2": cm.EtaRange(0.5, 2),
    "A'a = b": terms.Moments([[1.0], [2.0]], [1.5]),
    "|A'a - b| <= 0.1": terms.Moments([[1.0], [2.0]], [1.5], 0.1),
    "1/||a||_2^2 >= 1.5": terms.EffectiveSize(1.5),
}


class OwnTerm(cm.Term):
    def expression(self, quantities):
        return cp.max(quantities.weights)


class Own_cost_2(terms.PrivacyCost):  # noqa: N801  (LaTeX treats underscores as subscripts)
    def expression(self, epsilon):
        return cp.square(epsilon)


def assert_is_latex(written):
    latex = written._repr_latex_()
    assert latex.startswith("$")
    assert latex.endswith("$")
    MathTextParser("agg").parse(latex)
    LatexWalker(latex, tolerant_parsing=False).get_latex_nodes()


def test_every_shipped_piece_has_a_formula():
    shipped = [getattr(terms, name) for name in terms.__all__]
    ends = (terms.Term, terms.Constraint)
    pieces = {kind for kind in shipped if issubclass(kind, ends)} - set(ends)
    assert pieces == {type(piece) for piece in PIECES.values()}


@pytest.mark.parametrize("formula", PIECES)
def test_a_formula_has_text_and_latex(formula):
    piece = PIECES[formula]
    assert str(piece) == formula
    assert_is_latex(piece)


def test_a_piece_without_a_formula_is_shown_by_name():
    assert str(OwnTerm()) == "OwnTerm"
    assert str(cm.Payments(Own_cost_2())) == 'sum_i psi_i "Own_cost_2"(eps_i)'
    assert_is_latex(cm.Payments(Own_cost_2()))


@pytest.mark.parametrize("name", ["gamma", "price", "x_1_2", "50 % of $_^", 'a "quoted" name'])
def test_a_parameter_is_written_by_its_name(name):
    parameter = cp.Parameter(nonneg=True, name=name)
    objective = cm.Spread() * parameter + cm.Noise() * (2 * parameter)
    assert name.replace('"', "'") in str(objective)
    assert_is_latex(objective)


def test_a_market_is_printed_as_an_optimisation_problem():
    market = cm.Market(SELLERS, cm.Spread() + cm.Noise() + 0.5 * cm.Payments(), [cm.Cap(1.5)])
    assert str(market) == (
        "min_{a, eta} ||a||_2 + 1/eta + 0.5 sum_i psi_i eps_i subject to "
        "eps = eta a, sum_i a_i = 1, a_i >= 0, a_i <= 1.5/m"
    )
    assert_is_latex(market)
    assert r"\min_{a, \eta} \|a\|_{2} + 1/\eta" in market._repr_html_()
