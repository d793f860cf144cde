"""Reports of any experiment as Markdown, HTML and images, and the comparison of two of them.

The tables of a report are stored to the last bit in ``results.json``.
"""

from convexmarket.report.comparison import Comparison, compare, compare_reports
from convexmarket.report.document import Report, read_report, read_tables, write_index
from convexmarket.report.table_formats import escape_markdown, format_number, printable

__all__ = [
    "Comparison", "Report", "compare", "compare_reports", "escape_markdown",
    "format_number", "printable", "read_report", "read_tables", "write_index",
]  # fmt: skip
