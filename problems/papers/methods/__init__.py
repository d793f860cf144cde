"""What several experiments share, and the papers' own methods, which the package does not need."""

import convexmarket as cm


def begin(title, doc, finding, claims):
    """Begin a report whose question is the paragraph "Question:" of a docstring."""
    words = doc.split("Question: ")[1].split("\n\n")[0].split()
    page = cm.Report(title, question=" ".join([words[0].capitalize(), *words[1:]]))
    page.headline(finding)
    for text, holds, source, detail in claims:
        page.claim(text, holds=holds, source=source, detail=detail)
    return page
