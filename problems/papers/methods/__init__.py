"""What several experiments share, and the papers' own methods, which the package does not need."""


def question(text):
    """Return the paragraph of a docstring that begins with "Question:", as a sentence."""
    words = text.split("Question: ")[1].split("\n\n")[0].split()
    return " ".join([words[0].capitalize(), *words[1:]])
