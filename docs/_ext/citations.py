"""Replace the letters A, B, K and R, which denote papers, by authors and year."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PAPERS", "spelled_out"]


@dataclass(frozen=True)
class Paper:
    """Authors, year, title and link of a paper."""

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
        "Anjarlekar et al.", "2023a", "Earlier version of Anjarlekar et al. 2023b: Striking A "
        "Balance, An Optimal Mechanism Design For Heterogenous Differentially Private Data "
        "Acquisition For Logistic Regression", "https://openreview.net/forum?id=9D4rvCnbqt",
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
#: Pattern of a paper's letter. The text around a letter determines whether it denotes a paper.
CITED = re.compile(
    r"(?<![\w“\"‘'-])(?P<key>[ABRK])(?P<own>['’]s(?= [A-Za-z$]))?"
    r"(?(own)|(?=,?\s(?:and [ABRK], )?(?:Eq|Fig|Theorem|Lemma|Algorithm|Table|Remark|Assumption|"
    r"[Ss]ection|[Aa]ppendix|Definition|Corollary|Proposition)| \(Hall| has no| proposes))"
)


def spelled_out(text: str, *, links: bool = False) -> str:
    """Cite the papers in a text by authors and year, optionally with Markdown links."""

    def name(match: re.Match[str]) -> str:
        words = _name(match)
        return f"[{words}]({PAPERS[match['key']].link})" if links else words

    return CITED.sub(name, text)


def _name(match: re.Match[str]) -> str:
    """Format a citation. Within parentheses, the year has no parentheses."""
    paper = PAPERS[match["key"]]
    if match["own"]:
        return f"{paper.authors}'s ({paper.year})"
    before = match.string[: match.start()].rpartition("\n\n")[2]
    if before.count("(") > before.count(")"):
        return f"{paper.authors} {paper.year}"
    return f"{paper.authors} ({paper.year})"
