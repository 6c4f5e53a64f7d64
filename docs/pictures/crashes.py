"""Draw what each crash leaves behind, and write the page about it.

`tests/flow/test_crashes_drawn.py` plays each of them and compares what is left with what is drawn.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from docs.pictures.drawing import DOCS, IMAGES, Note, Step, between, draw

PAGE: Final = DOCS / "explanation" / "how-it-fails.md"
BEGIN, END = "<!-- written by docs/pictures: begin {} -->\n", "<!-- written by docs/pictures: end {} -->\n"
LANES: Final = {
    "atomic": ("client", "process", "database"),
    "leased": ("client", "process", "database", "provider"),
}


class Crash(NamedTuple):
    mode: str
    name: str
    before: tuple[Step | Note, ...]
    record: str  # its status in the database afterwards; "" if there is none
    rows: int
    charges: int
    retry: str  # a key of RETRIES
    verdict: str  # a key of VERDICTS; "" if nothing is open
    remark: str = ""
    killed: bool = True

    @property
    def file(self) -> str:
        return f"crash-{self.mode}-{self.name.lower().replace(' ', '-')}.svg"


RETRIES: Final = {  # label of the arrow, and the sentence
    "runs": ("201, runs", "the view runs, as for a new request."),
    "replay": ("201, replay", "the stored response, with `Idempotency-Replayed: true`."),
    "running": (
        "409, running",
        "409 with `Retry-After`, and 409 with `safe_new_key: false` when the lease has expired.",
    ),
    "unknown": ("409, unknown", "409 with `safe_new_key: false`."),
}
VERDICTS: Final = {
    "landed": "the reconciler, which finds the charge, writes your rows and stores the response.",
    "not executed": "the reconciler, which finds no charge. When the grace period has ended, the next retry runs.",
}

ARRIVE, GONE = Step("client", "process", "request"), Step("process", "client", "201", lost=True)
CLAIM, BEGUN = Step("process", "database", "claim"), Step("process", "database", "BEGIN")
VIEW, KILLED = Note("process", "your view"), Note("process", "killed")
CALL, DONE = Step("process", "provider", "charge"), Step("provider", "process", "done")
STORE, COMMIT = Step("process", "database", "rows, response"), Step("process", "database", "COMMIT")
LOST, UNDONE = COMMIT._replace(lost=True), COMMIT._replace(label="ROLLBACK")
LEASED = (ARRIVE, CLAIM, VIEW, CALL, DONE, BEGUN, STORE, COMMIT)
ATOMIC = (ARRIVE, BEGUN, VIEW, STORE, COMMIT)
EXPIRED = (Note("process", "lease expires"), Note("database", "unknown"))
RAN_AGAIN = (
    Note("database", "not executed"),
    Step("client", "process", "retry"),
    Step("process", "client", "201, runs"),
)
SWEPT = (*LEASED[:5], KILLED, Step("process", "database", "sweep", lost=True))
LATE = (*LEASED[:5], *EXPIRED, BEGUN, STORE, COMMIT)
TOO_LATE = (*LEASED[:3], *EXPIRED, *RAN_AGAIN, CALL, DONE, BEGUN, STORE._replace(lost=True), UNDONE)

ROLLED_BACK = "The database rolls the transaction back."
NEXT = "The next request or the next sweep marks the record as unknown."
COUNTS = "There was no verdict yet, so the late response counts."
FENCED = (
    "The late handler no longer owns the record: its rows are rolled back, and its client gets the stored response. "
    "It sent the same downstream key, so the provider made one charge."
)

CRASHES: Final = (
    Crash("atomic", "before the claim", ATOMIC[:1], "", 0, 0, "runs", ""),
    Crash("atomic", "during the view", ATOMIC[:3], "", 0, 0, "runs", "", ROLLED_BACK),
    Crash("atomic", "COMMIT lost", (*ATOMIC[:4], LOST), "", 0, 0, "runs", ""),
    Crash("atomic", "COMMIT arrived", ATOMIC, "completed", 1, 0, "replay", ""),
    Crash("atomic", "before the response", ATOMIC, "completed", 1, 0, "replay", ""),
    Crash("atomic", "client gone", (*ATOMIC, GONE), "completed", 1, 0, "replay", "", killed=False),
    Crash("leased", "before the claim", LEASED[:1], "", 0, 0, "runs", ""),
    Crash("leased", "after the claim", LEASED[:2], "in_progress", 0, 0, "running", "not executed"),
    Crash("leased", "before the call", LEASED[:3], "in_progress", 0, 0, "running", "not executed"),
    Crash("leased", "after the call", LEASED[:5], "in_progress", 0, 1, "running", "landed"),
    Crash("leased", "COMMIT lost", (*LEASED[:7], LOST), "in_progress", 0, 1, "running", "landed"),
    Crash("leased", "COMMIT arrived", LEASED, "completed", 1, 1, "replay", ""),
    Crash("leased", "before the response", LEASED, "completed", 1, 1, "replay", ""),
    Crash("leased", "client gone", (*LEASED, GONE), "completed", 1, 1, "replay", "", killed=False),
    Crash("leased", "sweeper", SWEPT, "in_progress", 0, 1, "unknown", "landed", NEXT),
    Crash("leased", "late handler", LATE, "completed", 1, 1, "replay", "", COUNTS, killed=False),
    Crash("leased", "late handler after a verdict", TOO_LATE, "completed", 1, 1, "replay", "", FENCED, killed=False),
)


def story(crash: Crash) -> Iterator[Step | Note]:
    yield from crash.before
    if crash.killed:
        yield KILLED
    yield Note("database", crash.record or "nothing")
    yield Step("client", "process", "retry")
    yield Step("process", "client", RETRIES[crash.retry][0])


def picture(crash: Crash) -> str:
    return draw(f"{crash.mode.capitalize()}: {crash.name}", LANES[crash.mode], list(story(crash)))


def left_behind(crash: Crash) -> str:
    record = f"the record is `{crash.record}`" if crash.record else "no record"
    rows = "your rows are written" if crash.rows else "none of your rows" + (" is written" if crash.record else "")
    charge = {"atomic": "", "leased": "; the provider has " + ("one charge" if crash.charges else "no charge")}
    return f"{record}, {rows}{charge[crash.mode]}."


def section(crash: Crash) -> str:
    alt = f"{crash.name[0].upper()}{crash.name[1:]}, {crash.mode} mode: {left_behind(crash)}"
    lines = [f"### {crash.mode.capitalize()}: {crash.name}", ""]
    lines += [
        f"![{alt}](../images/{crash.file})",
        "",
        *_bullet("Left behind", f"{left_behind(crash)} {crash.remark}".strip()),
    ]
    lines += _bullet("A retry", RETRIES[crash.retry][1])
    if crash.verdict:
        lines += _bullet("Settled by", VERDICTS[crash.verdict])
    return "\n".join([*lines, "", ""])


def _bullet(name: str, text: str) -> list[str]:
    return f"- {name}: {text}".replace(". ", ".\n  ").splitlines()


def page(text: str) -> str:
    for mode in LANES:
        sections = "".join(section(crash) for crash in CRASHES if crash.mode == mode)
        text = between(text, BEGIN.format(mode), END.format(mode), f"\n{sections}")
    return text


def write() -> None:
    PAGE.write_text(page(PAGE.read_text()))
    for crash in CRASHES:
        (IMAGES / crash.file).write_text(picture(crash))
