"""What the tests of problem files share."""

TWO_SELLERS = """
kind = "tradeoff"
title = "Two sellers"
[data]
source = "inline"
features = [[1.0], [-1.0]]
labels = [1, -1]
[prior]
family = "uniform"
low = 0
high = 1
[sellers]
sensitivities = [0.1, 0.6]
[objective]
gamma = [0.1]
mu = [1]
sigma = [1.0]
[learner]
regularization = [0.1]
[naive]
eta_range = [0.1, 10]
"""


def for_each(cases):
    """Run a test with every case, as one test; the case that fails is named.

    There are hundreds of refusals, each of which takes a millisecond.
    """

    def decorate(test):
        def with_every_case():
            for case in cases:
                try:
                    test(*case)
                except BaseException as error:
                    error.add_note(f"with {case!r}")
                    raise

        with_every_case.__name__ = test.__name__
        with_every_case.__doc__ = test.__doc__
        return with_every_case

    return decorate
