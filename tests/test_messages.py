"""Error messages have the form "x must be ..., got ...; remedy", without a full stop."""

import ast
import re
from pathlib import Path

import pytest

import convexmarket
from tests import parsed

FILES = sorted(Path(convexmarket.__file__).parent.rglob("*.py"))


def text_of(node):
    """Return the text of a string or f-string, with {} in place of inserted values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            getattr(part, "value", "{}") if isinstance(part, ast.Constant) else "{}"
            for part in node.values
        )
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def messages(tree):
    """Yield the line and the message of every raised error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield node.lineno, text_of(node.exc.args[0])


def faults(text):
    """Return a correction for each deviation of a message from the common form."""
    result = []
    if re.search(r"\bmust\b[^;]*, not \{\}", text):
        result.append("write 'got' before the value")
    if re.match(r"[^;]* is \{\}; (give|choose|write) ", text):
        result.append("write 'must be ..., got ...'")
    if text.endswith(".") and not text.endswith("..."):
        result.append("leave the full stop out")
    return result


@pytest.mark.parametrize(
    "text", ["x must be positive, not {}", "x is {}; give a number", "x is gone."]
)
def test_deviations_from_the_form_are_detected(text):
    assert len(faults(text)) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_messages_have_the_common_form(path):
    assert {
        line: faults(text) for line, text in messages(parsed(path.read_text())) if faults(text)
    } == {}


def test_the_package_points_to_names_in_its_modules():
    with pytest.raises(AttributeError, match=r"write convexmarket\.priors\.LogNormal"):
        convexmarket.LogNormal  # noqa: B018
    with pytest.raises(AttributeError, match="Lognormal"):
        convexmarket.Lognormal  # noqa: B018
