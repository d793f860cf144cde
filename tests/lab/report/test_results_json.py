"""results.json: what was written can be rendered again, byte for byte, and damage is told."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest

from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.lab import build_report, rewrite_report, write_report
from convexmarket.lab import result as result_module
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.report import render
from convexmarket.lab.report.results import (
    FORMAT,
    RESULTS,
    read_results,
    results_schema,
    write_results,
)
from convexmarket.lab.result import MOST_CELLS
from tests import one_in
from tests.lab.report.builders import GOLDEN, STORED, altered, save_a_frame, stored


@pytest.fixture(autouse=True)
def _no_drawings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "save_figure", save_a_frame)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return results_schema()


@pytest.fixture(scope="module")
def validator(schema) -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of results whose sellers are a table of their own."""
    result = stored("tradeoff")
    enough = -(-MOST_CELLS // result.tables["sellers"].size) + 1
    sellers = pd.concat([result.tables["sellers"]] * enough, ignore_index=True)
    return written(altered(result, sellers=sellers), tmp_path)


def written(result: Any, folder: Path) -> Path:
    """Write results without the rest of the report."""
    (folder / "tables").mkdir()
    write_results(result, folder)
    return folder


def content(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


def damage(folder: Path, **changes: Any) -> None:
    found = content(folder)
    for name, change in changes.items():
        (found["tables"] if name in found["tables"] else found)[name] = change
    text = json.dumps(found)
    (folder / "results.json").write_text(text, encoding="utf-8")


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# --------------------------------------------------------------------------- there and back


def test_every_kind_of_result_is_here() -> None:
    assert {stored(name).problem.kind for name in STORED} == set(KINDS)


@pytest.mark.parametrize("kind", one_in(3, STORED))
def test_a_report_is_rendered_again_byte_for_byte(kind: str, tmp_path: Path) -> None:
    first = write_report(stored(kind), tmp_path / "first").parent
    again = rewrite_report(first, tmp_path / "elsewhere" / "again").parent
    assert files(again) == files(first)


def test_a_report_is_rendered_again_in_its_own_place_with_what_is_attached(tmp_path: Path) -> None:
    attached = replace(build_report(stored("variants")), attachments={"runs.jsonl": b"{}\n"})
    folder = write_report(attached, tmp_path / "report").parent
    first = files(folder)
    rewrite_report(folder / "results.json")
    assert files(folder) == first
    assert first["runs.jsonl"] == b"{}\n"
    journal = folder / "runs.jsonl"
    journal.rename(tmp_path / "diary")
    journal.symlink_to(tmp_path / "diary")
    with pytest.raises(ParameterError, match=r"runs\.jsonl is a symbolic link"):
        rewrite_report(folder, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("kind", STORED)
def test_long_frames_come_back_exactly(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(result_module, "MOST_CELLS", 20)
    result = stored(kind)
    found = read_results(written(result, tmp_path))
    for name, frame in result.tables.items():
        pd.testing.assert_frame_equal(found.tables[name], frame, check_exact=True)


def test_a_long_frame_is_named_with_its_checksum(folder: Path) -> None:
    described = content(folder)["tables"]["sellers"]
    file = folder / "tables" / "sellers.parquet"
    assert described["parquet"] == "tables/sellers.parquet"
    assert described["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert "data" not in described
    assert "data" in content(folder)["tables"]["curve"]
    assert [path.name for path in (folder / "tables").iterdir()] == ["sellers.parquet"]


@pytest.mark.parametrize(
    "words",
    [["NA", "", "null"], ["NA", None, 'é,"'], ["=A1", "x;=A1", "'-a"], ["a\nb", "\ta ", "a\r\nb"]],
)
def test_words_come_back_as_they_were(folder, tmp_path, words) -> None:
    result = read_results(folder)
    ids = np.resize(np.array(words, dtype=object), len(result.tables["sellers"]))
    result = altered(
        result, sellers=result.tables["sellers"].assign(id=pd.Series(ids, dtype="str"))
    )
    (tmp_path / "more").mkdir()
    again = written(result, tmp_path / "more")
    assert "parquet" in content(again)["tables"]["sellers"]
    pd.testing.assert_frame_equal(read_results(again).tables["sellers"], result.tables["sellers"])


def test_a_frame_that_parquet_would_change_stands_in_the_file(folder, tmp_path) -> None:
    result = read_results(folder)
    mixed = pd.Series([1, "one", None] * len(result.tables["sellers"]), dtype=object)
    result = altered(
        result, sellers=result.tables["sellers"].assign(id=mixed[: len(result.tables["sellers"])])
    )
    (tmp_path / "more").mkdir()
    again = written(result, tmp_path / "more")
    assert "data" in content(again)["tables"]["sellers"]
    assert not list((again / "tables").iterdir())
    pd.testing.assert_frame_equal(read_results(again).tables["sellers"], result.tables["sellers"])


def test_a_row_stands_in_one_line(folder: Path) -> None:
    lines = (folder / "results.json").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith('    ["independent","mechanism",')]
    curve = read_results(folder).tables["curve"]
    shared = (curve.scenario == "independent") & (curve.model == "mechanism")
    assert len(rows) >= shared.sum() > 0
    assert lines[1] == f' "format": "{FORMAT}",'


def test_plain_values_are_written_as_they_are(tmp_path: Path) -> None:
    write_results({"kind": "diff", "x": [1.0, np.nan], "none": {}}, tmp_path)
    values = {"kind": "diff", "x": [1.0, None], "none": {}}
    assert content(tmp_path) == {"format": "convexmarket-values/1", **values}


# --------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ('{"x": NaN}', "NaN is not JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[]", "a JSON object was expected"),
        ("\udcff", "is not valid JSON"),
    ],
    ids=["cut", "constant", "deep", "list", "not UTF-8"],
)
def test_what_is_no_json_object_is_a_data_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(DataError, match=message):
        read_results(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "convexmarket-results/3"}, "is of the format 'convexmarket-results/3'"),
        ({"kind": "other"}, "is of kind 'other', and only the results of an experiment"),
        ({"kind": ["tradeoff"]}, "is of kind"),
    ],
)
def test_what_cannot_be_read_yet_is_not_supported(folder: Path, changes, message: str) -> None:
    damage(folder, **changes)
    with pytest.raises(NotSupportedError, match=message):
        read_results(folder)


def test_a_file_without_a_format_is_told_from_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"problem": {"kind": "tradeoff"}, "curve": []}')
    with pytest.raises(NotSupportedError, match=r"no key 'format'.*run the problem again"):
        read_results(tmp_path)


def test_a_damaged_field_is_named_with_the_file(folder: Path) -> None:
    damage(folder, timings={"total": "long"})
    with pytest.raises(DataError, match=r"results\.json: timings.total: .*or run"):
        read_results(folder)


@pytest.mark.parametrize(
    ("frame", "column"), [("curve", "error_std"), ("audits", "individually_rational")]
)
def test_a_renamed_column_is_damage(tmp_path: Path, frame: str, column: str) -> None:
    folder = written(stored("tradeoff"), tmp_path)
    found = content(folder)["tables"][frame]
    names = [name if name != column else f"{name} renamed" for name in found["columns"]]
    damage(folder, **{frame: found | {"columns": names}})
    with pytest.raises(DataError, match="results that this version cannot show"):
        rewrite_report(folder, tmp_path / "again")


def test_there_must_be_results(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give the folder of a report"):
        read_results(tmp_path)
    with pytest.raises(DataError, match="give the folder of a report"):
        read_results(tmp_path / "nowhere")


def test_a_table_that_was_changed_is_refused(folder: Path) -> None:
    table = folder / "tables" / "sellers.parquet"
    table.write_bytes(table.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"tables/sellers\.parquet was changed.*restore the files"):
        read_results(folder)
    table.unlink()
    with pytest.raises(DataError, match=r"sellers\.parquet: No such file"):
        read_results(folder)


def test_a_table_that_is_none_is_refused_whatever_its_checksum(folder: Path) -> None:
    """A checksum finds accidents; somebody may have written a new one."""
    table = folder / "tables" / "sellers.parquet"
    whole = table.read_bytes()
    for place in range(4, len(whole), len(whole) // 20):
        changed = bytearray(whole)
        changed[place] ^= 0xFF
        table.write_bytes(changed)
        digest = hashlib.sha256(changed).hexdigest()
        damage(folder, sellers=content(folder)["tables"]["sellers"] | {"sha256": digest})
        with suppress(DataError):  # and nothing else; some bytes are of no consequence
            read_results(folder)


@pytest.mark.parametrize(
    "place", ["../tables/x.parquet", "/etc/passwd", "tables/../../x.parquet", "tables/x.csv", 1]
)
def test_no_file_outside_the_tables_is_read(folder: Path, place: Any) -> None:
    damage(folder, sellers=content(folder)["tables"]["sellers"] | {"parquet": place})
    with pytest.raises(DataError, match="parquet"):
        read_results(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("columns", "id", "columns"),
        ("columns", ["id", "id"], "columns"),
        ("columns", "other", "other columns than sellers"),
        ("dtypes", "int64", "of other dtypes"),
    ],
)
def test_a_table_that_does_not_fit_its_dtypes_is_refused(folder, name, value, message) -> None:
    described = content(folder)["tables"]["sellers"]
    if value in ("other", "int64"):
        value = [f"{value}{k}" if value == "other" else value for k in range(len(described[name]))]
    if value == ["id", "id"]:  # once more than there are dtypes
        value = [*described["columns"], described["columns"][-1]]
    damage(folder, sellers=described | {name: value})
    with pytest.raises(DataError, match=message):
        read_results(folder)


def test_only_so_much_is_read(folder: Path, monkeypatch) -> None:
    monkeypatch.setattr(result_module, "LARGEST_FILE", 1_000)
    with pytest.raises(DataError, match="holds more than 1000 bytes"):
        read_results(folder)


# --------------------------------------------------------------------------------- the schema


@pytest.mark.parametrize("kind", STORED)
def test_real_results_follow_the_schema(validator, kind: str) -> None:
    validator.validate(content(GOLDEN / kind))


def test_wrong_results_do_not_follow_the_schema(validator) -> None:
    found = content(GOLDEN / "variants")
    for wrong in ({"caveats": 1}, {"kind": "diff"}, {"problem": {}}, {"more": 1}):
        assert not validator.is_valid(found | wrong)


def test_long_frames_follow_the_schema(folder: Path, validator) -> None:
    found = content(folder)
    validator.validate(found)
    found["tables"]["sellers"]["parquet"] = "../x.parquet"
    assert not validator.is_valid(found)


def test_a_comparison_of_two_runs_says_what_it_is(tmp_path):
    (tmp_path / RESULTS).write_text('{"format": "convexmarket-diff/1", "kind": "diff"}')
    with pytest.raises(NotSupportedError, match="run 'convexmarket diff'"):
        read_results(tmp_path)
