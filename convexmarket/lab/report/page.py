"""Pages whose words are a template: Markdown in Jinja, into which numbers, tables and figures go.

A kind's ``page.md.j2`` begins with a paragraph that says what was found, and goes on under headings
of the second order. ``{{ figure("name") }}`` and ``{{ table("name") }}`` put a figure or a table
where they stand. All else that an expression gives is escaped, so that data stay text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from convexmarket.errors import ParameterError
from convexmarket.lab.report.claims import claims_section, claims_words
from convexmarket.lab.report.model import Block, Fact, Figure, Listing, Report, Section, Table
from convexmarket.lab.report.parts import (
    METHOD_WORDS,
    audit_words,
    gap_words,
    promise_words,
    reproduction,
)
from convexmarket.lab.report.words import (
    count,
    equals,
    escape_markdown,
    fine_percent,
    format_number,
    format_percent,
    listing,
    share,
)

__all__ = ["page"]

TEMPLATE = "page.md.j2"
#: What a figure or a table leaves in the rendered template: no text of a file holds these signs.
PLACE = re.compile("\x02(.*?)\x03")
#: A tag at the end of a line that holds more than it.
ENDS_A_LINE = re.compile(r"(?m)^(?!\s*\{%(?:(?!%\}).)*%\}\s*$)(.*?[^+-])%\}$")
HEADING = re.compile(r"(?m)^## +(.*)$")
FILTERS = {
    "num": format_number,
    "pct": format_percent,
    "fine_pct": fine_percent,
    "claims_words": claims_words,
    "gap_words": gap_words,
    "audit_words": audit_words,
    "promise_words": promise_words,
    "count": count,
    "share": share,
    "listing": listing,
}


def page(
    package: str,
    result: Any,
    *,
    facts: Iterable[tuple[str, str]] = (),
    tables: Iterable[Table] = (),
    figures: Iterable[Figure] = (),
    warning: str = "",
    model: str = "",
    of_sellers: bool = False,
    **words: Any,
) -> Report:
    """Return the report that a kind's template makes of a result.

    Parameters
    ----------
    package : str
        Of the kind, where ``page.md.j2`` lies.
    result : object
        What the kind's run returned; ``result`` in the template, and ``problem`` is its problem.
    facts : iterable of (label, value)
        The numbers to read first.
    tables, figures : iterable of Table and Figure
        What the template may put somewhere; one that it leaves out is not in the report.
    warning, model, of_sellers
        As for :class:`~convexmarket.lab.report.model.Report`.
    **words
        More that the template may say.

    Raises
    ------
    ParameterError
        If the template asks for a table or a figure that there is not.
    """
    file, *reproduced = reproduction(result.problem, result.provenance, result.timings)
    claimed = claims_section(result.claims).tables if getattr(result, "claims", ()) else ()
    pieces: dict[str, Table | Figure | Listing] = {
        **{f"table {table.name}": table for table in (*tables, *reproduced, *claimed)},
        **{f"figure {drawing.name}": drawing for drawing in figures},
        "listing_of problem": file,
    }

    def place(kind: str, name: str) -> Markup:
        if f"{kind} {name}" not in pieces:
            raise ParameterError(f"{package} has no {kind} {name!r} for its page")
        return Markup(f"\n\n\x02{kind} {name}\x03\n\n")

    def has(name: str, *kinds: str) -> bool:
        return any(f"{kind} {name}" in pieces for kind in kinds or ("figure", "table"))

    environment = _environment(package)
    known = {"result": result, "problem": result.problem, "has": has}
    known |= {kind: partial(place, kind) for kind in ("figure", "table", "listing_of")}
    text = environment.get_template(TEMPLATE).render(**known, **words)
    lead, *rest = HEADING.split(text)
    sections = [
        Section(_plain(heading), body=_blocks(body, pieces))
        for heading, body in zip(rest[::2], rest[1::2], strict=True)
    ]
    return Report(
        title=result.problem.title,
        summary=_blocks(lead, pieces),
        sections=tuple(section for section in sections if section.body),
        results=result,
        facts=tuple(Fact(*fact) for fact in facts),
        warning=warning,
        model=model,
        of_sellers=of_sellers,
    )


class _Lines(Extension):
    """Let a line that is nothing but a tag vanish, and the end of any other line stand."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Return the source with ``+%}`` where a tag ends a line of text."""
        del name, filename
        return ENDS_A_LINE.sub(r"\1+%}", source)


@cache  # templates are compiled once
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader(package, "."), PackageLoader("convexmarket.lab.report", "templates")]
        ),
        autoescape=False,  # HTML's escaping; finalize escapes for Markdown, HTML included
        finalize=_escaped,
        undefined=StrictUndefined,
        extensions=[_Lines],
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FILTERS
    environment.globals |= {"equals": equals, "METHOD_WORDS": METHOD_WORDS}
    return environment


def _escaped(value: Any) -> str:
    """Escape text; a blank before or after it, which parts words, stays."""
    text = str(value)
    if isinstance(value, Markup) or not text.strip(" "):
        return text
    return f"{' ' * text.startswith(' ')}{escape_markdown(value)}{' ' * text.endswith(' ')}"


def _blocks(text: str, pieces: Mapping[str, Table | Figure | Listing]) -> tuple[Block, ...]:
    """Return the blocks of a rendered text: figures and tables in their places."""
    blocks: list[Block] = []
    for number, part in enumerate(PLACE.split(text)):
        if number % 2:
            blocks.append(pieces[part])
        elif written := _unwrapped(part):
            blocks.append(Markup(written))
    return tuple(blocks)


def _unwrapped(text: str) -> str:
    """Return Markdown with one line to a paragraph and one blank line between two."""
    paragraphs = (part for part in re.split(r"\n\s*\n", text) if part.strip())
    return "\n\n".join(map(_one_line, paragraphs))


def _one_line(paragraph: str) -> str:
    lines = [line.strip() for line in paragraph.strip().splitlines()]
    points = re.split(r" ?\n(?=[-*>|] )", "\n".join(lines))
    return "\n".join(" ".join(point.split("\n")) for point in points)


def _plain(heading: str) -> str:
    """Return a heading as plain text; it is escaped where it is written."""
    return re.sub(r"\\([\\`*_\[\]|~#+=-])", r"\1", heading.strip())
