"""Write the table of docs/reference/errors.md that says what is known about the effect of a record's request."""

from typing import Final

from django_idempotency import Status
from django_idempotency.core.effects import Effect, effect_of
from docs.pictures.drawing import DOCS, between

PAGE: Final = DOCS / "reference" / "errors.md"
BEGIN, END = "<!-- written by docs/pictures: begin -->\n", "<!-- written by docs/pictures: end -->\n"
HEAD: Final = ("the record", "without a trace", "with a trace")
_ANSWERED: Final = (Status.COMPLETED, Status.EXPIRED)
# Each row with one record that it is about: its state, the status of its response, the rest of its grace period.
_EXAMPLES: Final[dict[str, tuple[Status, int | None, float | None]]] = {
    "status `pending`, `in_progress`, `unknown` or `dead_letter`": (Status.UNKNOWN, None, None),
    "status `completed` or `expired`, with a success (2xx or 3xx)": (Status.COMPLETED, 201, None),
    "status `completed` or `expired`, with an error below 500": (Status.COMPLETED, 402, None),
    "status `completed` or `expired`, with any other response": (Status.COMPLETED, 500, None),
    "status `failed`": (Status.FAILED, 500, None),
    "status `failed_retryable`, within the grace period": (Status.FAILED_RETRYABLE, None, 1.0),
    "status `failed_retryable`, after the grace period": (Status.FAILED_RETRYABLE, None, None),
}
ROWS: Final[dict[str, tuple[Effect, Effect]]] = {
    name: (effect_of(*example), effect_of(*example, traced=True)) for name, example in _EXAMPLES.items()
}


def row_of(status: Status, reply_status: int | None, grace_left: float | None) -> str:
    """Return the row that is about such a record."""
    names = list(_EXAMPLES)
    if status in Status.OPEN:
        return names[0]
    if status in _ANSWERED:
        kind = 5 if reply_status is None else reply_status // 100
        return names[{2: 1, 3: 1, 4: 2, 5: 3}[kind]]
    if status is Status.FAILED:
        return names[4]
    return names[5] if grace_left is not None and grace_left > 0 else names[6]


def table() -> str:
    lines = [HEAD, ("---",) * len(HEAD), *((name, *(f"`{each}`" for each in row)) for name, row in ROWS.items())]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def page(text: str) -> str:
    """Return the page with the table as the code says it."""
    return between(text, BEGIN, END, table())


def write() -> None:
    PAGE.write_text(page(PAGE.read_text()))
