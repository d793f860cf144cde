"""The study of online policies: draws are paired, measures honest, empty purchases counted."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib import parallel_config
from joblib.parallel import MultiprocessingBackend

import convexmarket as cm
from convexmarket.lab.claims import power_fit
from convexmarket.lab.kinds.online_study.run import MEASURES, limit_of_ratio
from convexmarket.lab.result import Result
from tests.lab.kinds.builders import MEASURED_RATIOS, ONE, check_measured_ratios
from tests.lab.kinds.builders import run_online as run
from tests.process.builders import needs_fork

SMALL = "study.sizes=[50, 150]"
FEW = ["study.sizes=[10, 40]", "study.draws=12"]


def claim(**entries: str) -> str:
    told = {"source": "'A'", "says": "'b'", "measure": "'loss'", "shape": "'falls'"} | entries
    return f"claims=[{{{', '.join(f'{key}={value}' for key, value in told.items())}}}]"


def stream(draw: int, number: int) -> np.ndarray:
    """Return the first sellers of a stream, from the seed alone."""
    seed = np.random.SeedSequence(5, spawn_key=(0, draw))
    return 4.0 * np.random.default_rng(seed).random(number)


@pytest.fixture(scope="module")
def result() -> Result:
    return run(SMALL)


@pytest.fixture(scope="module")
def empty() -> Result:
    """Return a study in which some draws buy nothing."""
    return run(ONE, *FEW, "study.fractions=[0.3, 1.0]", claim(shape="'approaches 1'"))


def test_there_is_a_row_for_every_policy_size_and_draw(result):
    assert len(result.tables["draws"]) == 5 * 2 * 3
    assert list(result.tables["points"].policy.unique()) == list(result.problem.study.policies)
    assert list(result.tables["points"]["size"]) == [50, 150] * 5
    assert (result.tables["points"].draws == 3).all()
    assert (result.tables["points"]["empty"] == 0).all()


POLICIES = ["expectation", "algorithm-3", "replanned", "learnt", "guess"]


@pytest.mark.parametrize("name", POLICIES)
def test_measures_are_those_of_the_library(result, name):
    check_measures(result, name, 150)


def check_measures(result, name, size):
    draw = 2
    row = (
        result.tables["draws"].query("policy == @name and size == @size and draw == @draw").iloc[0]
    )
    came = stream(draw, size)
    found = cm.run_online(result.problem.policy(name, size), came)
    bought = found.epsilon[found.epsilon > 0]
    costs = 2.0 * came[found.epsilon > 0]  # the virtual costs of U[0, 4]
    eta = bought.sum()
    rest = np.linalg.norm(bought) / eta + 2.0 / eta
    expected = {
        "loss": rest + 0.5 * costs @ bought,
        "paid_loss": rest + 0.5 * found.payments.sum(),
        "eta": eta,
        "n_bought": bought.size,
        "largest_weight": bought.max() / eta,
        "payments": found.payments.sum(),
    }
    for measure, value in expected.items():
        np.testing.assert_allclose(row[measure], value, rtol=1e-9, err_msg=measure)
    assert row.ratio == row.loss / row.offline


def test_hindsight_is_the_declared_optimum_of_those_who_came():
    found = run(ONE, "study.sizes=[60]", "study.fractions=[0.5]", "study.draws=2")
    for row in found.tables["draws"].itertuples():
        came = stream(row.draw, 30)
        best, a, eta = np.inf, cp.Variable(30, nonneg=True), cp.Parameter(nonneg=True)
        cost = cp.norm(a) + 0.5 * eta * (2.0 * came) @ a
        problem = cp.Problem(cp.Minimize(cost), [cp.sum(a) == 1])
        for log in np.linspace(-3, 5, 81):  # eta on a grid: the optimum is flat
            eta.value = float(np.exp(log))
            best = min(best, problem.solve(solver="CLARABEL") + 2.0 / eta.value)
        assert row.arrived == 30
        np.testing.assert_allclose(row.offline, best, rtol=2e-3)
        assert row.offline <= best * (1 + 1e-7)


def test_the_cap_is_the_same_in_hindsight():
    capped = run(ONE, "study.sizes=[100]", "buyer.cap=4.0")
    for row in capped.tables["draws"].itertuples():
        sellers = cm.Sellers(stream(row.draw, 100), cm.Uniform(0, 4))
        objective = 1.0 * cm.Spread() + 2.0 * cm.Noise() + 0.5 * cm.Payments()
        best = cm.allocate(cm.Market(sellers, objective, [cm.Cap(4.0)]))
        np.testing.assert_allclose(row.offline, best.objective, rtol=1e-9)
    free = run(ONE, "study.sizes=[100]")
    assert (capped.tables["draws"].offline > free.tables["draws"].offline).all()
    assert any("cap" in caveat for caveat in capped.caveats)
    assert not any("cap" in caveat for caveat in free.caveats)


def test_no_policy_does_better_than_hindsight(result):
    assert (result.tables["draws"].ratio >= 1 - 1e-12).all()


def test_both_rules_are_the_same_for_sellers_from_zero_on(result):
    one, other = (
        result.tables["draws"][result.tables["draws"].policy == name].reset_index(drop=True)
        for name in ("expectation", "algorithm-3")
    )
    np.testing.assert_allclose(one[list(MEASURES[:3])], other[list(MEASURES[:3])], rtol=1e-9)
    assert one.ratio.nunique() == 6, "and draws do differ"


def test_regret_is_against_the_same_policy_that_knows(result):
    wide = result.tables["draws"].pivot(
        index=["size", "draw"], columns="policy", values=["loss", "regret"]
    )
    loss, regret = wide["loss"], wide["regret"]
    np.testing.assert_allclose(regret["learnt"], loss["learnt"] / loss["replanned"] - 1)
    np.testing.assert_allclose(regret["guess"], loss["guess"] / loss["expectation"] - 1)
    assert regret[["expectation", "algorithm-3", "replanned"]].isna().all(axis=None)


def test_policies_see_the_same_sellers_and_smaller_streams_are_beginnings(result):
    assert (result.tables["draws"].groupby(["size", "draw"]).offline.nunique() == 1).all()
    whole = run(ONE, "study.sizes=[200]")
    part = run(ONE, "study.sizes=[400]", "study.fractions=[0.5]")
    np.testing.assert_array_equal(whole.tables["draws"].offline, part.tables["draws"].offline)
    assert (whole.tables["draws"].loss != part.tables["draws"].loss).all(), (
        "the plan was for another number"
    )


def test_points_are_means_with_student_s_intervals(result):
    from scipy.stats import ttest_1samp

    for row in result.tables["points"].to_dict("records"):
        rows = result.tables["draws"][
            (result.tables["draws"].policy == row["policy"])
            & (result.tables["draws"]["size"] == row["size"])
        ]
        interval = ttest_1samp(rows.ratio, 0.0).confidence_interval(0.95)
        np.testing.assert_allclose(row["ratio"], rows.ratio.mean())
        np.testing.assert_allclose([row["ratio_low"], row["ratio_high"]], interval)
        np.testing.assert_allclose(row["offline"], rows.offline.mean())


def test_draws_without_a_purchase_are_counted_and_not_averaged(empty):
    nothing = empty.tables["draws"][np.isinf(empty.tables["draws"].loss)]
    assert 0 < len(nothing) < len(empty.tables["draws"])
    assert (nothing.n_bought == 0).all()
    assert (nothing.payments == 0).all()
    assert nothing.largest_weight.isna().all()
    counted = nothing.groupby(["fraction", "size"]).size()
    for row in empty.tables["points"].itertuples():
        assert row.empty == counted.get((row.fraction, row.size), 0)
        rows = empty.tables["draws"][
            (empty.tables["draws"].fraction == row.fraction)
            & (empty.tables["draws"]["size"] == row.size)
        ]
        bought = rows[np.isfinite(rows.loss)]
        if len(bought):
            np.testing.assert_allclose(row.loss, bought.loss.mean())
        assert row.ratio_median == rows.ratio.median()
        np.testing.assert_allclose(row.offline, rows.offline.mean())


def test_nothing_is_fitted_to_means_with_gaps(empty):
    full = empty.tables["points"][empty.tables["points"]["empty"] == 0].groupby("fraction").size()
    for row in empty.tables["fits"].itertuples():
        assert row.n_points <= full.get(row.fraction, 0)
    assert (empty.tables["fits"].n_points < 2).any()


def test_claims_say_how_many_draws_were_left_out(empty):
    (told,) = empty.claims
    assert "in the others nothing was bought somewhere" in told.found
    assert "ξ = 0.3:" in told.found
    assert "ξ = 1:" in told.found


def test_a_guess_with_cheaper_sellers_than_there_are_never_buys():
    found = run("prior.low=1.0", 'study.policies=["expectation", "guess"]')
    points = found.tables["points"].set_index(["policy", "size"])
    assert (points.loc["guess"]["empty"] == 3).all()
    assert points.loc["guess"].loss.isna().all()
    assert (points.loc["expectation"]["empty"] == 0).all()
    assert np.isinf(found.tables["draws"][found.tables["draws"].policy == "guess"].regret).all()


def test_the_loss_has_a_floor_where_privacy_is_never_free(result):
    assert result.numbers["floor"] == 0
    assert "loss above the floor" not in set(result.tables["fits"]["of"])
    found = run("prior.low=1.0", ONE, "study.sizes=[100, 1000, 10000]")
    assert found.numbers["floor"] == pytest.approx(2 * np.sqrt(2.0 * 0.5 * 1.0))  # virtual cost 1
    assert (found.tables["draws"].offline > found.numbers["floor"]).all()
    above = found.tables["fits"][found.tables["fits"]["of"] == "loss above the floor"].iloc[0]
    means = found.tables["points"].loss - found.numbers["floor"]
    slope = np.polyfit(np.log(found.tables["points"]["size"]), np.log(means), 1)[0]
    assert above.slope == pytest.approx(slope)
    assert above.n_points == 3


@pytest.mark.campaign
def test_the_measured_ratios_of_the_design():
    check_measured_ratios(MEASURED_RATIOS[:2], draws=20)


@pytest.mark.campaign
def test_fewer_sellers_lose_what_the_limit_says():
    found = run(
        'study.policies=["algorithm-3"]',
        "study.sizes=[300000]",
        "study.fractions=[0.25, 0.5, 1.0]",
        "study.draws=12",
    )
    np.testing.assert_allclose(
        found.tables["points"].ratio, found.tables["points"].ratio_limit, rtol=0.05
    )
    assert found.tables["points"].ratio.iloc[0] > 1.3, "and it is not 1"
    assert run("prior.low=1.0", ONE).tables["points"].ratio_limit.isna().all()


@given(st.floats(0.01, 1.0))
def test_the_limit_of_the_ratio_is_at_least_one_and_below_the_worst(fraction):
    assert 1 - 1e-12 <= limit_of_ratio(fraction) <= 1 / fraction + 1e-12


@given(st.floats(-1.0, 1.0), st.floats(0.01, 100.0), st.lists(st.integers(1, 10**6), min_size=3))
def test_a_power_is_found(exponent, factor, drawn):
    sizes = np.unique(np.array(drawn, dtype=float))
    fit = power_fit(sizes, factor * sizes**exponent)
    if sizes.size < 2:
        assert np.isnan(fit.slope)
        return
    assert fit.slope == pytest.approx(exponent, abs=1e-6)
    assert fit.last == pytest.approx(exponent, abs=1e-6)
    assert fit.low <= fit.slope <= fit.high


def test_a_power_has_an_interval_from_three_sizes_on():
    two = power_fit([10, 100], [1.0, 0.5])
    assert (two.low, two.high) == (-np.inf, np.inf)
    three = power_fit([10, 100, 1000], [1.0, 0.5, 0.3])
    assert np.isfinite([three.low, three.high]).all()
    gaps = power_fit([10, 100, 1000, 10000], [1.0, np.nan, 0.5, -1.0])
    assert gaps.n_points == 2


SIZES = "study.sizes=[1000, 10000, 100000, 1000000]"


def test_claims_are_tested():
    falls = run(ONE, SIZES, claim()).claims[0]
    assert falls.verdict == "reproduced"
    rises = run(ONE, SIZES, claim(shape="'rises'")).claims[0]
    assert rises.verdict == "not reproduced"
    assert (falls.source, falls.says) == ("A", "b")


@pytest.mark.campaign
def test_the_ratio_approaches_1_or_does_not():
    near = run(ONE, SIZES, claim(measure="'ratio'", shape="'approaches 1'"))
    assert near.claims[0].verdict == "reproduced"
    kept = 'study.policies=["expectation", "guess"]'
    far = claim(measure="'ratio'", shape="'approaches 1'", policy="'guess'")
    assert run(kept, SIZES, far).claims[0].verdict != "reproduced"


@pytest.mark.parametrize(
    ("exponent", "verdict"), [("-0.1", "reproduced"), ("-0.6", "not reproduced")]
)
def test_the_rate_of_the_loss_is_tested(exponent, verdict):
    told = run(ONE, SIZES, claim(shape="'falls as a power'", exponent=exponent)).claims[0]
    assert told.verdict == verdict
    assert told.found.startswith("exponent -0.2")


@pytest.mark.campaign
def test_a_rate_that_the_interval_only_contains_counts_in_part():
    fits = run(ONE, SIZES).tables["fits"]
    slope = float(fits[fits["of"] == "loss"].slope.iloc[0])
    power = claim(shape="'falls as a power'", exponent=f"{slope:.4f}")
    assert run(ONE, SIZES, power).claims[0].verdict == "reproduced in part"


def test_a_rate_needs_three_sizes():
    told = run(ONE, claim(shape="'falls as a power'", exponent="-0.1")).claims[0]
    assert told.verdict == "not reproduced"
    assert told.found == "2 sizes are too few to fit a power to"


def test_claims_over_fractions():
    over = claim(measure="'ratio'", over="'fractions'")
    told = run(ONE, "study.fractions=[0.3, 1.0]", "study.draws=10", over).claims[0]
    assert told.verdict == "reproduced"
    assert "m = 200:" in told.found
    assert "m = 1,000:" in told.found


@pytest.mark.campaign
def test_the_result_does_not_depend_on_the_number_of_jobs(two_jobs):
    check_jobs(two_jobs, 'study.policies=["expectation", "replanned"]', "study.sizes=[50]")


class Forked(MultiprocessingBackend):
    """Processes that need not load the package, as those of the campaign have to."""

    supports_return_generator = True


@needs_fork
def test_two_processes_find_what_one_finds():
    with parallel_config(backend=Forked()):
        check_jobs("run.jobs=2", ONE, "study.sizes=[20]", "study.draws=2")


def check_jobs(two_jobs, *overrides):
    once, twice = run(*overrides), run(*overrides, two_jobs)
    pd.testing.assert_frame_equal(
        once.tables["draws"].drop(columns="seconds"), twice.tables["draws"].drop(columns="seconds")
    )


def test_another_seed_gives_other_draws():
    one, other = run(ONE), run(ONE, "run.seed=6")
    assert (one.tables["draws"].offline != other.tables["draws"].offline).all()
