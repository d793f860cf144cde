"""What several experiments share, and the papers' own methods, which the package does not need."""

import convexmarket as cm


def begin(title, text, finding, claims):
    """Begin a report whose question is the paragraph "Question:" of a docstring."""
    words = text.split("Question: ")[1].split("\n\n")[0].split()
    page = cm.Report(title, question=" ".join([words[0].capitalize(), *words[1:]]))
    page.headline(finding)
    for claim in claims:
        page.claim(**claim)
    return page
