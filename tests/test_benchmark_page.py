"""Check the form and the sections of docs/benchmarks.md."""

from pathlib import Path

from tests.benchmarks.__main__ import PAGE, page, table

NAME = "test_a_private_fit_of_a_million_rows_is_timed[None-1]"
RUN = {
    "fullname": f"tests/benchmarks/test_ridge_benchmark.py::{NAME}",
    "name": NAME,
    "params": {"cap": None, "m": 1},
    "stats": {"median": 0.0123},
    "extra_info": {"draws": 500, "times": {"ECOS": 123.4}},
}


def test_a_table_has_parameters_seconds_and_further_measurements():
    lines = table([RUN, {**RUN, "extra_info": {"draws": 7}}]).splitlines()
    assert lines[0] == "| cap | m | seconds | draws | ECOS |"
    assert lines[2:] == ["| none | 1 | 0.012 | 500 | 120 |", "| none | 1 | 0.012 | 7 |  |"]


def test_a_section_has_the_titles_of_its_benchmarks():
    info = {"cpu": {"count": 2, "brand_raw": "a processor"}, "python_version": "3.11.0"}
    written = page({"machine_info": info, "benchmarks": [RUN]})
    assert "2 cores (a processor), Python 3.11.0." in written
    assert "## Private ridge regression\n\n**Measure a fit of 10^6 rows with 50 features" in written


def test_the_page_contains_every_benchmark():
    written = PAGE.read_text()
    for file in Path("tests/benchmarks").glob("test_*.py"):
        heading = file.read_text().split('"""')[1].splitlines()[0].rstrip(".")
        assert f"## {heading}\n" in written, file
