"""Online policies on long streams of sellers."""

import pytest

from tests.lab.kinds.builders import MEASURED_RATIOS, check_measured_ratios, run_online
from tests.lab.kinds.test_online_study_run import POLICIES, check_jobs, check_measures


@pytest.fixture(scope="module")
def result():
    return run_online()


@pytest.mark.parametrize("name", POLICIES)
def test_measures_are_those_of_the_library_for_a_thousand_sellers(result, name):
    check_measures(result, name, 1000)


def test_all_policies_by_two_processes():
    check_jobs("run.jobs=2", "study.sizes=[200]")


def test_the_measured_ratios_of_the_design():
    positive, _ = check_measured_ratios(MEASURED_RATIOS, draws=60)
    assert positive.ratio_high.iloc[-1] < 1.005
