"""The fixture for attacks reports successful attacks."""

import pytest

from convexmarket.errors import DataError


def refuses():
    raise DataError("it is damaged")


@pytest.mark.parametrize(
    ("attempt", "found"),
    [(lambda: 1 / 0, "ZeroDivisionError"), (lambda: "half a file", "half a file")],
)
def test_successful_attacks_are_reported(attempt, found, attack, request):
    tries = [("the first", lambda: None), ("the second", refuses), ("the third", attempt)]
    with pytest.raises(AssertionError, match=f"(?s)1 of 3.*the third: {found}"):
        attack("a demonstration that succeeds once", tries)
    request.node.user_properties.clear()  # omit the demonstration from the table
