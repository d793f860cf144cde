"""What the tests of problem files share."""


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
