"""Reports of results: a table in the terminal, and a page with charts."""

from __future__ import annotations

from ramet.bench.report.page import write_page
from ramet.bench.report.table import print_ratios, print_table

__all__ = ["print_ratios", "print_table", "write_page"]
