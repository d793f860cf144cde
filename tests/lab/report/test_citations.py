"""Papers are named by author and year, whatever letter the words have for them."""

from __future__ import annotations

import pandas as pd
import pytest
from markupsafe import Markup

from convexmarket.lab.report.citations import spelled_out, with_citations
from convexmarket.lab.report.model import Report, Section, Table


def make_report(text: str, cell: str = "") -> Report:
    cited = Table("claims", "Claims", pd.DataFrame({"source": [cell], "n": [1.0]}))
    return Report("Title", (Markup(text),), (Section("One", body=(cited,)),), {})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("as A's Figure 3 has it", "as [Anjarlekar et al.'s (2023b)](#papers) Figure 3 has it"),
        ("(A, Eq. 8)", "([Anjarlekar et al. 2023b](#papers), Eq. 8)"),
        ("R, Table 11", "[Acharya et al. (2024)](#papers), Table 11"),
        (
            "A and B, Fig. 2b",
            "[Anjarlekar et al. (2023b)](#papers) and [Anjarlekar et al. (2023a)](#papers), "
            "Fig. 2b",
        ),
        ("K has no experiments", "[Jain and Thakurta (2013)](#papers) has no experiments"),
    ],
)
def test_a_paper_is_named_and_listed(text: str, named: str) -> None:
    report = with_citations(make_report(text))
    assert report.summary == (Markup(named),)
    assert report.sections[-1].heading == "Papers"
    assert "<https://" in report.sections[-1].text


@pytest.mark.parametrize("text", ["A seller", "group B and C", "“A's list”", "Class A, 3 rows"])
def test_other_letters_stay(text: str) -> None:
    report = make_report(text)
    assert with_citations(report) is report


def test_cells_name_papers_without_links_and_numbers_stay() -> None:
    (cited,) = with_citations(make_report("", "B, Figure 3")).sections[0].tables
    assert cited.frame.source.tolist() == ["Anjarlekar et al. (2023a), Figure 3"]
    assert cited.frame.n.tolist() == [1.0]


def test_texts_outside_reports_name_papers_too() -> None:
    assert spelled_out("Between [0, 1).\n\n(A,\nEq. 13)") == (
        "Between [0, 1).\n\n(Anjarlekar et al. 2023b,\nEq. 13)"
    )
    named = "[Acharya et al. (2024)](https://arxiv.org/abs/2401.17127), Table 11"
    assert spelled_out("R, Table 11", links=True) == named
