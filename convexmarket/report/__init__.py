"""Reports of any experiment, and the comparison of two of them.

A :class:`Report` collects text, tables, figures and claims, and writes them as Markdown, HTML and
images. Its tables are stored to the last bit in ``results.json``, so that :func:`compare_reports`
compares two reports row by row. :func:`compare` compares two sets of numbers for a headline.
"""

from convexmarket.report.comparison import Comparison, compare, compare_reports
from convexmarket.report.document import Report, read_report, read_tables, write_index
from convexmarket.report.table_formats import escape_markdown, format_number, printable

__all__ = [
    "Comparison", "Report", "compare", "compare_reports", "escape_markdown",
    "format_number", "printable", "read_report", "read_tables", "write_index",
]  # fmt: skip
