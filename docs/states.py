"""Draw the states and write their tables from the one place that defines them: `python -m docs.states`."""

from collections import defaultdict
from typing import TypeAlias
from xml.sax.saxutils import escape

from django_idempotency import Status
from django_idempotency.core.transitions import TRANSITIONS, Edge, Guard, Transition
from docs.pictures import DOCS, IMAGES, between, svg

PICTURE = IMAGES / "states.svg"
PAGE = DOCS / "reference" / "states.md"
BEGIN, END = "<!-- written by docs/states.py: begin -->\n", "<!-- written by docs/states.py: end -->\n"

Point: TypeAlias = tuple[int, int]
Arrow: TypeAlias = tuple[str, str]

ABSENT, DELETED = "no record", Edge.DELETED.value
S = Status
WIDTH, HEIGHT = 180, 54
ONE_LINE = 7  # names in a box
BOXES: dict[str, tuple[Point, str]] = {
    ABSENT: ((510, 50), "grey"),
    S.PENDING: ((150, 200), "blue"),
    S.IN_PROGRESS: ((510, 200), "blue"),
    S.COMPLETED: ((890, 200), "green"),
    S.FAILED_RETRYABLE: ((150, 390), "violet"),
    S.UNKNOWN: ((510, 390), "amber"),
    S.DEAD_LETTER: ((510, 570), "amber"),
    S.FAILED: ((150, 740), "red"),
    DELETED: ((510, 740), "grey"),
    S.EXPIRED: ((890, 740), "grey"),
}

# Each arrow's corners, and where its label sits.
ROUTES: dict[Arrow, tuple[tuple[Point, ...], Point]] = {
    (ABSENT, S.PENDING): (((420, 50), (110, 50), (110, 173)), (110, 110)),
    (ABSENT, S.IN_PROGRESS): (((490, 77), (490, 173)), (490, 104)),
    (ABSENT, S.COMPLETED): (((600, 50), (920, 50), (920, 173)), (920, 84)),
    (S.PENDING, S.IN_PROGRESS): (((240, 188), (420, 188)), (300, 188)),
    (S.IN_PROGRESS, S.PENDING): (((420, 212), (240, 212)), (360, 212)),
    (S.PENDING, S.COMPLETED): (((180, 173), (180, 140), (860, 140), (860, 173)), (300, 140)),
    (S.PENDING, S.FAILED): (((60, 200), (30, 200), (30, 740), (60, 740)), (30, 470)),
    (S.IN_PROGRESS, S.COMPLETED): (((600, 188), (800, 188)), (680, 188)),
    (S.COMPLETED, S.IN_PROGRESS): (((800, 212), (600, 212)), (740, 212)),
    (S.IN_PROGRESS, S.FAILED_RETRYABLE): (((450, 227), (450, 282), (130, 282), (130, 363)), (210, 282)),
    (S.FAILED_RETRYABLE, S.IN_PROGRESS): (((180, 363), (180, 322), (478, 322), (478, 227)), (270, 322)),
    (S.IN_PROGRESS, S.UNKNOWN): (((518, 227), (518, 363)), (518, 262)),
    (S.UNKNOWN, S.IN_PROGRESS): (((560, 363), (560, 227)), (560, 300)),
    (S.UNKNOWN, S.PENDING): (((420, 378), (365, 378), (365, 250), (210, 250), (210, 227)), (285, 250)),
    (S.UNKNOWN, S.FAILED_RETRYABLE): (((420, 402), (240, 402)), (310, 402)),
    (S.UNKNOWN, S.COMPLETED): (((600, 390), (840, 390), (840, 227)), (720, 390)),
    (S.UNKNOWN, S.DEAD_LETTER): (((460, 417), (460, 543)), (432, 510)),
    (S.DEAD_LETTER, S.UNKNOWN): (((540, 543), (540, 417)), (582, 510)),
    (S.DEAD_LETTER, S.COMPLETED): (((600, 570), (870, 570), (870, 227)), (720, 570)),
    (S.DEAD_LETTER, S.FAILED_RETRYABLE): (((420, 570), (180, 570), (180, 417)), (300, 570)),
    (S.FAILED_RETRYABLE, S.COMPLETED): (((215, 417), (215, 478), (870, 478), (870, 227)), (720, 478)),
    (S.FAILED_RETRYABLE, S.FAILED): (((95, 417), (95, 713)), (95, 640)),
    (S.FAILED_RETRYABLE, DELETED): (((140, 417), (140, 650), (480, 650), (480, 713)), (300, 650)),
    (S.COMPLETED, S.EXPIRED): (((925, 227), (925, 713)), (925, 640)),
    (S.COMPLETED, DELETED): (((900, 227), (900, 650), (540, 650), (540, 713)), (720, 650)),
    (S.FAILED, DELETED): (((240, 740), (420, 740)), (300, 740)),
    (S.EXPIRED, DELETED): (((800, 740), (600, 740)), (720, 740)),
    (S.FAILED, S.EXPIRED): (((180, 767), (180, 806), (860, 806), (860, 767)), (720, 806)),
    (S.FAILED, S.IN_PROGRESS): (
        ((110, 767), (110, 836), (1030, 836), (1030, 112), (545, 112), (545, 173)),
        (300, 836),
    ),
    (S.EXPIRED, S.IN_PROGRESS): (((980, 740), (1030, 740), (1030, 112), (545, 112), (545, 173)), (1030, 470)),
}


def arrows() -> tuple[dict[Arrow, list[str]], dict[str, list[str]]]:
    """The rows that lead from one box to another, and those that leave a record where it is."""
    moves: dict[Arrow, list[str]] = defaultdict(list)
    stays: dict[str, list[str]] = defaultdict(list)
    for row in TRANSITIONS:
        target = row.target.value
        for source in (status.value for status in Status if status in row.sources) if row.sources else (ABSENT,):
            rows = stays[source] if row.target is Edge.SAME or target == source else moves[source, target]
            if row.cite not in rows:
                rows.append(row.cite)
    if moves.keys() != ROUTES.keys():
        raise SystemExit(f"ROUTES does not fit the table: {sorted(moves.keys() ^ ROUTES.keys())}")
    return moves, stays


def text(x: int, y: int, size: int, colour: str, content: str, style: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{style}>{escape(content)}</text>'


def box(name: str, stays: list[str]) -> str:
    (x, y), colour = BOXES[name]
    dashed = "" if name in set(Status) else ' stroke-dasharray="5 4"'
    frame = f'<rect x="{x - WIDTH // 2}" y="{y - HEIGHT // 2}" width="{WIDTH}" height="{HEIGHT}" rx="8" '
    frame += f'fill="var(--{colour})" stroke="var(--faint)" stroke-width="1.5"{dashed}/>'
    names = ["↻", *stays] if stays else []
    half = len(names) if len(names) <= ONE_LINE else (len(names) + 1) // 2
    lines = [" ".join(line) for line in (names[:half], names[half:]) if line]
    title = text(x, y + 6 - 8 * len(lines), 17, "var(--ink)", name, ' font-weight="bold"')
    below = [
        text(x, y + 24 - 8 * len(lines) + 14 * number, 12, "var(--ink)", line) for number, line in enumerate(lines)
    ]
    return "\n".join([frame, title, *below])


def arrow(route: Arrow) -> str:
    corners = " ".join(f"{x},{y}" for x, y in ROUTES[route][0])
    return f'<polyline points="{corners}" marker-end="url(#head)"/>'


def label(route: Arrow, rows: list[str]) -> str:
    x, y = ROUTES[route][1]
    content = ", ".join(rows)
    width = 8 * len(content) + 12
    pill = f'<rect x="{x - width // 2}" y="{y - 10}" width="{width}" height="20" rx="10" fill="var(--label)"/>'
    return f"{pill}\n{text(x, y + 5, 13, '#ffffff', content)}"


def picture() -> str:
    moves, stays = arrows()
    parts = [
        '<g fill="none" stroke="var(--faint)" stroke-width="2" stroke-linejoin="round">',
        *(arrow(route) for route in ROUTES),
        "</g>",
        *(box(name, stays[name]) for name in BOXES),
        *(label(route, moves[route]) for route in ROUTES),
    ]
    title = "The states of a record; each arrow carries the rows of the table that take it"
    return svg(title, 1060, 866, parts, attributes=' text-anchor="middle"')


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


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
