"""Draw the five boxes of a record's life."""

from typing import Final

from docs.pictures.drawing import IMAGES, svg

PICTURE: Final = IMAGES / "life.svg"
# Portrait: legible on a telephone without zooming.
BOXES: Final = (  # name, line below it, x, y, and its tone
    ("new", "a key arrives", 20, 20, "faint"),
    ("running", "your view runs", 20, 120, "faint"),
    ("done", "response stored", 20, 240, "good"),
    ("unknown", "nothing runs", 240, 240, "warn"),
    ("settled", "evidence decides", 240, 360, "faint"),
)
WIDTH: Final = 150
HEIGHT: Final = 56
ARROWS: Final = (  # path, label, where the label is
    ("M95,76 V117", "claim", (103, 101)),
    ("M95,176 V237", "commit", (103, 212)),
    ("M170,158 Q315,158 315,237", "crash, expired lease", (170, 216)),
    ("M315,296 V357", "", (0, 0)),
    ("M240,398 Q95,398 95,299", "it happened", (118, 414)),
    ("M390,388 Q406,388 406,300 Q406,136 173,136", "it did not happen: it may run again", (172, 112)),
    ("M20,282 Q0,268 17,254", "replay", (24, 316)),
)


def picture() -> str:
    parts = []
    for path, label, (x, y) in ARROWS:
        parts += [
            f'<path d="{path}" fill="none" stroke="var(--faint)" stroke-width="1.6" marker-end="url(#head)"/>',
            f'<text x="{x}" y="{y}" font-size="13" fill="var(--faint)">{label}</text>',
        ]
    for name, line, x, y, tone in BOXES:
        middle = x + WIDTH / 2
        parts += [
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="8" fill="var(--fill)" '
            f'stroke="var(--{tone})" stroke-width="2"/>',
            f'<text x="{middle:g}" y="{y + 25}" font-size="17" font-weight="600" text-anchor="middle" '
            f'fill="var(--ink)">{name}</text>',
            f'<text x="{middle:g}" y="{y + 44}" font-size="13" text-anchor="middle" fill="var(--faint)">{line}</text>',
        ]
    return svg("The life of a record", 412, 430, parts)


def write() -> None:
    PICTURE.write_text(picture())
