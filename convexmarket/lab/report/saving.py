"""Figures as files: PNG, SVG and PDF, each as small as it can be and the same bytes every time.

The SVG also stands in the page. What Matplotlib writes there is generous: ids that nothing refers
to, comments, six digits after the point. Without them it is about half as long.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image

from convexmarket.checks import warn_user
from convexmarket.lab.report.figures import INK, MUTED, RULE, SERIES, report_style
from convexmarket.lab.report.marks import even_ticks, show_covered
from convexmarket.lab.report.words import printable

__all__ = ["compact_svg", "inline_svg", "one_note_about_glyphs", "save_figure"]

COLOURS = 48  # of a PNG: a few series in many shades of their edges
NO_DATES = {"CreationDate": None, "Creator": None, "Producer": None}
FONT = "'DejaVu Sans'"
FONTS = f"{FONT},Verdana,sans-serif"  # of the same width, for devices without the first
_IDS = re.compile(r' id="([^"]*)"')
_LOOKS = re.compile(r' style="([^"]*)"')
DIGITS = 1  # after the point, in units of 1/72 inch
#: What stands in a page for a colour of figures; its style says which, on light and on dark.
PAGE_COLOURS = {"#ffffff": "--card", INK: "--ink", MUTED: "--muted", RULE: "--rule"}
PAGE_COLOURS |= {look["color"]: f"--s{number}" for number, look in enumerate(SERIES)}
_HEX = re.compile("|".join(PAGE_COLOURS), re.I)
LONG_NUMBER = re.compile(rf"(?:scale|matrix)\([^)]*\)|-?\d+\.\d{{{DIGITS},}}")


def save_figure(draw: Callable[[], Figure], stem: Path, formats: Collection[str] = ()) -> str:
    """Draw a figure, write ``stem.png``, ``.svg`` and ``.pdf`` if wanted, and return the SVG.

    The same figure gives the same bytes: the ids of the SVG are salted with the figure's name, and
    no file says when, or by what, it was written.
    """
    with report_style(stem.name):
        figure = draw()
        even_ticks(figure)
        show_covered(figure)
        # In memory: on a full disk Matplotlib's writers fail with errors that hide the reason.
        document, picture, drawing = BytesIO(), BytesIO(), BytesIO()
        figure.savefig(picture, format="png", metadata={"Software": None})
        figure.set_layout_engine("none")  # it is laid out
        if "pdf" in formats:
            figure.savefig(document, format="pdf", metadata=NO_DATES)
        figure.savefig(
            drawing, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    if "pdf" in formats:
        stem.with_suffix(".pdf").write_bytes(document.getvalue())
    with Image.open(picture) as image:
        # Keeps apart colours that few pixels have, as a thin line's, and common ones as they are.
        few = image.convert("RGB").quantize(
            COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE
        )
        few.save(stem.with_suffix(".png"), optimize=True)
    svg = compact_svg(printable(drawing.getvalue().decode("utf-8")))
    if "svg" in formats:
        stem.with_suffix(".svg").write_text(svg, encoding="utf-8")
    return svg


@contextmanager
def one_note_about_glyphs() -> Iterator[None]:
    """Warn once, in words, where Matplotlib warns of every letter that its font does not have."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", "Glyph .* missing from font", UserWarning)
        yield
    others = [one for one in caught if not str(one.message).startswith("Glyph ")]
    for one in others:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    if len(others) < len(caught):
        warn_user(
            "the font of the figures lacks some characters of names, which are boxes in PNG and "
            "PDF; the page and the SVG have them",
            UserWarning,
        )


def compact_svg(svg: str) -> str:
    """Shorten what Matplotlib wrote.

    Numbers keep one digit after the point (1/720 inch), except where they scale others.
    """
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    svg = _in_tags(svg, lambda tag: _shorter_tag(tag, used))
    return re.sub(r">\s+<", ">\n<", _without_bare_groups(svg)).strip() + "\n"


def _without_bare_groups(svg: str) -> str:
    """Leave out groups that say nothing."""
    kept: list[bool] = []

    def change(found: re.Match[str]) -> str:
        if found[0] == "</g>":
            return found[0] if kept.pop() else ""
        kept.append(found[0] != "<g>")
        return found[0] if kept[-1] else ""

    return re.sub(r"<g(?: [^>]*)?(?<!/)>|</g>", change, svg)


def _in_tags(svg: str, change: Callable[[str], str]) -> str:
    """Change the tags of a drawing and leave its text as it is."""
    return re.sub(r"<[^>]+>", lambda found: change(found[0]), svg)


def _shorter_tag(tag: str, used: Container[str]) -> str:
    tag = re.sub(r"\s+", " ", tag)
    tag = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", tag)
    tag = re.sub(r' transform="rotate\(-?0 [^"]*"', "", tag).replace(";stroke-linejoin:miter", "")
    tag = LONG_NUMBER.sub(lambda found: _rounded(found[0]), tag)
    tag = re.sub(r" ?([MLQCz]) ?(?=[-\d\"MLQCz])", r"\1", tag)
    return re.sub(r"(?<=[:;]) ", "", tag).replace(FONT, FONTS)


def _rounded(number: str) -> str:
    if number.endswith(")"):
        return number
    digits = DIGITS + (abs(float(number)) < 1)  # of an opacity, two
    shorter = f"{float(number):.{digits}f}".rstrip("0").rstrip(".")
    return "0" if shorter == "-0" else shorter


def inline_svg(svg: str, number: int) -> Markup:
    """Return an SVG file's drawing ready to stand in a page, as its so many-th.

    The page sets the size. Ids and classes are shared by the whole page, so that each gets the
    number in front; what many elements look like is said once. The accessible name stands on the
    element around it.
    """
    drawing = re.sub(r'(<svg[^>]*?) (width|height)="[^"]*"', r"\1", svg.strip(), count=1)
    drawing = re.sub(r'(<svg[^>]*?) (width|height)="[^"]*"', r"\1", drawing, count=1)
    ids = {
        name: f"f{number}i{place}"
        for place, name in enumerate(dict.fromkeys(_IDS.findall(drawing)))
    }
    drawing = _in_tags(drawing, lambda tag: _in_schemes(_renamed(tag, ids)))
    looks = [look for look, times in Counter(_LOOKS.findall(drawing)).items() if times > 1]
    names = {look: f"f{number}c{place}" for place, look in enumerate(looks)}
    drawing = _in_tags(drawing, lambda tag: _styled(tag, names))
    rules = "".join(f".{name}{{{look}}}" for look, name in names.items())
    drawing = re.sub(
        r'<style type="text/css">\*\{(.*?)\}</style>',
        lambda found: f"<style>#drawing-{number} *{{{found[1]}}}{rules}</style>",
        drawing,
    )
    drawing = drawing.replace("xlink:href=", "href=")  # as HTML has it
    return Markup(drawing.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1))


def _in_schemes(tag: str) -> str:
    """Replace the colours of figures by the page's, of which it has light and dark ones."""
    return _HEX.sub(lambda found: f"var({PAGE_COLOURS[found[0].lower()]})", tag)


def _renamed(tag: str, ids: Mapping[str, str]) -> str:
    tag = re.sub(r' id="([^"]*)"', lambda found: f' id="{ids[found[1]]}"', tag)
    return re.sub(r'(href="|url\()#([^")]+)', lambda found: f"{found[1]}#{ids[found[2]]}", tag)


def _styled(tag: str, names: Mapping[str, str]) -> str:
    """Say by a class what many tags look like."""
    look = _LOOKS.search(tag)
    if look is None or look[1] not in names:
        return tag
    bare = _LOOKS.sub("", tag)
    return re.sub(r"^<\w+", rf'\g<0> class="{names[look[1]]}"', bare)
