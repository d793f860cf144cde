"""Errors speak in one way: "x must be ..., got ...; what to do", without a full stop."""

import ast
import re
from pathlib import Path

import pytest

import convexmarket
from tests import parsed

FILES = sorted(Path(convexmarket.__file__).parent.rglob("*.py"))


def text_of(node):
    """Return the text of a string or f-string, with {} for what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            getattr(part, "value", "{}") if isinstance(part, ast.Constant) else "{}"
            for part in node.values
        )
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def messages(tree):
    """Return line and text of every error that is raised with words."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            yield node.lineno, text_of(node.exc.args[0])


def strays(text):
    """Return in which way a message leaves the common one; empty if it does not."""
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
def test_the_rule_finds_what_it_forbids(text):
    assert len(strays(text)) == 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_messages_say_what_must_hold_and_what_was_got(path):
    assert {
        line: strays(text) for line, text in messages(parsed(path.read_text())) if strays(text)
    } == {}


def test_a_name_of_a_module_that_is_asked_of_the_package_is_pointed_to():
    with pytest.raises(AttributeError, match=r"write convexmarket\.priors\.LogNormal"):
        convexmarket.LogNormal  # noqa: B018
    with pytest.raises(AttributeError, match="Lognormal"):
        convexmarket.Lognormal  # noqa: B018
