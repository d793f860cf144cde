"""Convert formulas to MathML during the build. The pages then require no scripts or fonts."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

NAME = r'<mo lspace="0.17em" rspace="{}em">\2</mo>'


def mathml(latex: str, display: str) -> str:
    """Convert a LaTeX formula to a MathML element."""
    try:
        written = convert(latex, display=display)
        # Bars are not stretchy, because the bars of a norm with an index are in different groups.
        written = re.sub(r"<mo[^>]*>(&#x0*2016;|‖)", r'<mo stretchy="false">\1', written)
        # Add space around the name of a function, except before a bracket.
        written = re.sub(
            r"<m([io])>([A-Za-z]{2,})</m\1>(?=<mo[^>]*>&#x00028;)", NAME.format(0), written
        )
        return re.sub(r"<m([io])>([A-Za-z]{2,})</m\1>", NAME.format(0.17), written)
    except Exception as error:
        raise ExtensionError(f"The formula {latex!r} cannot be converted: {error!r}") from error


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Append an inline formula to the body of the page, as MathML."""
    joiner = "&#8288;"  # a word joiner, which prevents a line break before a comma
    self.body.append(mathml(node.astext(), "inline") + joiner)
    raise nodes.SkipNode


def visit_displayed(self: HTML5Translator, node: nodes.math_block) -> None:
    """Append a displayed formula to the body of the page, as MathML."""
    latex = node.astext().replace("{aligned}", "{align*}")  # {aligned} would give one line
    self.body.append(f'<div class="math">{mathml(latex, "block")}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions of this module to render formulas in HTML."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displayed, None))
    app.config["html_math_renderer"] = "mathml"
    return {"parallel_read_safe": True}
