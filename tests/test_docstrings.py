"""Docstrings of public names describe parameters, results and errors, and contain an example."""

import ast
import importlib
import inspect
import re
import textwrap

import pytest

import convexmarket as cm
from convexmarket import errors

MODULES = (
    *("terms", "priors", "allocation", "incentives", "privacy", "learners", "joint", "online"),
    *("release", "attacks", "ledger", "data"),
)
#: Classes whose public methods are called by users.
CALLED = (
    *(
        cm.Market,
        cm.Sellers,
        cm.Prior,
        cm.Report,
        cm.KernelERM,
        cm.OnlineMarket,
        cm.PersonalizedRidge,
    ),
    *(cm.Ledger, cm.JointMarket, cm.PrivateLogisticRegression, cm.learners.PrivateSearch),
)
#: Methods of these classes that are called only by the package.
INTERNAL = {"contains", "check_labels", "check_reports", "by_prior", "in_parts", "with_ids"}


def public():
    """Return all public functions and classes."""
    packages = [cm, *(importlib.import_module(f"convexmarket.{name}") for name in MODULES)]
    every = (getattr(package, name) for package in packages for name in package.__all__)
    result = {id(item): item for item in every}
    return [item for item in result.values() if inspect.isfunction(item) or inspect.isclass(item)]


def sections(document):
    """Return the titles of a docstring's sections."""
    return set(re.findall(r"^([A-Z]\w+)\n-+$", inspect.cleandoc(document), re.MULTILINE))


FUNCTIONS = [item for item in public() if inspect.isfunction(item)]
CLASSES = [item for item in public() if inspect.isclass(item)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda item: item.__name__)
def test_a_function_documents_parameters_results_and_an_example(function):
    signature, required = inspect.signature(function), {"Examples"}
    if signature.parameters:
        required.add("Parameters")
    if signature.return_annotation not in ("None", None):
        required.add("Returns")
    result = sections(function.__doc__)
    assert required <= result | ({"Returns"} if "Yields" in result else set())


@pytest.mark.parametrize("kind", CLASSES, ids=lambda item: item.__name__)
def test_a_class_has_a_docstring_with_an_example(kind):
    assert kind.__doc__
    if not getattr(kind, "_is_protocol", False) and not issubclass(kind, Exception):
        assert "Examples" in sections(kind.__doc__)


@pytest.mark.parametrize("kind", CALLED, ids=lambda item: item.__name__)
def test_a_method_documents_its_parameters(kind):
    for name, method in vars(kind).items():
        method = getattr(method, "__func__", method)
        public = inspect.isfunction(method) and not name.startswith("_") and name not in INTERNAL
        if public and len(inspect.signature(method).parameters) > 1:
            assert "Parameters" in sections(method.__doc__), name


def errors_raised(function):
    """Return the error classes of the package that a function raises."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc]
    names = {ast.unparse(item.func) for item in calls if isinstance(item, ast.Call)}
    return names & set(errors.__all__)


def documented():
    """Return all public functions, constructors and methods with their docstrings."""
    result = [(item, item.__doc__) for item in FUNCTIONS]
    for kind in CLASSES:
        for name, method in vars(kind).items():
            method = getattr(method, "__func__", method)
            if inspect.isfunction(method) and method.__code__.co_filename == inspect.getfile(kind):
                if name == "__init__":
                    result.append((method, kind.__doc__))
                elif not name.startswith("_"):
                    result.append((method, method.__doc__))
    return result


def test_every_error_in_a_public_body_is_in_its_raises_section():
    missing = []
    for function, document in documented():
        _, _, message = inspect.cleandoc(document or "").partition("\nRaises\n------\n")
        message = re.split(r"^\w+\n-+$", message, maxsplit=1, flags=re.MULTILINE)[0]
        headings = re.findall(r"^(\w+(?:, \w+)*)$", message, re.MULTILINE)
        names = errors_raised(function) - {name for item in headings for name in item.split(", ")}
        missing += [f"{function.__module__}.{function.__qualname__}: {name}" for name in names]
    assert not missing
