"""Functions shared by the experiments, and methods used only by the papers."""

from dataclasses import replace

import convexmarket as cm
from convexmarket.report import escape_markdown
from convexmarket.report.document import Text


def begin(title, doc, finding, claims):
    """Begin a report whose question is the paragraph "Question:" of a docstring."""
    words = doc.split("Question: ")[1].split("\n\n")[0].split()
    page = cm.Report(title, question=" ".join([words[0].capitalize(), *words[1:]]))
    page.headline(finding)
    for text, holds, source, detail in claims:
        page.claim(text, holds=holds, source=source, detail=detail)
    return page


class Experiment:
    """One of several experiments in a module, with the three functions of a script as methods.

    A subclass defines a docstring with a question, the title of the report, and a note. ``finding``
    summarises the tables in a sentence, and ``pages`` adds figures and tables to the report.
    """

    title = note = ""

    def report(self, frames):
        """Write the report of the experiment."""
        page = begin(self.title, self.__doc__, self.finding(frames), self.claims(frames))
        if self.note:
            page.add(self.note)
        self.pages(page, frames)
        return page


class Together:
    """A report on several experiments. The first experiment determines the headline.

    The name of a table or figure begins with the name of its part. The page shows the first figure
    of each part, and the appendix shows the other figures. Parts have neither title nor question.
    """

    def __init__(self, parts):
        self.parts = parts

    def compute(self, quick=False):
        """Compute the tables of all parts."""
        frames = {name: part.compute(quick) for name, part in self.parts.items()}
        return {f"{name}-{key}": frames[name][key] for name in frames for key in frames[name]}

    def claims(self, frames):
        """Check the claims of all parts."""
        for name, part in self.parts.items():
            for text, *rest in part.claims(tables_of(frames, name)):
                yield f"{name}: {text}", *rest

    def report(self, frames):
        """Write one report of all parts."""
        findings = [part.finding(tables_of(frames, name)) for name, part in self.parts.items()]
        page = begin(self.title, self.__doc__, findings[0], self.claims(frames))
        named = zip(self.parts, findings, strict=True)
        page.add("\n".join(f"- {name}: {escape_markdown(text)}" for name, text in [*named][1:]))
        for name, part in self.parts.items():
            alone = cm.Report(name)
            part.pages(alone, tables_of(frames, name))
            for block in alone.blocks:
                if isinstance(block, Text):
                    if block not in page.blocks:
                        page.blocks.append(block)
                    continue
                first = block in alone.figures[:1]
                page.blocks.append(replace(block, name=f"{name}-{block.name}", appendix=not first))
            if part.note:
                page.add(f"{name}: {part.note}", appendix=True)
        return page


def tables_of(frames, name):
    """Return the tables of one part by their names in the part."""
    start = f"{name}-"
    return {key[len(start) :]: frames[key] for key in frames if key.startswith(start)}
