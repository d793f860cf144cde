"""How long the names, texts and lists of a problem file may be."""

__all__ = ["LONGEST_KEY", "LONGEST_TEXT", "MOST_ENTRIES", "MOST_KEYS"]

LONGEST_KEY = 200
LONGEST_TEXT = 20_000
MOST_KEYS = 1_000
MOST_ENTRIES = 100_000
