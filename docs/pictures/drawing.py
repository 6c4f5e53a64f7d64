"""What every drawn picture needs: its colours in both themes, and arrows between the lanes of a sequence.

One file serves both themes: it follows the `color-scheme` of the page that shows it. It brings its own background, so
that it stays legible where it does not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

DOCS: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = DOCS / "images"
SANS, MONO = "system-ui, sans-serif", "ui-monospace, SFMono-Regular, Menlo, Consolas, monospace"

COLOURS: Final = {  # on a light page, and on a dark one; `var(--name)` in a picture
    "page": ("#ffffff", "#131416"),
    "ink": ("#1b1f24", "#e6edf3"),
    "faint": ("#57606a", "#9198a1"),
    "rule": ("#d0d7de", "#3d444d"),
    "fill": ("#f6f8fa", "#1d2229"),
    "open": ("#ddeefb", "#14293f"),
    "label": ("#475569", "#475569"),
    "good": ("#1a7f37", "#3fb950"),
    "warn": ("#9a6700", "#d29922"),
    "grey": ("#e2e8f0", "#363d49"),
    "blue": ("#bfdbfe", "#1d3c66"),
    "green": ("#bbf7d0", "#16482d"),
    "red": ("#fecaca", "#5b2428"),
    "violet": ("#ddd6fe", "#3d3470"),
    "amber": ("#fde68a", "#574409"),
    "orange": ("#fed7aa", "#5d3513"),
    "line-1": ("#2563eb", "#60a5fa"),
    "line-2": ("#d97706", "#f59e0b"),
    "line-3": ("#059669", "#34d399"),
    "line-4": ("#9333ea", "#c084fc"),
}


def svg(title: str, width: int, height: float, parts: Iterable[str], font: str = SANS, attributes: str = "") -> str:
    light, dark = ("".join(f"--{name}:{pair[theme]};" for name, pair in COLOURS.items()) for theme in (0, 1))
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}" width="{width}" height="{height:g}"'
        f' role="img" aria-labelledby="title" font-family="{font}"{attributes}>',
        f'<title id="title">{escape(title)}</title>',
        f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" markerHeight="6" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="var(--faint)"/></marker></defs>',
        f'<rect width="{width}" height="{height:g}" fill="var(--page)"/>',
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


class Step(NamedTuple):
    """An arrow from one lane to another; one that is lost does not arrive."""

    source: str
    target: str
    label: str
    lost: bool = False


class Note(NamedTuple):
    """What happens in one lane."""

    lane: str
    label: str


Story = Sequence[Step | Note]

WIDTH, ROW, TOP = 412, 32, 46  # legible on a telephone without zooming
PLACES: Final = {3: (50, 205, 350), 4: (40, 150, 270, 370)}  # of the lanes
TONES: Final = {"completed": "good", "killed": "warn", "lease expires": "warn", "unknown": "warn"}  # of notes
ENDS: Final = ("COMMIT", "ROLLBACK", "killed")  # of a transaction


def draw(title: str, lanes: Sequence[str], story: Story) -> str:
    """Draw a story from the top down; the time in which a transaction is open is shaded."""
    height, places = TOP + ROW * len(story) + 20, dict(zip(lanes, PLACES[len(lanes)], strict=True))
    parts = [*_transactions(places, story)]
    for name, x in places.items():
        parts.append(f'<path d="M{x},30 V{height - 6}" stroke="var(--faint)" stroke-dasharray="2 4"/>')
        parts.append(f'<text x="{x}" y="22" font-weight="600" fill="var(--ink)">{name}</text>')
    for number, item in enumerate(story):
        parts += _note(places, item, _row(number)) if isinstance(item, Note) else _arrow(places, item, _row(number))
    return svg(title, WIDTH, height, parts, attributes=' font-size="13.5" text-anchor="middle"')


def _row(number: int) -> int:
    return TOP + ROW * number + 20


def _transactions(places: Mapping[str, int], story: Story) -> Iterator[str]:
    begun: tuple[int, Step] | None = None
    for number, item in enumerate(story):
        if isinstance(item, Step) and item.label == "BEGIN":
            begun = number, item
        elif begun is not None and item.label in ENDS:
            (first, step), begun = begun, None
            left, right = sorted((places[step.source], places[step.target]))
            top, bottom = _row(first) - 21, _row(number) + 6
            yield (f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" fill="var(--open)"/>')


def _note(places: Mapping[str, int], note: Note, y: int) -> Iterator[str]:
    width, x = 8 * len(note.label) + 16, places[note.lane]
    yield (
        f'<rect x="{x - width / 2:g}" y="{y - 18}" width="{width}" height="24" rx="6" fill="var(--fill)" '
        f'stroke="var(--{TONES.get(note.label, "faint")})" stroke-width="1.6"/>'
    )
    yield f'<text x="{x}" y="{y - 1}" fill="var(--ink)">{note.label}</text>'


def _arrow(places: Mapping[str, int], step: Step, y: int) -> Iterator[str]:
    start, end = places[step.source], places[step.target]
    aim = end - (22 if step.lost else 4) * (1 if end > start else -1)
    yield f'<path d="M{start},{y} H{aim}" stroke="var(--faint)" stroke-width="1.6" marker-end="url(#head)"/>'
    if step.lost:
        cross = f"M{aim - 4 + (8 if end > start else -8)},{y - 4} l8,8 m0,-8 l-8,8"
        yield f'<path d="{cross}" stroke="var(--warn)" stroke-width="2.4" fill="none"/>'
    right = max(start, end)
    left = max(x for x in places.values() if x < right)  # the label of a long arrow is in its last gap
    yield f'<text x="{(left + right) / 2:g}" y="{y - 7}" fill="var(--ink)">{step.label}</text>'


def between(text: str, begin: str, end: str, written: str) -> str:
    """Return the text of a page with what is between two of its lines replaced."""
    head, _, rest = text.partition(begin)
    return f"{head}{begin}{written}{end}{rest.partition(end)[2]}"
