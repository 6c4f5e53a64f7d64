"""Rows of cells in the width of a terminal."""

from collections.abc import Iterator, Sequence


def format_rows(rows: Sequence[Sequence[str]], width: int, kept: int = 2) -> Iterator[str]:
    """Yield each row of a table. Where it is too wide, only the first `kept` cells are columns, and rows wrap."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    columns = len(widths) if sum(widths) + 2 * len(widths) <= width else kept
    for row in rows:
        lines, line = list[str](), " "
        padded = [cell.ljust(longest) for cell, longest in zip(row, widths, strict=True)][:columns]
        for cell in (*padded, *filter(None, row[columns:])):
            if len(line) + 1 + len(cell) > width:
                lines.append(line.rstrip())
                line = " " * 7
            line += f" {cell} "
        yield "\n".join([*lines, line.rstrip()])
