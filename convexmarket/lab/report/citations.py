"""The papers that pages cite: templates have a letter for each, pages its authors and year."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd
from markupsafe import Markup

from convexmarket.lab.report.model import Block, Figure, Report, Section, Table

__all__ = ["PAPERS", "PAPERS_HEADING", "spelled_out", "with_citations"]


@dataclass(frozen=True)
class Paper:
    """A paper: who wrote it, when, and where it is found."""

    authors: str
    year: str
    title: str
    link: str


PAPERS = {
    "A": Paper(
        "Anjarlekar et al.", "2023b", "Ameya Anjarlekar, Rasoul Etesami and R. Srikant: Mechanism "
        "Design for Heterogeneous Differentially Private Data Acquisition for Logistic Regression",
        "https://arxiv.org/abs/2309.10340",
    ),
    "B": Paper(
        "Anjarlekar et al.", "2023a", "The earlier version of the former: Striking A Balance, An "
        "Optimal Mechanism Design For Heterogenous Differentially Private Data Acquisition For "
        "Logistic Regression", "https://openreview.net/forum?id=9D4rvCnbqt",
    ),
    "R": Paper(
        "Acharya et al.", "2024", "Krishna Acharya, Franziska Boenisch, Rakshit Naidu and Juba "
        "Ziani: Personalized Differential Privacy for Ridge Regression",
        "https://arxiv.org/abs/2401.17127",
    ),
    "K": Paper(
        "Jain and Thakurta", "2013", "Prateek Jain and Abhradeep Thakurta: Differentially Private "
        "Learning with Kernels", "https://proceedings.mlr.press/v28/jain13.html",
    ),
}  # fmt: skip
#: Of the last section, whose anchor is "papers".
PAPERS_HEADING = "Papers"
#: A letter, where what follows says that it is a paper.
CITED = re.compile(
    r"(?<![\w“\"‘'-])(?P<key>[ABRK])(?P<own>['’]s(?= [A-Za-z$]))?"
    r"(?(own)|(?=,?\s(?:and [ABRK], )?(?:Eq|Fig|Theorem|Lemma|Algorithm|Table|Remark|Assumption|"
    r"[Ss]ection|[Aa]ppendix|Definition|Corollary|Proposition)| \(Hall| has no| proposes))"
)
T = TypeVar("T")


def spelled_out(text: str, *, links: bool = False) -> str:
    """Return a text that names papers by author and year, in Markdown with links to them."""

    def name(found: re.Match[str]) -> str:
        words = _name(found, set())
        return f"[{words}]({PAPERS[found['key']].link})" if links else words

    return CITED.sub(name, text)


def with_citations(report: Report) -> Report:
    """Return a report that names papers by author and year, and lists them in its last section."""
    used: set[str] = set()
    told = replace(
        report,
        title=_cited(report.title, used),
        summary=tuple(_cited(block, used) for block in report.summary),
        sections=tuple(_section(section, used) for section in report.sections),
    )
    if not used:
        return report
    listed = "\n".join(
        f"- {paper.title} ({paper.year}), <{paper.link}>"
        for key, paper in PAPERS.items()
        if key in used
    )
    papers = Section(PAPERS_HEADING, body=(Markup(listed),))
    return replace(told, sections=(*told.sections, papers))


def _section(section: Section, used: set[str]) -> Section:
    body = tuple(_cited(block, used) for block in section.blocks)
    return Section(_cited(section.heading, used), body=body)


def _cited(block: T | Block | str, used: set[str]) -> Any:
    """Return a piece of a report with its papers named; only Markdown links to the list."""
    if isinstance(block, Markup):
        return Markup(CITED.sub(lambda found: f"[{_name(found, used)}](#papers)", str(block)))
    if isinstance(block, str):
        return CITED.sub(lambda found: _name(found, used), block)
    if isinstance(block, Table):
        frame = block.frame
        words = list(frame.select_dtypes(["object", "string"]))
        if words and frame.columns.is_unique:
            frame = frame.copy()
            for name in words:
                frame[name] = [_cell(value, used) for value in frame[name]]
        return replace(block, caption=_cited(block.caption, used), frame=frame)
    if isinstance(block, Figure):
        return replace(block, caption=_cited(block.caption, used), alt=_cited(block.alt, used))
    return block


def _cell(value: Any, used: set[str]) -> Any:
    return _cited(value, used) if isinstance(value, str) and not pd.isna(value) else value


def _name(found: re.Match[str], used: set[str]) -> str:
    """Write "Jain and Thakurta (2013)"; within parentheses, without another pair."""
    paper = PAPERS[found["key"]]
    used.add(found["key"])
    if found["own"]:
        return f"{paper.authors}'s ({paper.year})"
    before = found.string[: found.start()].rpartition("\n\n")[2]
    if before.count("(") > before.count(")"):
        return f"{paper.authors} {paper.year}"
    return f"{paper.authors} ({paper.year})"
