"""Run the examples of docstrings with one or two arguments replaced by hostile values."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import doctest
import inspect
import io
import os
import tempfile
from collections.abc import Mapping
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
from hypothesis import strategies as st

import convexmarket as cm
from tests.campaign.fuzz.running import Target, require
from tests.campaign.fuzz.values import EXTREMES, NOT_POSITIVE, STRANGE

HOSTILE = [*STRANGE, *EXTREMES, *NOT_POSITIVE]
#: Attributes of results that can be NaN according to their documentation.
UNDEFINED = {"lower_bound", "z_score"}
#: Name of an example, index of the changed call, and index of each hostile value by position.
Case = tuple[str, int, dict[int, int]]


class Called(Exception):  # noqa: N818
    """Raised when the changed call has returned."""


def documented() -> dict[str, Any]:
    """Return a dictionary of the public classes, functions and methods."""
    objects = {name: getattr(cm, name) for name in cm.__all__}
    for name, item in list(objects.items()):
        if inspect.isclass(item):
            for method, function in inspect.getmembers(item, callable):
                if not method.startswith("_") and method in vars(item):
                    objects[f"{name}.{method}"] = function
    return objects


class Marked(ast.NodeTransformer):
    """Replace each call by a call of ``_call`` with the number and the arguments of the call."""

    count = 0

    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        number, self.count = ast.Constant(self.count), self.count + 1
        call = ast.Call(ast.Name("_call", ast.Load()), [number, node.func, *node.args])
        call.keywords = node.keywords
        return call


@cache
def examples() -> dict[str, tuple[Any, int, dict[str, Any]]]:
    """Return the compiled example, the number of calls and the globals for each public name."""
    answer = {}
    for name, item in documented().items():
        lines = doctest.DocTestParser().get_examples(inspect.getdoc(item) or "")
        run = [line.source for line in lines if not line.options.get(doctest.SKIP)]
        tree, marked = ast.parse("".join(run)), Marked()
        tree = ast.fix_missing_locations(marked.visit(tree))
        if marked.count:
            names = vars(inspect.getmodule(item) or cm)
            answer[name] = compile(tree, name, "exec"), marked.count, names
    return answer


@st.composite
def calls(draw: Any) -> Case:
    """Draw an example, select one of its calls, and draw hostile arguments for the call."""
    name = draw(st.sampled_from(sorted(examples())))
    places = draw(st.lists(st.integers(0, 5), min_size=1, max_size=2, unique=True))
    values = {place: draw(st.integers(0, len(HOSTILE) - 1)) for place in places}
    return name, draw(st.integers(0, examples()[name][1] - 1)), values


def check_call(case: Case) -> str:
    """Run an example up to the changed call, and check that the result of the call has no NaN."""
    name, number, bad = case
    code, _, names = examples()[name]

    def call(place: int, function: Any, *values: Any, **named: Any) -> Any:
        owner = getattr(function, "__self__", None)
        module = str(getattr(function, "__module__", None) or type(owner).__module__)
        if place != number or not module.startswith("convexmarket"):
            return function(*values, **named)
        given = [HOSTILE[bad[k]] if k in bad else value for k, value in enumerate(values)]
        for k, key in enumerate(named, len(given)):
            named[key] = HOSTILE[bad[k]] if k in bad else named[key]
        result = function(*given, **named)
        if getattr(function, "__name__", "") not in ("cdf", "pdf") and not hasattr(result, "fit"):
            require_defined(result, name)  # learners store their arguments, which can be NaN
        raise Called

    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        try:
            exec(code, {**names, "cm": cm, "np": np, "_call": call})
        except Called:
            pass
        finally:
            os.chdir(before)
    return "accepted"


def require_defined(value: Any, what: str, depth: int = 0) -> None:
    """Check that a result contains NaN only in attributes whose documentation allows NaN."""
    if depth > 4 or isinstance(value, cp.Expression | cp.Problem | cp.Constraint | str | bytes):
        return
    if isinstance(value, float | np.floating):
        require(not np.isnan(value), "NaN in", what)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            require(not np.isnan(value).any(), "NaN in", what)
    elif isinstance(value, pd.DataFrame):
        numbers = value.select_dtypes("number")
        require(not numbers.isna().to_numpy().any(), "NaN in", what)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            require_defined(item, f"{what}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            require_defined(item, what, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            if field.name not in UNDEFINED:
                require_defined(getattr(value, field.name), f"{what}.{field.name}", depth + 1)


TARGETS = [Target("documented calls", calls(), check_call, 20.0, weight=5)]
