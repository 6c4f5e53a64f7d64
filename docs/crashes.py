"""Draw what each crash leaves behind, and write the page about it: python -m docs.crashes

`tests/flow/test_crashes_drawn.py` plays each of them and compares what is left with what is drawn.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from docs import life

DOCS: Final = Path(__file__).parent
IMAGES: Final = DOCS / "images"
PAGE: Final = DOCS / "explanation" / "how-it-fails.md"
BEGIN, END = "<!-- written by docs/crashes.py: begin {} -->\n", "<!-- written by docs/crashes.py: end {} -->\n"
THEMES: Final = life.THEMES

LANES: Final = {"client": 40, "process": 150, "database": 270, "provider": 370}
WIDTH, ROW, TOP = 412, 32, 46


class Step(NamedTuple):
    """An arrow; one that is lost does not arrive."""

    source: str
    target: str
    label: str
    lost: bool = False


class Note(NamedTuple):
    """What happens in one lane; `kind` chooses the colour."""

    lane: str
    label: str
    kind: str = ""


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
        return f"crash-{self.mode}-{self.name.lower().replace(' ', '-')}"


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
KINDS: Final = {"completed": "good", "in_progress": "", "unknown": "warn", "": ""}

ARRIVE, GONE = Step("client", "process", "request"), Step("process", "client", "201", lost=True)
CLAIM, BEGUN = Step("process", "database", "claim"), Step("process", "database", "BEGIN")
VIEW, KILLED = Note("process", "your view"), Note("process", "killed", "warn")
CALL, DONE = Step("process", "provider", "charge"), Step("provider", "process", "done")
STORE, COMMIT = Step("process", "database", "rows, response"), Step("process", "database", "COMMIT")
LOST = COMMIT._replace(lost=True)
LEASED = (ARRIVE, CLAIM, VIEW, CALL, DONE, STORE, COMMIT)
ATOMIC = (ARRIVE, BEGUN, VIEW, STORE, COMMIT)
EXPIRED = (Note("process", "lease expires", "warn"), Note("database", "unknown", "warn"))
RAN_AGAIN = (
    Note("database", "not executed"),
    Step("client", "process", "retry"),
    Step("process", "client", "201, runs"),
)
SWEPT = (*LEASED[:5], KILLED, Step("process", "database", "sweep", lost=True))
LATE = (*LEASED[:5], *EXPIRED, STORE, COMMIT)
TOO_LATE = (*LEASED[:3], *EXPIRED, *RAN_AGAIN, CALL, DONE, STORE._replace(lost=True))

ROLLED_BACK = "The database rolls the transaction back."
NEXT = "The next request or the next sweep marks the record as unknown."
COUNTS = "No verdict was there yet, so the late response counts."
FENCED = (
    "The late handler lost its fence, so its rows are rolled back and its own client gets the stored response. "
    "The downstream key is the same, so the provider made one charge."
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
    Crash("leased", "COMMIT lost", (*LEASED[:6], LOST), "in_progress", 0, 1, "running", "landed"),
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
        yield Note("process", "killed", "warn")
    yield Note("database", crash.record or "nothing", KINDS[crash.record])
    yield Step("client", "process", "retry")
    yield Step("process", "client", RETRIES[crash.retry][0])


def draw(crash: Crash, colours: life.Colours) -> str:
    kinds = {"": colours.faint, "good": colours.good, "warn": colours.warn}
    items = list(story(crash))
    height = TOP + ROW * len(items) + 20
    lanes = [name for name in LANES if name != "provider" or crash.mode == "leased"]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="13.5" text-anchor="middle">',
        f'<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{colours.faint}"/></marker></defs>',
    ]
    for name in lanes:
        parts.append(f'<path d="M{LANES[name]},30 V{height - 6}" stroke="{colours.faint}" stroke-dasharray="2 4"/>')
        parts.append(f'<text x="{LANES[name]}" y="22" font-weight="600" fill="{colours.text}">{name}</text>')
    for number, item in enumerate(items):
        y = TOP + ROW * number + 20
        parts += _note(item, y, kinds[item.kind], colours) if isinstance(item, Note) else _arrow(item, y, colours)
    return "\n".join([*parts, "</svg>", ""])


def _note(note: Note, y: int, colour: str, colours: life.Colours) -> Iterator[str]:
    width, x = 8 * len(note.label) + 16, LANES[note.lane]
    yield (
        f'<rect x="{x - width / 2:g}" y="{y - 18}" width="{width}" height="24" rx="6" fill="{colours.fill}" '
        f'stroke="{colour}" stroke-width="1.6"/>'
    )
    yield f'<text x="{x}" y="{y - 1}" fill="{colours.text}">{note.label}</text>'


def _arrow(step: Step, y: int, colours: life.Colours) -> Iterator[str]:
    start, end = LANES[step.source], LANES[step.target]
    aim = end - (22 if step.lost else 4) * (1 if end > start else -1)
    yield f'<path d="M{start},{y} H{aim}" stroke="{colours.faint}" stroke-width="1.6" marker-end="url(#a)"/>'
    if step.lost:
        cross = f"M{aim - 5 + (8 if end > start else -8)},{y - 5} l10,10 m0,-10 l-10,10"
        yield f'<path d="{cross}" stroke="{colours.warn}" stroke-width="2.4" fill="none"/>'
    middle = (max(start, end) + LANES["database"]) / 2 if "provider" in step[:2] else (start + end) / 2
    yield f'<text x="{middle:g}" y="{y - 6}" fill="{colours.text}">{step.label}</text>'


def left_behind(crash: Crash) -> str:
    record = f"the record is `{crash.record}`" if crash.record else "no record"
    rows = "your rows are written" if crash.rows else "none of your rows" + (" is written" if crash.record else "")
    charge = {"atomic": "", "leased": "; the provider has " + ("one charge" if crash.charges else "no charge")}
    return f"{record}, {rows}{charge[crash.mode]}."


def section(crash: Crash) -> str:
    alt = f"{crash.name[0].upper()}{crash.name[1:]}, {crash.mode} mode: {left_behind(crash)}"
    lines = [f"### {crash.mode.capitalize()}: {crash.name}", ""]
    lines += [f"![{alt}](../images/{crash.file}-{theme}.svg){{.only-{theme}}}" for theme in THEMES]
    lines += ["", *_bullet("Left behind", f"{left_behind(crash)} {crash.remark}".strip())]
    lines += _bullet("A retry", RETRIES[crash.retry][1])
    if crash.verdict:
        lines += _bullet("Settled by", VERDICTS[crash.verdict])
    return "\n".join([*lines, "", ""])


def _bullet(name: str, text: str) -> list[str]:
    return f"- {name}: {text}".replace(". ", ".\n  ").splitlines()


def page(text: str) -> str:
    for mode in ("atomic", "leased"):
        begin, end = BEGIN.format(mode), END.format(mode)
        head, _, rest = text.partition(begin)
        tail = rest.partition(end)[2]
        sections = "".join(section(crash) for crash in CRASHES if crash.mode == mode)
        text = f"{head}{begin}\n{sections}{end}{tail}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    for crash in CRASHES:
        for theme, colours in THEMES.items():
            (IMAGES / f"{crash.file}-{theme}.svg").write_text(draw(crash, colours))
