"""Results become JSON and come back exactly; what is not a result is refused in words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from convexmarket.errors import DataError, ParameterError
from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.records import (
    frame_from_json,
    frame_to_json,
    result_from_json,
    result_to_json,
)

TEXT = """
kind = "variants"
title = "Norms"
[sellers]
count = 4
[prior]
family = "uniform"
low = 1.0
high = 5.0
[objective]
spread = { weight = 1.0, p = inf }
noise = { weight = 1.0 }
payments = { weight = 0.02 }
[[variants]]
name = "as it is"
[[variants]]
name = "p = inf again"
objective.spread.p = inf
"""


@dataclass(frozen=True)
class Part:
    name: str
    verdict: Literal["yes", "no"]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Small:
    problem: VariantsProblem
    frame: pd.DataFrame
    parts: tuple[Part, ...]
    entries: list[dict[str, Any]]
    level: float
    best: float | None
    on: bool
    number: int
    caveats: tuple[str, ...]
    timings: dict[str, float]
    provenance: dict[str, Any]


def small(**changes: Any) -> Small:
    problem = parse_problem(TEXT, ["run.seed=3"], path="here.toml")
    source = problem.source
    assert source is not None
    described = {
        "path": source.path,
        "sha256": source.sha256,
        "overrides": list(source.overrides),
        "text": source.text,
    }
    result = Small(
        problem=problem,
        frame=pd.DataFrame({"a": [1.5, math.nan]}),
        parts=(Part("first", "yes", np.array([0.1, math.inf])),),
        entries=[{"gap": np.float64(math.nan), "solved": np.bool_(True), "steps": np.int64(3)}],
        level=-math.inf,
        best=None,
        on=False,
        number=7,
        caveats=("NaN", "Infinity", ""),
        timings={"total": 0.1 + 0.2},
        provenance={"problem_file": described},
    )
    return replace(result, **changes)


def through_text(written: Any) -> Any:
    return json.loads(json.dumps(written, allow_nan=False))


def back(result: Small) -> Small:
    return result_from_json(Small, through_text(result_to_json(result)))


# -------------------------------------------------------------------------------------- frames

FLOATS = st.floats(width=64)
WORDS = st.text() | st.sampled_from(["NA", "", "nan", "null", "True", "1", "Infinity", 'é\n\r,"'])
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)
COLUMNS = {
    "float64": FLOATS,
    "int64": st.integers(-(2**63), 2**63 - 1),
    "bool": st.booleans(),
    "str": st.none() | WORDS,
    "object": PLAIN,
}


@st.composite
def frames(draw: Callable[..., Any]) -> pd.DataFrame:
    size = draw(st.integers(0, 5))
    names = draw(st.lists(WORDS, unique=True, max_size=4))
    columns = {}
    for name in names:
        dtype, cells = draw(st.sampled_from(sorted(COLUMNS.items(), key=lambda item: item[0])))
        column = pd.Series(index=range(size), dtype="object")
        column[:] = [draw(cells) for _ in range(size)]
        columns[name] = column if dtype == "object" else column.astype(dtype)
    return pd.DataFrame(columns)


def bits(value: Any) -> Any:
    """Tell apart what compares equal: types, the sign of zero; and make NaN equal itself."""
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, list):
        return [bits(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return "not a number"
    return type(value).__name__, repr(value)


@given(frames())
def test_a_frame_comes_back_to_the_last_bit(frame):
    found = frame_from_json("f", through_text(frame_to_json("f", frame)))
    assert list(found.columns) == list(frame.columns)
    assert list(found.dtypes) == list(frame.dtypes)
    assert len(found) == (len(frame) if len(frame.columns) else 0)
    for name in frame:
        assert bits(found[name].tolist()) == bits(frame[name].tolist())


def test_what_is_written_is_what_was_promised():
    frame = pd.DataFrame({"x": [0.1, math.nan, math.inf, -math.inf], "who": ["a", None, "", "NA"]})
    assert frame_to_json("f", frame) == {
        "columns": ["x", "who"],
        "dtypes": ["float64", "str"],
        "data": [[0.1, "a"], [None, None], ["Infinity", ""], ["-Infinity", "NA"]],
    }


def test_the_order_of_rows_is_kept_and_the_index_is_not():
    frame = pd.DataFrame({"n": [3, 1, 2]}, index=[7, 5, 6])
    found = frame_from_json("f", frame_to_json("f", frame))
    pd.testing.assert_frame_equal(found, pd.DataFrame({"n": [3, 1, 2]}))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}),
        pd.DataFrame({1: [2.0]}),
        pd.DataFrame({"x": [object()]}),
    ],
    ids=["dtype", "column", "cell"],
)
def test_a_frame_that_would_not_come_back_is_not_written(frame):
    with pytest.raises(ParameterError, match=r"^f"):
        frame_to_json("f", frame)


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": ["x"], "dtypes": ["float64"], "data": [[1.0, 2.0]]},
        {"columns": ["x"], "dtypes": ["float64"], "data": [["high"]]},
        {"columns": ["x"], "dtypes": ["float64"], "data": [[True]]},
        {"columns": ["x"], "dtypes": ["int64"], "data": [[1.5]]},
        {"columns": ["x"], "dtypes": ["int64"], "data": [[2**63]]},
        {"columns": ["x"], "dtypes": ["bool"], "data": [[1]]},
        {"columns": ["x"], "dtypes": ["str"], "data": [[1]]},
        {"columns": ["x"], "dtypes": ["datetime64[ns]"], "data": [[1]]},
        {"columns": ["x", "x"], "dtypes": ["str", "str"], "data": []},
        {"columns": ["x"], "dtypes": [], "data": []},
        {"columns": ["x"], "dtypes": ["str"]},
        {},
    ],
    ids=str,
)
def test_a_damaged_frame_is_an_error_that_names_it(wrong):
    with pytest.raises(DataError, match=r"^curve"):
        frame_from_json("curve", wrong)


# ------------------------------------------------------------------------------------- results


def test_every_field_comes_back_as_its_hint_says():
    result = small()
    found = back(result)
    assert found.problem == result.problem
    assert found.problem.source == result.problem.source
    assert found.problem.objective["spread"].p == math.inf
    assert found.problem.variants[1].objective == {"spread": {"p": math.inf}}
    pd.testing.assert_frame_equal(found.frame, result.frame)
    (part,) = found.parts
    assert isinstance(part, Part)
    np.testing.assert_array_equal(part.values, [0.1, math.inf])
    (entry,) = found.entries
    assert math.isnan(entry.pop("gap"))
    assert entry == {"solved": True, "steps": 3}
    assert (found.level, found.best, found.on, found.number) == (-math.inf, None, False, 7)
    assert found.caveats == ("NaN", "Infinity", "")
    assert found.timings == {"total": 0.30000000000000004}
    assert back(small(best=math.nan)).best != back(small(best=math.nan)).best


@given(PLAIN)
def test_free_values_come_back_exactly(value):
    assert bits(back(small(entries=[{"value": value}])).entries[0]["value"]) == bits(value)


def test_a_problem_without_a_file_has_none_when_it_comes_back():
    problem = VariantsProblem.model_validate(parse_problem(TEXT).model_dump())
    found = back(small(problem=problem, provenance={"problem_file": None}))
    assert found.problem == problem
    assert found.problem.source is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"entries": [{1.0: "x"}]}, r"entries\[0\] has keys that are not text"),
        ({"entries": [{"of": {1, 2}}]}, r"entries\[0\]\.of is a set"),
    ],
)
def test_what_would_not_come_back_is_not_written(changes, message):
    with pytest.raises(ParameterError, match=message):
        result_to_json(small(**changes))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("number", 1.5, "number is 1.5, which is no int"),
        ("number", True, "number is True, which is no int"),
        ("on", 1, "on is 1, which is no bool"),
        ("level", "high", "level is 'high', which is no float"),
        ("caveats", "one", "caveats is 'one', which is no list"),
        ("caveats", [1], r"caveats\[0\] is 1, which is no str"),
        ("timings", {"total": None}, "timings.total is None, which is no float"),
        ("frame", [], r"frame is \[\], which is no dict"),
        ("parts", [{"name": "x"}], r"'parts\[0\].values', 'parts\[0\].verdict': missing"),
        ("problem", {"kind": "variants"}, "problem.title: Field required"),
        ("provenance", {"problem_file": {"text": "x"}}, "the text is not the one"),
        ("unheard_of", 1, "'unheard_of': unknown"),
    ],
)
def test_what_does_not_fit_its_hint_is_an_error_that_names_it(key, value, message):
    written = through_text(result_to_json(small()))
    with pytest.raises(DataError, match=message):
        result_from_json(Small, written | {key: value})


def test_a_verdict_is_one_of_those_that_exist():
    written = through_text(result_to_json(small()))
    written["parts"][0]["verdict"] = "maybe"
    with pytest.raises(DataError, match="is 'maybe', which is none of 'yes', 'no'"):
        result_from_json(Small, written)


def test_a_field_that_is_gone_is_named():
    written = through_text(result_to_json(small()))
    del written["level"]
    with pytest.raises(DataError, match="'level': missing"):
        result_from_json(Small, written)


def test_a_text_that_is_not_the_one_that_was_run_is_refused():
    written = through_text(result_to_json(small()))
    written["provenance"]["problem_file"]["text"] += "# more\n"
    with pytest.raises(DataError, match="sha256"):
        result_from_json(Small, written)


def test_a_problem_of_another_kind_is_refused():
    written = through_text(result_to_json(small()))
    with pytest.raises(DataError, match=r"problem\.kind"):
        result_from_json(Small, written | {"problem": written["problem"] | {"kind": "tradeoff"}})
