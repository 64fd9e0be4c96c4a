"""Tables in a terminal or a pipe."""

from __future__ import annotations

import sys


def print_table(heads: list[str], *sections: list[list[str]]) -> None:
    """Print a table to stdout: the first column left-aligned, the others right-aligned, a gap between
    sections."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE, pad_edge=False)
    cells = [row for rows in sections for row in rows]
    for number, head in enumerate(heads):
        # Numbers are never cut; what does not fit into a terminal is folded.
        widest = max((len(row[number]) for row in cells if 0 < number < len(row)), default=5)
        table.add_column(Text(head, overflow="fold"), justify="right" if number else "left", min_width=widest)
    for rows in sections:
        for row in rows:
            table.add_row(*(Text(cell, overflow="fold") for cell in row))
        table.add_section()
    Console(width=None if sys.stdout.isatty() else 1000).print(table)
