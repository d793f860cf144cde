"""Results become JSON and come back exactly; what is not a result is refused in words."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.errors import DataError, ParameterError
from convexmarket.lab.claims import Claim
from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result, read_frame, result_from_json, result_to_json

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


def small(**changes: Any) -> Result[VariantsProblem]:
    problem = parse_problem(TEXT, ["run.seed=3"], path="here.toml")
    result: Result[VariantsProblem] = Result(
        problem,
        tables={"frame": pd.DataFrame({"a": [1.5, math.nan]})},
        numbers={"level": -math.inf, "best": None, "on": False},
        claims=(Claim("A", "it falls", "reproduced", "it does"),),
        certificates=[{"gap": np.float64(math.nan), "solved": np.bool_(True), "n": np.int64(3)}],
        caveats=("NaN", "Infinity", ""),
        timings={"total": 0.1 + 0.2},
        provenance=provenance_of(problem),
    )
    return replace(result, **changes)


def through_text(written: Any) -> Any:
    return json.loads(json.dumps(written, allow_nan=False))


def back(result: Result[Any]) -> Result[Any]:
    return result_from_json(VariantsProblem, through_text(result_to_json(result)))


def frame_to_json(frame: pd.DataFrame) -> Any:
    return result_to_json(small(tables={"curve": frame}))["tables"]["curve"]


def frame_from_json(written: Any) -> pd.DataFrame:
    return read_frame("curve", through_text(written), None)


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
    found = frame_from_json(frame_to_json(frame))
    assert list(found.columns) == list(frame.columns)
    assert list(found.dtypes) == list(frame.dtypes)
    assert len(found) == (len(frame) if len(frame.columns) else 0)
    for name in frame:
        assert bits(found[name].tolist()) == bits(frame[name].tolist())


def test_what_is_written_is_what_was_promised():
    frame = pd.DataFrame({"x": [0.1, math.nan, math.inf, -math.inf], "who": ["a", None, "", "NA"]})
    assert frame_to_json(frame) == {
        "columns": ["x", "who"],
        "dtypes": ["float64", "str"],
        "data": [[0.1, "a"], [None, None], ["Infinity", ""], ["-Infinity", "NA"]],
    }


def test_the_order_of_rows_is_kept_and_the_index_is_not():
    frame = pd.DataFrame({"n": [3, 1, 2]}, index=[7, 5, 6])
    found = frame_from_json(frame_to_json(frame))
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
    with pytest.raises(ParameterError, match=r"^curve"):
        frame_to_json(frame)


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
        frame_from_json(wrong)


# ------------------------------------------------------------------------------------- results


def test_every_field_comes_back():
    result = small()
    found = back(result)
    assert found.problem == result.problem
    assert found.problem.source == result.problem.source
    assert found.problem.objective["spread"].p == math.inf
    assert found.problem.variants[1].objective == {"spread": {"p": math.inf}}
    pd.testing.assert_frame_equal(found.tables["frame"], result.tables["frame"])
    assert math.isnan(found.certificates[0].pop("gap"))
    assert found.certificates == [{"solved": True, "n": 3}]
    for name in ("numbers", "claims", "caveats", "timings"):
        assert getattr(found, name) == getattr(result, name)


@given(PLAIN)
def test_free_values_come_back_exactly(value):
    assert bits(back(small(numbers={"value": value})).numbers["value"]) == bits(value)


def test_a_problem_without_a_file_has_none_when_it_comes_back():
    problem = VariantsProblem.model_validate(parse_problem(TEXT).model_dump())
    found = back(small(problem=problem, provenance={"problem_file": None}))
    assert found.problem == problem
    assert found.problem.source is None


@pytest.mark.parametrize(
    ("value", "message"),
    [({1.0: "x"}, r"numbers\.of has keys that are not text"), ({1, 2}, r"numbers\.of is a set")],
)
def test_what_would_not_come_back_is_not_written(value, message):
    with pytest.raises(ParameterError, match=message):
        result_to_json(small(numbers={"of": value}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("caveats", "one", "caveats: Input should be a valid array"),
        ("caveats", [1], r"caveats.0: Input should be a valid string"),
        ("timings", {"total": None}, "timings.total: Input should be a valid number"),
        ("tables", {"frame": []}, r"frame"),
        ("claims", [{"source": "A"}], r"claims.0.says: Field required"),
        ("problem", {"kind": "variants"}, "problem.title: Field required"),
        ("problem", {"kind": "tradeoff"}, "problem.kind: Input should be 'variants'"),
        ("provenance", {"problem_file": {"text": "x"}}, "the text is not the one"),
        ("unheard_of", 1, "unheard_of: Unexpected keyword argument"),
    ],
)
def test_what_does_not_fit_is_an_error_that_names_it(key, value, message):
    written = through_text(result_to_json(small()))
    with pytest.raises(DataError, match=message):
        result_from_json(VariantsProblem, written | {key: value})


def test_a_text_that_is_not_the_one_that_was_run_is_refused():
    written = through_text(result_to_json(small()))
    written["provenance"]["problem_file"]["text"] += "# more\n"
    with pytest.raises(DataError, match="sha256"):
        result_from_json(VariantsProblem, written)


def test_many_certificates_stand_beside_and_come_back_exactly(tmp_path):
    (tmp_path / "tables").mkdir()
    one = {"gap": math.nan, "bound": -math.inf, "binding": ["cap"], "n": 3, "status": 'é, "x"'}
    many = [one | {"eta": i / 7} if i % 2 else {"eta": None, "n": i} for i in range(400)]
    result = replace(small(), certificates=many)
    written = json.loads(json.dumps(result_to_json(result, tmp_path)))
    assert written["certificates"]["parquet"] == "tables/certificates.parquet"
    back = result_from_json(VariantsProblem, written, tmp_path)
    read, meant = ([sorted(one.items()) for one in some] for some in (back.certificates, many))
    assert repr(read) == repr(meant)
    (tmp_path / "tables/certificates.parquet").write_bytes(b"other")
    with pytest.raises(DataError, match="changed after its checksum"):
        result_from_json(VariantsProblem, written, tmp_path)
