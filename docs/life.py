"""Draw the five boxes of a record's life, light and dark: python -m docs.life"""

from pathlib import Path
from typing import Final, NamedTuple

IMAGES: Final = Path(__file__).parent / "images"


class Colours(NamedTuple):
    text: str
    faint: str
    fill: str
    good: str
    warn: str


THEMES: Final = {
    "light": Colours("#1b1f24", "#57606a", "#f6f8fa", "#1a7f37", "#9a6700"),
    "dark": Colours("#e6edf3", "#9198a1", "#161b22", "#3fb950", "#d29922"),
}
# Portrait: legible on a telephone without zooming.
BOXES: Final = (  # name, line below it, x, y, and whether it is good or a warning
    ("new", "a key arrives", 20, 20, ""),
    ("running", "your view runs", 20, 120, ""),
    ("done", "response stored", 20, 240, "good"),
    ("unknown", "nothing runs", 240, 240, "warn"),
    ("settled", "evidence decides", 240, 360, ""),
)
WIDTH: Final = 150
HEIGHT: Final = 56
ARROWS: Final = (  # path, label, where the label is
    ("M95,76 V117", "claim", (103, 101)),
    ("M95,176 V237", "commit", (103, 212)),
    ("M170,158 Q315,158 315,237", "crash, expired lease", (176, 196)),
    ("M315,296 V357", "", (0, 0)),
    ("M240,398 Q95,398 95,299", "it happened", (118, 414)),
    ("M390,388 Q406,388 406,300 Q406,136 173,136", "it did not happen: it may run again", (186, 120)),
    ("M20,282 Q0,268 17,254", "replay", (24, 316)),
)


def draw(colours: Colours) -> str:
    kinds = {"": colours.faint, "good": colours.good, "warn": colours.warn}
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 412 430" font-family="system-ui, sans-serif">',
        f'<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{colours.faint}"/></marker></defs>',
    ]
    for path, label, (x, y) in ARROWS:
        parts += [
            f'<path d="{path}" fill="none" stroke="{colours.faint}" stroke-width="1.6" marker-end="url(#a)"/>',
            f'<text x="{x}" y="{y}" font-size="12" fill="{colours.faint}">{label}</text>',
        ]
    for name, line, x, y, kind in BOXES:
        middle = x + WIDTH / 2
        parts += [
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="{colours.fill}" '
            f'stroke="{kinds[kind]}" stroke-width="2"/>',
            f'<text x="{middle:g}" y="{y + 25}" font-size="17" font-weight="600" text-anchor="middle" '
            f'fill="{colours.text}">{name}</text>',
            f'<text x="{middle:g}" y="{y + 44}" font-size="12.5" text-anchor="middle" '
            f'fill="{colours.faint}">{line}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    for theme, colours in THEMES.items():
        (IMAGES / f"life-{theme}.svg").write_text(draw(colours))
