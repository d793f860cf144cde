"""Test convexity constants, unbounded objectives, descents and certificates."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

import convexmarket as cm
from convexmarket.errors import (
    DataError,
    LooseCertificateWarning,
    NotSupportedError,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.joint.alternating import (
    Descent,
    GlobalSearch,
    PurchaseStep,
    best_model,
    model_gradient,
)
from tests import one_in
from tests.joint.builders import convex_joint, data, joint_of


def exponential_hessian(t, c):
    """Compute the Hessian of exp(z)*(log(1 + exp(-t)) + c*t^2/2) in (z, t) at (0, t)."""
    wrong = 1 / (1 + np.exp(t))
    loss = np.logaddexp(0, -t)
    return np.array([[loss, -wrong], [-wrong, wrong * (1 - wrong) + c]])


def test_the_convexity_constant_is_the_threshold_of_semidefinite_hessians():
    constant = cm.joint.convexity_threshold([[1.0]])
    assert constant == pytest.approx(0.2620117781146, rel=1e-12)
    t = np.linspace(-40, 40, 20001)
    smallest = [np.linalg.eigvalsh(exponential_hessian(x, constant))[0] for x in t]
    assert min(smallest) >= -1e-12
    at = -2.2945632938
    assert np.linalg.eigvalsh(exponential_hessian(at, constant * (1 - 1e-6)))[0] < 0


def test_the_objective_is_convex_in_model_and_log_weights_at_the_threshold():
    rng = np.random.default_rng(0)
    X, y = data(5, 3, rng)
    threshold = cm.joint.convexity_threshold(X)

    def objective(v, level):
        w, a = v[:3], np.exp(v[3:])
        return a @ np.logaddexp(0, -y * (X @ w)) + level / 2 * w @ w

    for _ in range(2000):
        ends = rng.normal(size=(2, 8)) * [3] * 8
        ends[:, 3:] -= np.log(np.exp(ends[:, 3:]).sum(axis=1, keepdims=True)) + rng.exponential()
        middle = ends.mean(axis=0)  # sum exp(z) is convex, so it is at most one here too
        mean = (objective(ends[0], threshold) + objective(ends[1], threshold)) / 2
        assert objective(middle, threshold) <= mean + 1e-12


def test_convexity_in_log_weights_does_not_make_local_minima_global():
    """The proof of Theorem 4.1 in B ignores that the set sum exp(z) = 1 is not convex."""
    X, y = np.array([[1.0], [-1.0]]), np.array([1.0, 1.0])
    sellers = cm.Sellers(virtual_costs=[1.0, 1.05])
    market = cm.Market(sellers, 1e-3 * cm.Spread() + 1e-3 * cm.Noise() + 1e-3 * cm.Payments())
    joint = cm.JointMarket(market, X, y, regularization=0.3)
    assert joint.regularization > cm.joint.convexity_threshold(X)
    eta = 1.0
    ends = []
    for seller in (0, 1):
        weights = np.eye(2)[seller]
        model = best_model(joint, weights, eta)
        ends.append(joint.objective(model, weights, eta))
        near = 0.99 * weights + 0.01 * weights[::-1]
        assert joint.objective(best_model(joint, near, eta), near, eta) > ends[-1] + 1e-4
    assert ends[1] > ends[0] + 1e-5  # a strict local minimum that is not global


def joint_at_ratio(X, y, ratio, spread, cap, regularization):
    """Create a problem with the given convexity ratio by choosing the weight of the spread."""

    def weighing(mu):
        sellers = cm.Sellers(virtual_costs=np.ones(len(y)))
        objective = mu * spread + cm.Noise() + cm.Payments()
        market = cm.Market(sellers, objective, [cm.Cap(cap)])
        return cm.JointMarket(market, X, y, regularization=regularization)

    joint = weighing(cm.joint.convexity_ratio(weighing(1.0)) / ratio)
    assert cm.joint.convexity_ratio(joint) == pytest.approx(ratio)
    return joint


def curvature_within_the_simplex(joint, a, w):
    """Compute the smallest eigenvalue of the Hessian in (a, w) on the subspace sum da = 0."""
    m, n = joint.X.shape
    form = joint.market.form
    eye = np.eye(m) - 1 / m
    norm = np.linalg.norm(a)
    wrong = 1 / (1 + np.exp(joint.y * (joint.X @ w)))
    plain = (np.eye(m) - np.outer(a, a) / norm**2) / norm
    custom = form.mu * plain + form.mu_squared * 2 * np.eye(m)
    cross = -(wrong * joint.y)[:, None] * joint.X
    inner = joint.X.T @ ((a * wrong * (1 - wrong))[:, None] * joint.X)
    whole = np.block(
        [
            [eye @ custom @ eye, eye @ cross],
            [cross.T @ eye, inner + joint.regularization * np.eye(n)],
        ]
    )
    return np.linalg.eigvalsh(whole)[0] / (form.mu or form.mu_squared)


@pytest.mark.parametrize("spread", [cm.Spread(), cm.terms.SquaredSpread()], ids=repr)
def test_every_hessian_is_positive_semidefinite_below_a_ratio_of_one(spread):
    rng = np.random.default_rng(0)
    X, y = data(6, 2, rng)
    joint = joint_at_ratio(X, y, 0.999, spread, 2.0, 0.3)
    for _ in range(3000):
        a = rng.dirichlet(np.ones(6) * rng.choice([0.3, 1, 5]))
        if a.max() <= 2.0 / 6:
            w = rng.normal(size=2) * rng.choice([0.1, 1, 30])
            assert curvature_within_the_simplex(joint, a, w) >= -1e-9


@pytest.mark.parametrize(("margin", "convex"), [(0.99, False), (1.01, True)])
def test_the_convexity_ratio_is_sharp_for_the_squared_spread(margin, convex):
    """Check that the bound is attained by parallel rows with large negative margins."""
    X, y, regularization = np.ones((4, 1)), np.ones(4), 0.1
    mu = margin * 4 / (2 * regularization)
    sellers = cm.Sellers(virtual_costs=np.ones(4))
    market = cm.Market(sellers, mu * cm.terms.SquaredSpread() + cm.Noise() + cm.Payments())
    joint = cm.JointMarket(market, X, y, regularization=regularization)
    hessian = np.block([[2 * mu * np.eye(4), -X], [-X.T, regularization * np.eye(1)]])
    assert (cm.joint.convexity_ratio(joint) < 1) == convex
    assert (np.linalg.eigvalsh(hessian)[0] > 0) == convex


def test_the_published_objective_is_unbounded_below():
    rng = np.random.default_rng(0)
    X, y = data(20, 3, rng)
    b = rng.normal(size=3)
    joint = joint_of(X, y, 1.0 * cm.Spread(), rng, noise="realised", noise_vector=b)
    values = []
    for eta in np.geomspace(1e-1, 1e-5, 5):
        w = -2 / (joint.regularization * eta) * b
        values.append(joint.objective(w, np.full(20, 1 / 20), eta))
    assert np.all(np.diff(values) < 0)
    expected = -2 * b @ b / (joint.regularization * 1e-10)
    assert values[-1] == pytest.approx(expected, rel=1e-2)
    with pytest.raises(UnattainedOptimumError, match=r"no minimum.*expected.*worst-case.*max_n"):
        cm.allocate_jointly(joint)


@pytest.mark.campaign
def test_ranges_of_eta_norm_bounds_and_nonrealised_noise_restore_a_minimum():
    rng = np.random.default_rng(0)
    X, y = data(5, 3, rng)
    b = rng.normal(size=3)
    realised = {"noise": "realised", "noise_vector": b}
    ranged = joint_of(X, y, 1.0 * cm.Spread(), rng, constraints=[cm.EtaRange(0.5, 100)], **realised)
    result = cm.allocate_jointly(ranged)
    assert result.binding == ("eta_low",)
    assert result.eta == 0.5
    beta = 0.9 * joint_of(X, y, cm.Spread(), np.random.default_rng(1)).sigma / np.linalg.norm(b) / 2
    rng = np.random.default_rng(1)
    bounded = joint_of(X, y, 1.0 * cm.Spread(), rng, max_norm=beta, **realised)
    result = cm.allocate_jointly(bounded)
    assert np.linalg.norm(result.model) <= beta * (1 + 1e-9)
    rng = np.random.default_rng(1)
    with pytest.raises(UnattainedOptimumError, match=r"sigma above .* \(sigma is"):
        cm.allocate_jointly(joint_of(X, y, 1.0 * cm.Spread(), rng, max_norm=3 * beta, **realised))
    for noise in ("expected", "worst-case"):
        assert cm.allocate_jointly(joint_of(X, y, 1.0 * cm.Spread(), rng, noise=noise)).eta > 0


@given(seed=st.integers(0, 2**32))
def test_the_start_on_the_unbounded_ray_is_always_tried(seed):
    """Check the start on a ray on which the objective is of order -1/eta^2 for small eta."""
    rng = np.random.default_rng(seed)
    X, y = data(8, 3, rng)
    b = 0.3 * rng.normal(size=3)
    constraints = [cm.EtaRange(0.05, 1000.0)]
    spread = 3.0 * cm.terms.SquaredSpread()
    joint = joint_of(X, y, spread, rng, constraints=constraints, noise="realised", noise_vector=b)
    result = cm.allocate_jointly(joint, starts=1)
    ray = -2 / (joint.regularization * 0.05) * b
    assert result.objective <= joint.objective(ray, np.full(8, 1 / 8), 0.05)
    assert len(result.starts) == 2


def test_the_naive_model_needs_a_range_of_eta():
    rng = np.random.default_rng(0)
    X, y = data(20, 3, rng)
    sellers = cm.Sellers(virtual_costs=rng.uniform(1, 5, 20))
    naive = 1e-9 * cm.Spread() + 1.0 * cm.Payments()
    with pytest.raises(UnattainedOptimumError, match="naive model of the papers"):
        cm.allocate_jointly(cm.JointMarket(cm.Market(sellers, naive), X, y, regularization=0.1))
    market = cm.Market(sellers, naive, [cm.EtaRange(1.0, 9.0)])
    result = cm.allocate_jointly(cm.JointMarket(market, X, y, regularization=0.1))
    assert (result.eta, result.binding) == (1.0, ("eta_low",))


@pytest.mark.parametrize("noise", ["expected", "worst-case", "realised"])
@pytest.mark.parametrize("max_norm", [None, 0.3])
@pytest.mark.parametrize("eta", [3.0, 300.0])
def test_the_best_model_equals_the_solution_of_cvxpy(noise, max_norm, eta):
    rng = np.random.default_rng(4)
    X, y = data(30, 4, rng)
    b = rng.normal(size=4) if noise == "realised" else None
    joint = joint_of(X, y, cm.Spread(), rng, noise=noise, noise_vector=b, max_norm=max_norm)
    weights = rng.dirichlet(np.ones(30)) * (rng.random(30) < 0.8)
    weights /= weights.sum()
    w = cp.Variable(4)
    objective = weights @ cp.logistic(-cp.multiply(y, X @ w)) + 0.025 * cp.sum_squares(w)
    if noise == "worst-case":
        objective += 2 * joint.noise_radius / eta * cp.norm(w)
    if b is not None:
        objective += 2 / eta * (b @ w)
    problem = cp.Problem(
        cp.Minimize(objective), [] if max_norm is None else [cp.norm(w) <= max_norm]
    )
    problem.solve(solver="CLARABEL")
    result = best_model(joint, weights, eta)
    np.testing.assert_allclose(result, w.value, atol=2e-4 * max(1, np.linalg.norm(w.value)))
    value = joint.objective(result, weights, eta) - (
        joint.market.objective.value(weights, eta, joint.market.sellers.virtual_costs)
    )
    assert value <= problem.value + 1e-9
    assert np.linalg.norm(model_gradient(joint, result, weights, eta)) <= 1e-8


@given(seed=st.integers(0, 10**6), noise=st.sampled_from(["expected", "worst-case"]))
def test_a_solution_is_stationary_and_the_best_of_its_starts(seed, noise):
    rng = np.random.default_rng(seed)
    X, y = data(int(rng.integers(3, 10)), int(rng.integers(1, 4)), rng)
    spread = float(np.exp(rng.normal())) * (
        cm.Spread() if rng.random() < 0.5 else cm.terms.SquaredSpread()
    )
    result = cm.allocate_jointly(joint_of(X, y, spread, rng, noise=noise), starts=2)
    assert result.objective <= min(result.starts)
    assert result.residual <= 1e-8
    assert result.weights.sum() == pytest.approx(1)


@given(
    seed=st.integers(0, 10**6),
    squared=st.booleans(),
    capped=st.booleans(),
    noise=st.sampled_from(["expected", "worst-case"]),
)
def test_convex_problems_have_a_global_certificate(seed, squared, capped, noise):
    m, cap = 8, 2.0 if capped else None
    joint = convex_joint(seed, m=m, n=3, squared=squared, cap=cap, noise=noise)
    result = cm.allocate_jointly(joint)
    assert result.status == "global"
    assert result.gap <= 1e-7
    assert len({record.eta for record in result.solves}) == len(result.solves) >= 1
    assert min(record.upper for record in result.solves) >= result.lower_bound
    if capped:
        return

    def objective(v):
        a = np.exp(v[3:-1] - v[3:-1].max())
        return joint.objective(v[:3], a / a.sum(), float(np.exp(v[-1])))

    # SciPy's descents do not find a point below the bound.
    rng = np.random.default_rng(seed)
    start = np.r_[rng.normal(size=3 + m), np.log(result.eta) + rng.normal()]
    other = minimize(objective, start, method="L-BFGS-B", options={"maxiter": 30})
    assert result.lower_bound <= other.fun + 1e-12


@pytest.mark.parametrize("noise", ["expected", "worst-case"])
@pytest.mark.parametrize("max_norm", [None, 0.02])
def test_the_tangent_bounds_the_optimum_at_every_eta(noise, max_norm):
    joint = convex_joint(7, m=12, n=3, margin=1.2, noise=noise, max_norm=max_norm)
    step = PurchaseStep(joint)
    search = GlobalSearch(Descent(joint, step, np.zeros(3)), 1e-13)
    points = [search.solve(eta) for eta in np.geomspace(2, 2000, 13)]
    for point in points:
        assert point.cut(point.eta) == pytest.approx(point.objective, rel=1e-9)
        for other in points:
            assert point.cut(other.eta) <= other.objective * (1 + 1e-10)
            low, high = sorted((point.eta, other.eta))
            between = [each.objective for each in points if low <= each.eta <= high]
            assert point.cut.minimum(low, high)[1] <= min(between) * (1 + 1e-10)
            if low < high:
                ends = (point, other) if point.eta == low else (other, point)
                bound = ends[0].cut.interval_bound(ends[1].cut, low, high)[1]
                assert bound <= min(between) * (1 + 1e-10)


@pytest.mark.parametrize("noise", one_in(2, ["worst-case", "expected"]))
@pytest.mark.parametrize("m", one_in(2, [8, 50]))
def test_theorem_3_3_of_b_holds_at_the_solution(noise, m):
    rng = np.random.default_rng(3)
    X, y = data(m, 4, rng)
    joint = joint_of(X, y, 0.7 * cm.Spread(), rng, noise=noise)
    result = cm.allocate_jointly(joint)
    residuals = cm.joint.first_order_residuals(joint, result.model, result.weights, result.eta)
    assert residuals.largest <= 1e-5
    assert (
        cm.joint.first_order_residuals(joint, result.model, result.weights, 2 * result.eta).eta
        > 0.4
    )
    moved = cm.joint.first_order_residuals(joint, result.model + 1.0, result.weights, result.eta)
    assert moved.largest > 1e-3
    with pytest.raises(NotSupportedError, match=r"Theorem 3\.3 requires"):
        cm.joint.first_order_residuals(convex_joint(0), result.model, result.weights, result.eta)


def test_joint_problems_that_are_not_in_the_papers_are_solved():
    rng = np.random.default_rng(3)
    X, y = data(5, 2, rng)
    joint = joint_of(
        X,
        y,
        cm.terms.NegativeEntropy(),
        rng,
        cost=cm.PowerCost(2),
        constraints=[cm.MaxEpsilon(5.0)],
    )
    result = cm.allocate_jointly(joint, starts=2)
    assert result.status == "best of several starts"
    assert result.lower_bound == -np.inf
    assert result.residual <= 1e-6


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("m", one_in(2, [6, 25]))
def test_given_guarantees_are_supported(convex, m):
    """Check that optima of problems with given epsilons (B, Eq. 3) are certified."""
    rng = np.random.default_rng(3)
    X, y = data(m, 3, rng)
    granted = rng.uniform(0.1, 3, m) * rng.choice([0, 1, 1], size=m)
    mu = 1.2 * np.linalg.norm(X, 2) ** 2 / (2 * 0.1) if convex else 0.1
    market = cm.Market(
        cm.Sellers(virtual_costs=np.ones(m)),
        mu * cm.terms.SquaredSpread() + 1.0 * cm.Noise(),
        [cm.terms.GivenEpsilon(granted)],
    )
    joint = cm.JointMarket(market, X, y, regularization=0.1)
    result = cm.allocate_jointly(joint)
    assert np.all(result.epsilon <= granted * (1 + 1e-9))
    assert result.residual <= 1e-10
    assert result.status == ("global" if convex else "best of several starts")
    if m > 6:
        conic = cm.allocate_jointly(joint, solver="CLARABEL", starts=1)
        assert conic.objective >= result.objective * (1 - 1e-9)
        assert not convex or conic.objective == pytest.approx(result.objective, rel=1e-7)


def test_the_result_states_that_the_model_is_not_private():
    result = cm.allocate_jointly(convex_joint(0))
    assert "have a privacy guarantee" in result.statement()
    assert "'global'" in repr(result)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"market": 3}, ParameterError, "market must be a Market"),
        ({"X": [[1.0]]}, DataError, "a row of features for each of 2 sellers"),
        ({"X": [[np.nan], [1]]}, DataError, "not finite"),
        ({"y": [1]}, DataError, "one label for each of 2"),
        ({"y": [0, 1]}, DataError, "labels must be -1 or 1"),
        ({"regularization": 0}, ParameterError, "regularization must .*, got 0"),
        ({"noise": "none"}, ParameterError, "must be one of 'expected'"),
        ({"noise": "realised"}, ParameterError, "noise_vector has shape"),
        ({"noise_vector": [1.0]}, ParameterError, 'requires noise="realised"'),
        (
            {"noise": "realised", "noise_vector": [1.0, 2.0]},
            ParameterError,
            "give 1 finite numbers",
        ),
        ({"failure_probability": 1.0}, ParameterError, "failure_probability must .*, got 1.0"),
    ],
)
def test_invalid_arguments_are_refused(change, error, message):
    sellers = cm.Sellers(virtual_costs=[1.0, 2.0])
    arguments = {
        "market": cm.Market(sellers, cm.Spread() + cm.Noise() + cm.Payments()),
        "X": [[0.5], [-0.5]],
        "y": [1, -1],
        "regularization": 0.1,
    } | change
    with pytest.raises(error, match=message):
        cm.JointMarket(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "guess"}, "method must be .*one of.*, got 'guess'"),
        ({"starts": 0}, "starts must .*, got 0"),
        ({"joint": 1}, "must be a JointMarket"),
        ({"gap": np.nan}, "gap must .*, got nan"),
        ({"random_state": "0"}, "random_state must be .*a seed.*, got '0'"),
        ({"max_iterations": 0}, "max_iterations must .*, got 0"),
        ({"tol": 0.0}, "tol must be a finite number > 0, got 0.0"),
    ],
)
def test_invalid_options_are_refused(options, message):
    arguments = {"joint": convex_joint(0)} | options
    with pytest.raises(ParameterError, match=message):
        cm.allocate_jointly(**arguments)


def three_rows(spread, sigma=1.0, regularization=0.5, **options):
    X = np.array([[0.6, 0.8], [-0.6, 0.2], [0.3, -0.9]])
    sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    market = cm.Market(sellers, spread + sigma * cm.Noise() + 0.5 * cm.Payments())
    return cm.JointMarket(market, X, [1, -1, -1], regularization=regularization, **options)


def test_status_global_requires_the_gap():
    joint = three_rows(2.0 * cm.terms.SquaredSpread())
    assert cm.allocate_jointly(joint).gap <= 1e-8
    rng = np.random.default_rng(21)
    X, regularization = rng.normal(size=(3, 2)), rng.uniform(0.01, 1)
    # at this weight, the objective is not strictly convex
    edge = np.linalg.norm(X, 2) ** 2 / (2 * regularization)
    market = cm.Market(
        joint.market.sellers, edge * cm.terms.SquaredSpread() + cm.Noise() + cm.Payments()
    )
    on_edge = cm.JointMarket(market, X, [1, -1, -1], regularization=regularization * (1 + 1e-15))
    with pytest.warns(LooseCertificateWarning, match="barely convex"):
        result = cm.allocate_jointly(on_edge)
    assert result.status == "global for this eta"
    assert result.gap > 1e-8


@pytest.mark.parametrize("share", [1.0, 1.0 - 1e-12, 1.001])
def test_realised_noise_that_offsets_sigma_leaves_no_minimum(share):
    b = np.array([0.3, -0.4])
    joint = three_rows(
        2.0 * cm.terms.SquaredSpread(), share * 1.0, noise="realised", noise_vector=b, max_norm=1.0
    )
    if share <= 1:
        with pytest.raises(UnattainedOptimumError, match=r"a sigma above 1 = 2\*max_norm"):
            cm.allocate_jointly(joint)
    else:
        assert cm.allocate_jointly(joint).eta > 0.01


def test_failing_solvers_are_reported(monkeypatch):
    joint = convex_joint(2, m=12, n=3)
    conic = cm.JointMarket(
        cm.Market(joint.market.sellers, joint.market.objective, [cm.MaxEpsilon(np.full(12, 9.0))]),
        joint.X,
        joint.y,
        regularization=0.1,
    )

    def fails(problem, solver, *rest):
        return "solver_error"

    monkeypatch.setattr("convexmarket.joint.exponential.run_solver", fails)
    with pytest.raises(SolverError, match=r"SCS failed on the z-block .*solver_error"):
        cm.allocate_jointly(joint, "exponential", starts=1, solver="SCS")
    with pytest.raises(NotSupportedError, match="'NOSUCH' is not installed; use one of"):
        cm.allocate_jointly(conic, starts=1, solver="NOSUCH")

    monkeypatch.setattr("convexmarket.learners.minimiser.dpotrf", lambda hessian: (hessian, 1))
    with pytest.raises(SolverError, match="the Hessian is not positive"):
        cm.allocate_jointly(joint)
