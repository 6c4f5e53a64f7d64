"""Draw the states and write their tables from the one place that defines them."""

from collections.abc import Iterator
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape

from django_idempotency import Status
from django_idempotency.core.transitions import TRANSITIONS, Edge, Guard, Transition
from docs.pictures.drawing import DOCS, IMAGES, between, svg

PICTURE = IMAGES / "states.svg"
PAGE = DOCS / "reference" / "states.md"
BEGIN, END = "<!-- written by docs/pictures: begin -->\n", "<!-- written by docs/pictures: end -->\n"


ABSENT, DELETED = "no record", Edge.DELETED.value
COLOURS: Final[dict[str, str]] = {
    ABSENT: "grey",
    Status.PENDING: "blue",
    Status.IN_PROGRESS: "blue",
    Status.COMPLETED: "green",
    Status.FAILED: "red",
    Status.FAILED_RETRYABLE: "violet",
    Status.UNKNOWN: "amber",
    Status.DEAD_LETTER: "amber",
    Status.EXPIRED: "grey",
    DELETED: "grey",
}
WIDTH, EDGE, BOX, LINE, GAP = 412, 4, 28, 17, 6
SPINE, CHILD, WORDS = 18, 34, 172  # how far from the left: the line down from a state, its targets, their rows
CHARACTERS: Final = 32  # of a line of words
STROKE: Final = 'fill="none" stroke="var(--faint)" stroke-width="1.6" marker-end="url(#head)"'
TITLE: Final = "Each state of a record, the states that may follow it, and the rows of the table that lead there"


def moves() -> dict[str, dict[str, list[str]]]:
    """The rows that lead from one state to another, as the picture shows them."""
    found: dict[str, dict[str, list[str]]] = {name: {} for name in COLOURS}
    for row, source in rows_by_source():
        if is_move(row, source):
            found[source].setdefault(row.target.value, []).append(f"{row.cite} {row.event.value}")
    return found


def stays(state: str) -> list[str]:
    """The rows that leave a record in its state."""
    cites = [row.cite for row, source in rows_by_source() if source == state and not is_move(row, source)]
    return list(dict.fromkeys(cites))


def rows_by_source() -> Iterator[tuple[Transition, str]]:
    for row in TRANSITIONS:
        for source in row.sources or (ABSENT,):
            yield row, str(source)


def is_move(row: Transition, source: str) -> bool:
    return row.target is not Edge.SAME and row.target.value != source


def text(x: int, y: float, content: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y:g}" fill="var(--ink)"{style}>{escape(content)}</text>'


def box(name: str, x: int, y: int, style: str = "") -> str:
    dashed = "" if name in set(Status) else ' stroke-dasharray="5 4"'
    frame = f'<rect x="{x}" y="{y}" width="{WORDS - 8 - x}" height="{BOX}" rx="6" '
    frame += f'fill="var(--{COLOURS[name]})" stroke="var(--faint)"{dashed}/>'
    return f"{frame}\n{text(x + 9, y + 19, name, style)}"


def lines(y: int, *contents: str) -> tuple[list[str], int]:
    """Words beside a box, and where the next box may begin."""
    wrapped = [line for content in contents for line in wrap(content, CHARACTERS, subsequent_indent="\u2003")]
    top = y + (19 if len(wrapped) == 1 else 13)
    drawn = [text(WORDS, top + LINE * number, line) for number, line in enumerate(wrapped)]
    return drawn, y + max(BOX, LINE * len(wrapped)) + GAP


def picture() -> str:
    """Each state, from the top down, and what may happen to a record in it."""
    parts, y = [], EDGE
    for state, targets in moves().items():
        if not targets:
            continue
        kept, below = lines(y, "↻ " + " ".join(stays(state))) if stays(state) else ([], y + BOX + GAP)
        parts += [box(state, EDGE, y, ' font-weight="bold" font-size="15"'), *kept]
        spine, y = y + BOX, below
        for target, rows in targets.items():
            middle = y + BOX // 2
            parts.append(f'<path d="M{SPINE},{spine} V{middle} H{CHILD - 2}" {STROKE}/>')
            words, below = lines(y, *rows)
            parts += [box(target, CHILD, y), *words]
            y = below
        y += 2 * GAP
    return svg(TITLE, WIDTH, y - 2 * GAP, parts, attributes=' font-size="13"')


def cells(*columns: str) -> str:
    return "| " + " | ".join(columns) + " |\n"


def transition(row: Transition) -> str:
    sources = ", ".join(status.value for status in Status if status in row.sources) or ABSENT
    guards = "; ".join(guard.value for guard in Guard if guard in row.guards)
    return cells(row.cite, sources, row.event.value, guards, row.target.value, row.who)


def tables() -> str:
    states = "".join(cells(f"`{status.value}`", status.meaning) for status in Status)
    rows = "".join(transition(row) for row in TRANSITIONS)
    head = cells("row", "from", "event", "only if", "to", "who") + cells(*["---"] * 6)
    return f"\n{cells('state', 'meaning')}{cells('---', '---')}{states}\n{head}{rows}\n"


def page(old: str) -> str:
    return between(old, BEGIN, END, tables())


def write() -> None:
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
