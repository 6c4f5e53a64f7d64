"""Draw what happens in each mode, and write the section about it.

`tests/flow/test_modes_drawn.py` records a real request in each of them and compares it with what is drawn.
"""

from typing import Final, NamedTuple

from docs.pictures.drawing import DOCS, IMAGES, Note, Step, Story, between, draw

PAGE: Final = DOCS / "start" / "choose-a-mode.md"
BEGIN, END = "<!-- written by docs/pictures: begin -->\n", "<!-- written by docs/pictures: end -->\n"


class Drawing(NamedTuple):
    name: str
    lanes: tuple[str, ...]
    story: Story
    text: str

    @property
    def file(self) -> str:
        return f"mode-{self.name}.svg"


def arrows(source: str, target: str, *labels: str) -> tuple[Step, ...]:
    return tuple(Step(source, target, label) for label in labels)


def writes(source: str, *labels: str) -> tuple[Step, ...]:
    """One transaction."""
    return arrows(source, "database", "BEGIN", *labels, "COMMIT")


def in_state(status: str) -> Note:
    return Note("database", status)


REQUEST, RETRY = Step("client", "view", "request"), Step("client", "view", "retry")
CREATED, REPLAY = Step("view", "client", "201"), Step("view", "client", "201, replay")
ACCEPTED = Step("view", "client", "202")
VIEW, LOOK = Note("view", "your view"), Step("view", "database", "look up")
CLAIMED = (Step("view", "database", "claim"), in_state("in_progress"))
CALL, DONE = Step("view", "provider", "charge"), Step("provider", "view", "done")

ATOMIC: Final[Story] = (
    REQUEST,
    *arrows("view", "database", "BEGIN", "look up"),
    VIEW,
    *arrows("view", "database", "your rows", "response", "COMMIT"),
    in_state("completed"),
    CREATED,
    RETRY,
    *writes("view", "look up"),
    REPLAY,
)
LEASED: Final[Story] = (
    REQUEST,
    *CLAIMED,
    VIEW,
    CALL,
    DONE,
    *writes("view", "your rows", "response"),
    in_state("completed"),
    CREATED,
    RETRY,
    LOOK,
    REPLAY,
)
OPERATION: Final[Story] = (
    REQUEST,
    *CLAIMED,
    Step("view", "database", "arguments"),
    *writes("view", "your rows", "step done"),
    Step("view", "database", "step begun"),
    CALL,
    Note("view", "killed"),
    Note("database", "lease expires"),
    RETRY,
    LOOK,
    *writes("view", "take over"),
    LOOK,
    CALL,
    DONE,
    Step("view", "database", "step done"),
    *writes("view", "response"),
    in_state("completed"),
    CREATED,
)
DEFERRED: Final[Story] = (
    REQUEST,
    *CLAIMED,
    VIEW,
    *writes("view", "arguments"),
    in_state("pending"),
    Step("view", "worker", "message"),
    ACCEPTED,
    Step("worker", "database", "pick up"),
    in_state("in_progress"),
    *writes("worker", "your rows", "step done"),
    *writes("worker", "response"),
    in_state("completed"),
    RETRY,
    LOOK,
    REPLAY,
)
ONCE: Final[Story] = (
    Step("caller", "once", "call"),
    Step("once", "database", "claim"),
    in_state("in_progress"),
    Note("once", "your function"),
    Step("once", "provider", "charge"),
    Step("provider", "once", "done"),
    *writes("once", "your rows", "result"),
    in_state("completed"),
    Step("once", "caller", "result"),
    Step("caller", "once", "call again"),
    Step("once", "database", "look up"),
    Step("once", "caller", "same result"),
)

WEB = ("client", "view", "database")
DRAWINGS: Final = (
    Drawing(
        "atomic",
        WEB,
        ATOMIC,
        "Your rows and the response are written in one transaction. A retry gets the response and runs nothing.",
    ),
    Drawing(
        "leased",
        (*WEB, "provider"),
        LEASED,
        "The claim commits first. Your view calls the provider while no transaction is open. "
        "`finish` then writes your rows and the response in one transaction.",
    ),
    Drawing(
        "operation",
        (*WEB, "provider"),
        OPERATION,
        "Each finished step is marked in the record. Here the process is killed during a call, after the first step. "
        "The retry makes the call again, with the same downstream key, and does not repeat the first step.",
    ),
    Drawing(
        "deferred",
        (*WEB, "worker"),
        DEFERRED,
        "The view stores the arguments of the work and responds with 202. A worker does the work. "
        "A retry then gets its response.",
    ),
    Drawing(
        "once",
        ("caller", "once", "database", "provider"),
        ONCE,
        "Outside HTTP, [`once`](../how-to/outside-http.md) does the same for a function: "
        "here in leased mode, its default.",
    ),
)


def section(drawing: Drawing) -> str:
    alt = f"{drawing.name.capitalize()}, in this order: {', '.join(item.label for item in drawing.story)}."
    text = drawing.text.replace(". ", ".\n")
    return f"### {drawing.name.capitalize()}\n\n{text}\n\n![{alt}](../images/{drawing.file})\n\n"


def picture(drawing: Drawing) -> str:
    return draw(drawing.name.capitalize(), drawing.lanes, drawing.story)


def page(text: str) -> str:
    return between(text, BEGIN, END, "\n" + "".join(section(drawing) for drawing in DRAWINGS))


def write() -> None:
    PAGE.write_text(page(PAGE.read_text()))
    for drawing in DRAWINGS:
        (IMAGES / drawing.file).write_text(picture(drawing))
