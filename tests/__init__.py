"""The test suite. The file ``builders.py`` of a folder contains code that its tests share."""

import ast
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PROBLEMS = ROOT / "problems"


@functools.cache
def parsed(source: str) -> ast.Module:
    """Return the syntax tree of a module's source. The cache avoids parsing a source twice."""
    return ast.parse(source)


def one_in(every: int, cases: Iterable[Any]) -> list[Any]:
    """Mark cases for the campaign, except the first case of every group of ``every`` cases.

    The unmarked cases run by default.
    """
    marked = [case if isinstance(case, type(pytest.param())) else _param(case) for case in cases]
    return [_waiting(case) if i % every else case for i, case in enumerate(marked)]


def _waiting(case: Any) -> Any:
    return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.campaign])


def _param(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
