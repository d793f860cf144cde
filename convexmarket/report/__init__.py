"""Reports of experiments as Markdown, HTML and images, and comparisons of two reports.

The tables of a report are stored with exact values in ``results.json``.
"""

from convexmarket.report.comparison import Comparison, compare, compare_reports
from convexmarket.report.document import Report, read_report, read_tables, write_index
from convexmarket.report.table_formats import escape_markdown, format_number, printable

__all__ = [
    "Comparison", "Report", "compare", "compare_reports", "escape_markdown",
    "format_number", "printable", "read_report", "read_tables", "write_index",
]  # fmt: skip
