"""Sizes in problem files are bounded, because the files can be untrusted."""

import pytest
from typer.testing import CliRunner

from convexmarket.cli import app, consoles
from convexmarket.errors import DataError, ProblemFileError
from convexmarket.studies.files import json_schema, parse_file
from convexmarket.studies.files.file_tables import RunTable
from convexmarket.studies.files.learning import ClassifierFile
from tests.studies.files.builders import TWO_SELLERS


def refusal(text, *settings):
    with pytest.raises(ProblemFileError) as caught:
        parse_file(text, settings)
    message = str(caught.value)
    assert len(message) < 10_000
    return message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = " + "[" * 10_000 + "]" * 10_000, "nested too deeply"),
        ("a = " + "{a = " * 5_000 + "1" + "}" * 5_000, "nested too deeply"),
        (".".join("a" * 1_500) + " = 1\nkind = 'market'", "nested too deeply"),
        ("a = " + "9" * 5_000, "not valid TOML"),
        ("a = -0x" + "f" * 20, "not valid TOML"),
    ],
)
def test_values_beyond_their_bounds_are_refused(text, message):
    assert message in refusal(text)


def test_the_number_of_jobs_is_limited_to_the_cores(monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    assert [RunTable(jobs=jobs).workers for jobs in (-1, 1, 2, 24, 1_024)] == [2, 1, 2, 2, 2]


def test_jobs_beyond_the_cores_are_reported(tmp_path, monkeypatch):
    def stop(problem, _load, **_options):
        raise DataError(f"with {problem.run.workers}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("joblib.cpu_count", lambda: 3)
    monkeypatch.setattr(ClassifierFile, "perform", stop)
    (tmp_path / "two.toml").write_text(TWO_SELLERS)
    written = CliRunner().invoke(app, ["run", "two.toml", "--jobs", "24"])
    assert "run.jobs is 24, limited to the 3 cores" in written.stderr
    assert "error: with 3" in written.stderr
    assert "run.jobs" not in CliRunner().invoke(app, ["run", "two.toml", "--jobs", "3"]).stderr


def test_a_lack_of_memory_is_not_reported_as_a_defect(capsys):
    def command():
        raise MemoryError("Unable to allocate 74.5 GiB")

    with pytest.raises(SystemExit) as end:
        consoles.run_to_the_end(command)
    assert end.value.code == consoles.WRONG
    written = capsys.readouterr().err
    assert written.startswith(
        "error: not enough memory (Unable to allocate 74.5 GiB); use fewer rows"
    )
    assert "defect" not in written


def unbounded(schema, path):
    """Yield the paths in a JSON schema at which sizes or numbers are unbounded."""
    if isinstance(schema, list):
        for part in schema:
            yield from unbounded(part, path)
    if not isinstance(schema, dict):
        return
    kinds = schema.get("type", [])
    bounds = {
        "integer": ("maximum", "exclusiveMaximum"),
        "array": ("maxItems",),
        "string": ("maxLength", "pattern"),
    }
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        known = {*bounds.get(kind, ()), "enum", "const"}
        if kind in bounds and not known & set(schema):
            yield f"{path}: {kind}"
    for key in ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf"):
        yield from unbounded(schema.get(key), path)
    for name, part in schema.get("properties", {}).items():
        yield from unbounded(part, f"{path}.{name}")


def test_every_value_of_the_schema_is_bounded():
    tables = json_schema()["$defs"]
    assert [place for name, table in tables.items() for place in unbounded(table, name)] == []
    free = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert list(unbounded(free, "t")) == ["t.n: integer"]
