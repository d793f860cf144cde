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


class Experiment:
    """An experiment of a module with several, with the three functions of a script.

    A subclass has the docstring of a script, the title of its report, and a note for the reader.
    Its method ``finding`` says in a sentence what the tables show; ``pages`` adds figures and
    tables to the report.
    """

    title = note = ""

    def report(self, frames):
        """Write the experiment down."""
        page = begin(self.title, self.__doc__, self.finding(frames), self.claims(frames))
        if self.note:
            page.add(self.note)
        self.pages(page, frames)
        return page
