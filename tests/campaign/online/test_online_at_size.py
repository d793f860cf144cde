"""Plans and quotes of all priors with and without caps, and ratios over many draws."""

import numpy as np
import pytest

import convexmarket as cm
from tests.online.builders import (
    CONTINUOUS,
    PRIORS,
    PUBLISHED,
    check_a_prior_can_be_learnt,
    check_expected_payments,
    check_payments,
    check_replanning_helps,
    check_the_bound_is_true_or_refused,
    check_the_plan_is_the_optimum,
    check_the_published_ratio,
    check_the_ratio_for_a_hundred_thousand,
    check_truth,
    check_units_do_not_matter,
    policy_of,
    some_reports,
)
from tests.online.test_adaptive import (
    LOOKING_BACK,
    check_quotes_depend_on_the_past,
    check_the_rest,
    rests,
)
from tests.online.test_plan import check_no_purchase_beats_the_lower_bound, check_roots_of_a_density
from tests.online.test_quotes import check_json, check_one_report_as_many


@pytest.mark.parametrize(("m", "cap"), [(50, None), (1000, 3.0), (300, 1.05)])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_every_plan_is_the_optimum_over_its_prior(name, m, cap):
    check_the_plan_is_the_optimum(name, m, cap, 200_000)


def test_the_roots_of_a_density_on_fine_quantiles():
    check_roots_of_a_density(200_000)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", CONTINUOUS)
def test_no_purchase_under_a_cap_beats_the_lower_bound(name, seed):
    rng = np.random.default_rng(seed)
    cap, m, weights = rng.uniform(1.01, 20), int(10 ** rng.uniform(0, 8)), rng.uniform(-3, 3, 3)
    check_no_purchase_beats_the_lower_bound(name, cap, m, weights)


@pytest.mark.parametrize(("m", "cap"), [(20, None), (10**4, None), (300, 2.0)])
@pytest.mark.parametrize("name", PRIORS)
def test_every_policy_pays_for_truth_and_survives_json(name, m, cap):
    policy = policy_of(name, m, cap)
    check_payments(policy, 12)
    check_truth(policy, 300)
    check_expected_payments(policy, 400_000)
    check_json(policy)
    for report in some_reports(policy, 50).tolist():
        check_one_report_as_many(policy, report)


@pytest.mark.parametrize(("prior", "m", "published"), PUBLISHED, ids=str)
def test_published_ratios_over_many_draws(prior, m, published):
    check_the_published_ratio(prior, m, published, 300 if m <= 10**4 else 60)


def test_the_ratio_for_a_hundred_thousand_over_twenty_draws():
    check_the_ratio_for_a_hundred_thousand(20)


@rests
def test_the_rest_is_planned_as_brute_force_does_from_four_places(
    costs, remaining, sold, weights, cap
):
    check_the_rest(costs, remaining, sold, weights, cap, 4)


@pytest.mark.parametrize("options", LOOKING_BACK)
def test_quotes_of_four_hundred_depend_on_the_past_only(options):
    check_quotes_depend_on_the_past(options, 400)


def test_replanning_helps_a_thousand():
    check_replanning_helps(1000, 20)


def test_a_prior_can_be_learnt_from_ten_thousand():
    check_a_prior_can_be_learnt(10_000, 6)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_do_not_matter_where_moments_are_integrals(scale):
    check_units_do_not_matter("beta", 3.0, scale)


def test_a_bound_under_a_tight_cap_on_a_long_tail():
    check_the_bound_is_true_or_refused(cm.priors.LogNormal(0, 1), 185934, 1.6319e-3, 1.0, 1.0, 1.01)
