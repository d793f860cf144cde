"""Markets as instances: the exact answers and every formulation agree, and parameters change."""

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import NotSupportedError
from convexmarket.studies.kkt import kkt_residuals
from convexmarket.studies.subproblems.markets import (
    BudgetInstance,
    FixedEtaInstance,
    GuaranteesInstance,
    PapersInstance,
)

TIGHT = {"tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}


def sellers(m=30, seed=0):
    rng = np.random.default_rng(seed)
    return cm.Sellers(rng.uniform(0.02, 0.1, m), prior=cm.Uniform(0.02, 0.1))


def papers(cap=5.0):
    market = cm.Market.standard(sellers(), mu=1.0, sigma=100.0, gamma=0.001, cap=cap)
    return PapersInstance(market, cm.allocate(market).eta)


def guarantees():
    return GuaranteesInstance(np.random.default_rng(1).uniform(0.01, 1.0, 30), 1.0, 1.0)


def squared():
    objective = cm.terms.SquaredSpread() + 100.0 * cm.Noise() + 0.001 * cm.Payments()
    return FixedEtaInstance(cm.Market(sellers(), objective, [cm.MaxEpsilon(2.0)]))


def cubic():
    objective = cm.Spread(3) + 100.0 * cm.Noise() + 0.001 * cm.Payments(cm.PowerCost(2))
    return FixedEtaInstance(cm.Market(sellers(), objective, [cm.Cap(5)]))


def budget():
    return BudgetInstance(
        cm.Market(sellers(), cm.Spread() + 100.0 * cm.Noise(), [cm.Cap(2), cm.Budget(5.0)])
    )


def papers_without_a_cap():
    return papers(None)


MAKERS = {
    papers: PapersInstance,
    papers_without_a_cap: PapersInstance,
    guarantees: GuaranteesInstance,
    squared: FixedEtaInstance,
    cubic: FixedEtaInstance,
    budget: BudgetInstance,
}
CASES = [
    pytest.param(make, formulation, id=f"{make.__name__}, {formulation}")
    for make, kind in MAKERS.items()
    for formulation in kind.formulations
]


@pytest.mark.parametrize(("make", "formulation"), CASES)
def test_every_formulation_finds_the_same_also_after_the_change(make, formulation):
    instance = make()
    problem = instance.declare(formulation)
    assert problem.is_dcp(dpp=True)
    for changed in (False, True):
        if changed:
            instance.change(problem)
        problem.solve(solver="CLARABEL", **TIGHT)
        answer = instance.answer(problem)
        assert instance.violation(answer) < 1e-7
        assert kkt_residuals(problem).largest < 1e-5
        best = instance.exact(changed)
        if best is None:
            other = make()
            again = other.declare(other.formulations[0])
            if changed:
                other.change(again)
            again.solve(solver="ECOS", abstol=1e-11, reltol=1e-11, feastol=1e-11)
            best = other.answer(again)
        else:  # the same guarantees in other hands have the same value: look at the weights
            np.testing.assert_allclose(answer, best, atol=1e-4 * np.abs(best).max())
        assert instance.violation(best) < 1e-10
        assert instance.objective(answer, changed) == pytest.approx(
            instance.objective(best, changed), rel=1e-7
        )


@pytest.mark.parametrize(("make", "formulation"), CASES)
def test_the_change_changes_the_optimum_and_compiles_nothing(make, formulation):
    instance = make()
    problem = instance.declare(formulation)
    problem.solve(solver="CLARABEL")
    before, compiled = (
        instance.objective(instance.answer(problem), False),
        problem._cache.param_prog,
    )
    instance.change(problem)
    problem.solve(solver="CLARABEL")
    assert problem._cache.param_prog is compiled
    if make is not guarantees:  # there the same guarantees change owners
        assert instance.objective(instance.answer(problem), True) != pytest.approx(before, rel=1e-4)
    else:
        assert not np.allclose(instance.answer(problem), instance.exact(False), atol=1e-3)


def test_violations_by_hand():
    instance = papers(cap=2.0)
    even = np.full(30, 1 / 30)
    assert instance.violation(even) == pytest.approx(0.0, abs=1e-15)
    assert instance.violation(1.1 * even) == pytest.approx(0.1)
    uneven = even.copy()
    uneven[0], uneven[1] = 3 / 30, -1 / 30
    assert instance.violation(uneven) == pytest.approx(1 / 3)  # of the largest weight


def test_where_no_more_may_be_bought_the_change_is_to_less():
    market = cm.Market.standard(sellers(), mu=1.0, sigma=100.0, gamma=0.001)
    eta = cm.allocate(market).eta
    for low, high, change in ((0.5, 1.0, 1 / 1.25), (1.0, 2.0, 1.25), (0.5, 2.0, 1.25)):
        bounded = cm.Market(market.sellers, market.objective, [cm.EtaRange(low * eta, high * eta)])
        problem = PapersInstance(bounded, eta).declare("primal")
        PapersInstance(bounded, eta).change(problem)
        assert problem.eta == pytest.approx(change * eta)
    bounded = cm.Market(market.sellers, market.objective, [cm.EtaRange(eta, eta)])
    with pytest.raises(NotSupportedError, match="no room"):
        PapersInstance(bounded, eta)


def test_an_eta_without_room_is_refused():
    market = cm.Market(
        sellers(), cm.Spread(3) + cm.Noise() + cm.Payments(), [cm.EtaRange(2.0, 2.0)]
    )
    with pytest.raises(NotSupportedError, match="no room"):
        FixedEtaInstance(market)


def test_the_unscaled_market_is_in_the_weights_themselves():
    problem = papers().declare("unscaled")
    problem.solve(solver="CLARABEL")
    assert problem.variables()[0].value.sum() == pytest.approx(1.0)
    assert isinstance(problem, cp.Problem)
