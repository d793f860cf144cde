"""Test the journal, which keeps complete records and ignores incomplete records."""

import json

import numpy as np
import pytest

from convexmarket.errors import ParameterError
from convexmarket.studies.execution import Journal


@pytest.mark.parametrize("cut", [1, 17, 38])
def test_an_incomplete_line_is_ignored_and_does_not_affect_the_next_line(tmp_path, cut):
    path = tmp_path / "runs.jsonl"
    with Journal(path) as journal:
        journal.append({"key": "first", "ended": "finished"})
        journal.append({"key": "second", "ended": "finished"})
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with Journal(path) as journal:
        assert journal.records == [{"key": "first", "ended": "finished"}]
        journal.append({"key": "third", "ended": "finished"})
    with Journal(path) as journal:
        assert [record["key"] for record in journal.records] == ["first", "third"]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_a_journal_is_locked_by_one_study(tmp_path):
    path = tmp_path / "runs.jsonl"
    with Journal(path), pytest.raises(ParameterError, match="another study"):
        Journal(path)
    with Journal(path):
        pass


@pytest.mark.parametrize(
    "content",
    [
        "no JSON\n",
        "[1, 2]\n",
        '{"key": 1}\n',
        '{"key": 1, "ended": "finished"}\nno JSON\n',
        "my only notes, without an end of the line",
        '{"key": 1, "ended": "finished"}\nand notes',
    ],
)
def test_a_file_of_another_format_is_kept(tmp_path, content):
    path = tmp_path / "runs.jsonl"
    path.write_text(content)
    with pytest.raises(ParameterError, match="not the journal"):
        Journal(path)
    assert path.read_text() == content


def test_numpy_values_are_written_as_plain_numbers(tmp_path):
    with Journal(tmp_path / "runs.jsonl") as journal:
        numbers = {"value": np.float64(0.1), "many": np.arange(2)}
        journal.append({"key": "a", "ended": "finished"} | numbers)
    with Journal(tmp_path / "runs.jsonl") as journal:
        assert journal.records == [{"key": "a", "ended": "finished", "value": 0.1, "many": [0, 1]}]
