"""The tests; shared code is in ``builders.py``, here and in the folders of the packages."""

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
    """Return the syntax tree of a module, which several tests look at."""
    return ast.parse(source)


def one_in(every: int, cases: Iterable[Any]) -> list[Any]:
    """Return cases, of which only the first of every ``every`` runs in the default group.

    The others run in the campaign.
    """
    given = [case if isinstance(case, type(pytest.param())) else _param(case) for case in cases]
    return [_waiting(case) if i % every else case for i, case in enumerate(given)]


def _waiting(case: Any) -> Any:
    return pytest.param(*case.values, id=case.id, marks=[*case.marks, pytest.mark.campaign])


def _param(case: Any) -> Any:
    return pytest.param(*case) if isinstance(case, tuple) else pytest.param(case)
