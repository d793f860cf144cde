"""A search for neighbours that break the sensitivity of kernel ERM."""

from tests.learners.builders import worst_share


def test_a_search_for_bad_neighbours_of_the_logistic_loss_stays_below():
    assert 0.55 < worst_share(maxiter=60) <= 1.0
