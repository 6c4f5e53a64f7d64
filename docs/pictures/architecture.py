"""Draw the rooms of the package and the flows through them from the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, unescape

from docs.pictures.drawing import IMAGES, MONO, svg
from docs.pictures.traces import DATABASE, YOURS, Line, flows

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGE: Final = ROOT / "django_idempotency"
PREFIX: Final = "architecture-"

WIDTH: Final = 420  # legible on a phone without zooming
STEP, ROW, BOX, EDGE = 14, 28, 22, 4
CHARACTERS: Final = 50
COLOURS: Final = {
    "your code": "red",
    "entrance": "amber",
    "http": "orange",
    "flow": "blue",
    "store": "green",
    "database": "grey",
    "base": "violet",
}
LANES: Final = list(COLOURS)


class Room(NamedTuple):
    """A folder, or some modules that lie directly in the package."""

    name: str
    lane: str
    purpose: str
    members: tuple[str, ...] = ()  # the modules, where it is not a folder

    @property
    def tops(self) -> tuple[str, ...]:
        return self.members or (self.name,)


# From the top down: a room imports from its own layer and from those below.
LAYERS: Final = (
    (
        Room("checks", "entrance", "system checks: what cannot work is reported at startup"),
        Room("console", "entrance", "the admin's record pages, actions and dashboard"),
        Room("management", "entrance", "the commands"),
        Room("contrib", "entrance", "adapters that a project switches on"),
        Room("Django's own", "entrance", "found by name", ("admin", "apps", "templatetags")),
    ),
    (
        Room("http", "http", "requests, responses and request.idempotency"),
        Room("monitoring", "base", "health, findings, durations, metrics"),
        Room(
            "the public modules",
            "entrance",
            "what a project imports",
            (
                "decorators", "middleware", "protection", "ninja", "rest_framework", "operations", "once",
                "reconciliation", "maintenance", "key_sources", "tasks", "tenants", "testing", "urls", "health_urls",
                "rules_urls", "admin_forms",
            ),
        ),
    ),
    (Room("flow", "flow", "the life of an attempt, one stage per file"),),
    (Room("store", "store", "the only SQL"),),
    (Room("the record", "base", "tables, settings, signals", ("models", "conf", "signals", "fields", "migrations")),),
    (
        Room("core", "base", "decisions without Django, SQL or a clock"),
        Room("errors", "base", "", ("exceptions",)),
        Room("client", "your code", "calls other services; needs no Django"),
    ),
)  # fmt: skip

TITLES: Final = {
    "rooms": "The rooms of the package; a layer imports from itself and from those below it",
    "new-request": "A new leased request",
    "replay": "A replay",
    "deferred": "Deferred work: accept, perform, poll",
    "unknown": "An unknown outcome: settled by the reconciler, and by an operator",
}


def modules() -> dict[str, Path]:
    """Every module with something in it, by its name within the package."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] != "__init__" and "migrations" not in parts:
            found[".".join(parts)] = path
    return found


def imports(path: Path) -> Iterator[str]:
    """The top-level names of the package that a module imports, wherever in the file it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE.name:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (parts[1] for parts in (name.split(".") for name in names) if len(parts) > 1)


def room_of(top: str) -> Room:
    for room in (room for layer in LAYERS for room in layer):
        if top in room.tops:
            return room
    raise SystemExit(f"{top} is in no room of LAYERS in docs/pictures/architecture.py.")


def is_module(top: str) -> bool:
    return (PACKAGE / top).is_dir() or (PACKAGE / f"{top}.py").exists()


def imported_rooms(room: Room) -> list[str]:
    """The other rooms that a room imports from, the highest first."""
    names = {
        room_of(top).name
        for module, path in modules().items()
        if module.split(".")[0] in room.tops
        for top in imports(path)
        if is_module(top)
    }
    return [each.name for layer in LAYERS for each in layer if each.name in names - {room.name}]


def contents(room: Room) -> list[str]:
    if room.members:
        return list(room.members)
    return [module.partition(".")[2] for module in modules() if module.split(".")[0] == room.name]


# Drawing


def text(x: float, y: float, content: str, size: float = 13, colour: str = "var(--ink)", style: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{style}>{escape(content)}</text>'


def box(x: float, y: float, width: float, height: float, colour: str, radius: int = 5) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}" fill="var(--{colour})" '
        'stroke="var(--rule)"/>'
    )


def arrow(x: float, top: float, bottom: float) -> str:
    return f'<path d="M{x},{top} V{bottom}" stroke="var(--faint)" stroke-width="2" marker-end="url(#head)"/>'


def titled(name: str, height: float, parts: list[str]) -> str:
    return svg(TITLES[name], WIDTH, height, parts, font=MONO)


def heading(y: float, title: str) -> str:
    return box(EDGE, y, WIDTH - 2 * EDGE, 26, "label") + "\n" + text(14, y + 18, title, 14, "#ffffff", BOLD)


BOLD: Final = ' font-weight="bold"'


def rooms() -> str:
    """The layers from the top down, with the modules of each room and the rooms that it imports from."""
    parts, y = [], float(EDGE)
    for number, layer in enumerate(LAYERS):
        if number:
            parts.append(arrow(WIDTH / 2, y - 6, y + 16))
            y += 20
        for room in layer:
            drawn, height = room_box(room, y)
            parts.append(drawn)
            y += height + 6
    return titled("rooms", y, parts)


def room_box(room: Room, y: float) -> tuple[str, float]:
    title = room.name if room.members else f"{room.name}/"
    lines = [(title, 15, BOLD), *((line, 13, "") for line in wrap(room.purpose, CHARACTERS))]
    listed = wrap(" ".join(contents(room)), CHARACTERS)
    lines += [(line, 13, ' fill-opacity="0.75"') for line in listed if listed != [room.purpose]]
    targets = imported_rooms(room)
    lines += [(line, 13, BOLD) for line in wrap("imports " + ", ".join(targets), CHARACTERS) if targets]
    height = 17 * len(lines) + 12
    drawn = [box(EDGE, y, WIDTH - 2 * EDGE, height, COLOURS[room.lane])]
    drawn += [text(14, y + 20 + 17 * place, line, size, style=style) for place, (line, size, style) in enumerate(lines)]
    return "\n".join(drawn), height


def lane_of(module: str) -> str:
    return module if module in (YOURS, DATABASE) else room_of(module.split(".")[0]).lane


def legend(y: float) -> tuple[list[str], float]:
    parts, x = [], float(EDGE)
    for name, colour in COLOURS.items():
        width = 7.9 * len(name) + 14
        if x + width > WIDTH - EDGE:
            x, y = EDGE, y + 26
        parts += [box(x, y, width, 20, colour), text(x + 7, y + 14, name)]
        x += width + 6
    return parts, y + 30


def flow(name: str, acts: dict[str, list[Line]]) -> str:
    """One box for each module that an act enters, in that order, and for each statement in between."""
    parts, y = legend(EDGE)
    for title, lines in acts.items():
        parts.append(heading(y, title))
        y += 34
        for number, line in enumerate(lines, start=1):
            x = EDGE + STEP * LANES.index(lane_of(line.module))
            top = y + ROW * (number - 1)
            said = f'{escape(line.module)} <tspan font-weight="normal">{escape(line.does)}</tspan>'
            parts.append(box(x, top, WIDTH - EDGE - x, BOX, COLOURS[lane_of(line.module)]))
            parts.append(f'<text x="{x + 7}" y="{top + 15}" font-size="13" fill="var(--ink)"{BOLD}>{said}</text>')
            parts.append(text(WIDTH - EDGE - 7, top + 15, str(number), style=' text-anchor="end"'))
        y += ROW * len(lines) + 8
    return titled(name, y, parts)


def words(picture: str) -> list[str]:
    """Everything that a picture says, in its order."""
    found = re.findall(r"<t(?:ext|itle)[^>]*>(.*?)</t(?:ext|itle)>", picture)
    return [unescape(re.sub(r"<[^>]+>", "", each)) for each in found]


def stored(name: str) -> Path:
    return IMAGES / f"{PREFIX}{name}.svg"


def pictures() -> dict[str, str]:
    return {"rooms": rooms(), **{name: flow(name, acts) for name, acts in flows().items()}}


def write() -> None:
    for name, picture in pictures().items():
        stored(name).write_text(picture, encoding="utf-8")
