"""The journal: nothing that was added is lost, nothing half-written is read."""

import json

import pytest

from convexmarket.errors import ParameterError
from convexmarket.lab.study.journal import Journal, read_journal


def test_what_was_added_is_there_again(tmp_path):
    path = tmp_path / "new" / "runs.jsonl"
    with Journal(path) as journal:
        journal.append({"key": "a", "session": 1, "value": float("inf")})
        journal.append({"key": "b", "session": 1, "text": "zwei\nZeilen"})
    with Journal(path) as journal:
        assert journal.records == [
            {"key": "a", "session": 1, "value": float("inf")},
            {"key": "b", "session": 1, "text": "zwei\nZeilen"},
        ]


@pytest.mark.parametrize("cut", range(1, 33))
def test_a_line_that_was_cut_is_no_run_and_the_next_stands_on_its_own(tmp_path, cut):
    path = tmp_path / "runs.jsonl"
    with Journal(path) as journal:
        journal.append({"key": "first", "session": 1})
        journal.append({"key": "second", "session": 1})
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with Journal(path) as journal:
        assert journal.records == [{"key": "first", "session": 1}]
        journal.append({"key": "third", "session": 2})
    with Journal(path) as journal:
        assert [record["key"] for record in journal.records] == ["first", "third"]
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_only_one_at_a_time(tmp_path):
    path = tmp_path / "runs.jsonl"
    with Journal(path), pytest.raises(ParameterError, match="another study"):
        Journal(path)
    Journal(path).close()


@pytest.mark.parametrize(
    "content",
    [
        "no JSON\n",
        "[1, 2]\n",
        '{"key": 1}\n',
        '{"key": 1, "session": 1}\nno JSON\n',
        "my only notes, without an end of the line",
        '{"key": 1, "session": 1}\nand notes',
    ],
)
def test_another_file_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "runs.jsonl"
    path.write_text(content)
    with pytest.raises(ParameterError, match="not the journal"):
        Journal(path)
    assert path.read_text() == content


def test_forgetting_is_on_disk(tmp_path):
    path = tmp_path / "runs.jsonl"
    with Journal(path) as journal:
        journal.append({"key": "a", "session": 1})
        journal.clear()
        journal.append({"key": "b", "session": 2})
    with Journal(path) as journal:
        assert [record["key"] for record in journal.records] == ["b"]


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_neither_written_nor_read(tmp_path, there):
    path, victim = tmp_path / "runs.jsonl", tmp_path / "diary"
    if there:
        victim.write_bytes(b"")
    path.symlink_to(victim)
    for open_ in (Journal, read_journal):
        with pytest.raises(ParameterError, match=r"runs\.jsonl is a symbolic link.*remove"):
            open_(path)
    assert victim.exists() == there
