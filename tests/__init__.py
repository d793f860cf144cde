"""The tests; what they share stands in ``builders.py``, here and in the rooms' folders."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
PROBLEMS = ROOT / "problems"
