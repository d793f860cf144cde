"""What every public name says of itself: parameters, results, errors, an example that runs."""

import importlib
import inspect
import re
import typing

import pytest

import convexmarket as cm
from convexmarket.learners import Loss
from convexmarket.terms import Piece, PrivacyCost

MODULES = (
    *("terms", "priors", "allocation", "incentives", "privacy", "learners", "joint", "online"),
    *("release", "attacks", "ledger", "data"),
)
#: What a user builds: each of these shows how. Other classes are what functions return.
BUILT = (Piece, PrivacyCost, cm.Prior, Loss)


def public():
    """Return every public function and class, by its name."""
    rooms = [cm, *(importlib.import_module(f"convexmarket.{name}") for name in MODULES)]
    found = {id(each): each for room in rooms for each in map(room.__dict__.get, room.__all__)}
    return [each for each in found.values() if inspect.isfunction(each) or inspect.isclass(each)]


def sections(document):
    """Return the titles of a docstring's sections."""
    return set(re.findall(r"^([A-Z]\w+)\n-+$", inspect.cleandoc(document), re.MULTILINE))


FUNCTIONS = [each for each in public() if inspect.isfunction(each)]
CLASSES = [each for each in public() if inspect.isclass(each)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_a_function_says_what_it_takes_and_returns_and_shows_it(function):
    signature, wanted = inspect.signature(function), {"Examples"}
    if signature.parameters:
        wanted.add("Parameters")
    if signature.return_annotation not in ("None", None):
        wanted.add("Returns")
    found = sections(function.__doc__)
    assert wanted <= found | ({"Returns"} if "Yields" in found else set())


@pytest.mark.parametrize("kind", CLASSES, ids=lambda each: each.__name__)
def test_a_class_says_what_it_is_and_how_it_is_built(kind):
    assert kind.__doc__
    bases = (*BUILT, typing.Protocol)
    if issubclass(kind, BUILT) and kind not in bases and not inspect.isabstract(kind):
        assert "Examples" in sections(kind.__doc__)
