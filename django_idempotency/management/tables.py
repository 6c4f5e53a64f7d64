"""Text for a terminal: what clients sent, without what would move its cursor, and rows of cells in its width."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

_COLOR: Final = re.compile(r"(\x1b\[[0-9;]*m)")


def escape(text: str, kept: str = "") -> str:
    """Return the text with what is not printable written as in a Python string: newlines, escapes, reversed writing."""
    return "".join(each if each.isprintable() or each in kept else _write(each) for each in text)


def escape_lines(text: str) -> str:
    """Do so with lines that are ready to be shown: these keep their newlines and colors."""
    return "".join(part if _COLOR.fullmatch(part) else escape(part, "\n") for part in _COLOR.split(text))


def _write(character: str) -> str:
    return character.encode("unicode_escape").decode()


def format_rows(rows: Sequence[Sequence[str]], width: int, kept: int = 2) -> Iterator[str]:
    """Yield each row of a table. Where it is too wide, only the first `kept` cells are columns, and rows wrap."""
    rows = [[escape(cell) for cell in row] for row in rows]
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
