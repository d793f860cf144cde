"""Online policies on long streams of sellers."""

from tests.experiments.builders import MEASURED_RATIOS, check_measured_ratios


def test_the_measured_ratios_of_the_design():
    positive, _ = check_measured_ratios(MEASURED_RATIOS, draws=60)
    assert positive.ratio_high.iloc[-1] < 1.005
