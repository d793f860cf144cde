"""Compare ironed virtual costs with a convex hull on a fine grid."""

from hypothesis import given

from tests.priors.test_priors import check_hull, histograms


@given(histograms)
def test_ironed_cost_integrates_to_the_convex_hull_on_a_fine_grid(prior):
    check_hull(prior, 20_000)
