"""What the terminal shows of a run: what its page says first, and the numbers to read first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from markdown_it import MarkdownIt
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from convexmarket.lab.report.model import Report
from convexmarket.privacy.guarantee import WEAK, odds_in_words

__all__ = ["certificate_summary", "pairs_table", "summary"]


def summary(report: Report) -> list[Table | str]:
    """Return what the terminal shows of a report: its warning, what came out, and its facts."""
    said = [report.warning] if report.warning else []
    said += [first_paragraph(block) for block in report.lead[:1] if isinstance(block, str)]
    facts = pairs_table("", ((fact.label, fact.value) for fact in report.facts))
    return [f"[bold]{escape(report.title)}[/bold]", *map(escape, said), facts]


def first_paragraph(markdown: str) -> str:
    """Return the first paragraph of Markdown as plain text."""
    inline = next(token for token in MarkdownIt().parse(markdown) if token.type == "inline")
    return "".join(
        child.content or " " * (child.type == "softbreak") for child in inline.children or ()
    )


def certificate_summary(certificate: Mapping[str, Any]) -> list[Table | str]:
    """Return what the terminal shows of offers to sellers, by their certificate."""
    totals, optimality = certificate["totals"], certificate["optimality"]
    finding = (
        f"Bought from {totals['sellers_bought_from']:,} of {optimality['n_sellers']:,} sellers "
        f"for {totals['payments']:.6g}, optimal within a relative gap of {optimality['gap']:.1e}."
    )
    asked = certificate["objective"].get("budget")
    pairs = [] if asked is None else [("budget, met on average over the prior", f"{asked:.6g}")]
    pairs += [
        ("expected payments", f"{totals['expected_payments']:.6g}"),
        ("total privacy eta", f"{totals['epsilon']:.6g}"),
        ("largest epsilon", f"{totals['largest_epsilon']:.6g}"),
        ("objective", f"{optimality['objective']:.10g}"),
    ]
    audit = certificate["audit"]
    gain = audit["largest_gain_from_misreporting"]
    pairs += [
        ("sellers audited", f"{audit['sellers_audited']:,}"),
        ("largest gain from lying alone", f"{gain:.1e}"),
        ("smallest surplus", f"{audit['smallest_surplus']:.4g}"),
    ]
    said: list[Table | str] = [finding, pairs_table("", pairs)]
    if (largest := totals["largest_epsilon"]) > WEAK:
        said.append(
            f"An epsilon of {largest:.4g} is a weak promise: a reader who knows all other rows"
            f" {odds_in_words(largest, 0.0)}. A larger gamma sells less."
        )
    return said


def pairs_table(title: str, pairs: Iterable[tuple[str, str]]) -> Table:
    """Return labels and values as a table without headings."""
    table = Table(
        title=escape(title) or None, title_justify="left", show_header=False, box=SIMPLE_HEAD
    )
    table.add_column()
    table.add_column(justify="right")
    for label, value in pairs:
        table.add_row(escape(label), escape(value))
    return table
