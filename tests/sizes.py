"""Check and update the line counts of packages in the table of CONTRIBUTING.md.

``python -m tests.sizes`` lowers the recorded counts to the current counts. With ``--moved``, the
counts of packages can also increase. Use this option for commits that move lines between packages.
"""

import re
import sys
from dataclasses import dataclass

from tests import ROOT

PAGE = ROOT / "CONTRIBUTING.md"
_ROW = re.compile(r"^\| (`[^|]+) \| ([\d,]+) \| ([\d,]+) \|", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """Row of the table, with names of packages or a folder name that ends with a slash."""

    names: list[str]
    ceiling: int
    recorded: int

    @property
    def is_folder(self) -> bool:
        return "/" in self.names[0]

    @property
    def limit(self) -> int:
        return max(self.ceiling, self.recorded)

    def lines(self) -> int:
        """Count the lines of the Python files and other text files in the wheel, except data."""
        paths = [ROOT / ("" if self.is_folder else "convexmarket") / name for name in self.names]
        kinds = "*.py" if self.is_folder and self.names != ["convexmarket/"] else "*"
        files = [file for path in paths for file in path.rglob(kinds) if file.is_file()]
        files += [file for path in paths for file in path.parent.glob(f"{path.name}.py*")]
        texts = [file for file in files if file.suffix not in (".csv", ".pyc")]
        return sum(file.read_bytes().count(b"\n") for file in texts)


def _row(match: re.Match[str]) -> Row:
    ceiling, recorded = (int(match[i].replace(",", "")) for i in (2, 3))
    return Row(re.findall(r"`([^`]+)`", match[1]), ceiling, recorded)


def rows(page: str) -> list[Row]:
    """Read the rows of the table."""
    return [_row(match) for match in _ROW.finditer(page)]


def rewritten(page: str, moved: bool) -> str:
    """Return the page with current counts. Counts of packages can increase only if ``moved``."""

    def replace(match: re.Match[str]) -> str:
        row = _row(match)
        lines = row.lines()
        remaining = lines if moved and not row.is_folder else min(lines, row.recorded)
        return f"| {match[1]} | {match[2]} | {remaining:,} |"

    return _ROW.sub(replace, page)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(), moved="--moved" in sys.argv[1:]))
    for row in rows(PAGE.read_text()):
        print(f"{', '.join(row.names)}: {row.lines():,} lines, at most {row.limit:,}")
