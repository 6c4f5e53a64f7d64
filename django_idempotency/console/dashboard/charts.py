"""Charts as SVG text, for the page of the dashboard. Pure: labels and colours are given by the caller.

Horizontal positions are shares of the width, vertical ones are pixels: a chart fits a phone and a wide screen, and its
letters keep their size. Colours are classes of the style sheet; nothing here needs an inline style.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

LEAST_SHARE: Final = 0.006  # so that a small value can be seen
LINE: Final = 22  # a line of text
BAR: Final = 12
BAR_ROW: Final = LINE + BAR + 12
PLOT: Final = 40
PANEL: Final = LINE + PLOT + 14
RANGE_ROW: Final = LINE + 18 + 10


class BarPart(NamedTuple):
    """A piece of a bar."""

    tone: str
    length: float
    url: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """One value with its name."""

    label: str
    value: str  # as it is written beside the label
    parts: Sequence[BarPart]  # side by side
    url: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One series over time with its own scale; each column with its tooltip."""

    label: str
    value: str
    more: str  # written after the value where the screen is wide enough
    tone: str
    values: Sequence[float]
    tooltips: Sequence[str]
    url: str = ""
    urls: Sequence[str] = ()  # of the columns
    peak: str = ""  # where its axis ends


@dataclass(frozen=True, slots=True)
class Range:
    """Two measures of one thing against its limit."""

    label: str
    value: str
    low: float
    high: float | None
    limit: float
    tight: bool
    url: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on the axis; `at` is in the unit of the axis."""

    at: float
    label: str


def draw_bars(title: str, rows: Sequence[Bar], legend: Sequence[tuple[str, str]] = ()) -> str:
    """Draw horizontal bars on one scale that begins at zero; the legend names the tones of their parts."""
    above = LINE if legend else 0
    svg = _start_svg(title, above + len(rows) * BAR_ROW)
    for number, (tone, text) in enumerate(legend):
        _draw_rect(svg, number / 2, 4, 0.03, 10, f"fill {tone}")
        _draw_text(svg, number / 2 + 0.05, 13, text, "small")
    most = max((sum(part.length for part in row.parts) for row in rows), default=0.0)
    for number, row in enumerate(rows):
        _draw_bar(svg, above + number * BAR_ROW, row, most)
    return _dump(svg)


def draw_panels(title: str, series: Sequence[Panel], ticks: Sequence[Tick]) -> str:
    """Draw columns over time, one row for each series, all above one axis.

    Ticks are between 0 and 1, and one step apart. A narrow screen names every second one.
    """
    height = len(series) * PANEL
    svg = _start_svg(title, height + LINE)
    for tick in ticks:
        _draw_upright(svg, tick.at, LINE, height, "grid")
    for number, each in enumerate(series):
        _draw_panel(svg, number * PANEL, each)
    _draw_axis(svg, height + 12, ticks[::2])
    _draw_axis(svg, height + 12, ticks[1::2], " more")
    return _dump(svg)


def draw_ranges(title: str, rows: Sequence[Range], ticks: Sequence[Tick], legend: tuple[str, str, str]) -> str:
    """Draw each range and its limit on a logarithmic axis from the first tick to the last."""
    height = LINE + len(rows) * RANGE_ROW
    svg = _start_svg(title, height + LINE)
    _draw_legend(svg, legend)
    first, last = ticks[0].at, ticks[-1].at
    shares = [Tick(_scale_logarithmically(tick.at, first, last), tick.label) for tick in ticks]
    for tick in shares:
        _draw_upright(svg, tick.at, LINE + 4, height, "grid")
    for number, row in enumerate(rows):
        _draw_range(svg, LINE + 4 + number * RANGE_ROW, row, first, last)
    _draw_axis(svg, height + 14, shares)
    return _dump(svg)


def _draw_bar(svg: Element, top: int, row: Bar, most: float) -> None:
    _draw_heading(_open_link(svg, row.url), top, row.label, row.value)
    _draw_rect(svg, 0.0, top + LINE, 1.0, BAR, "track")
    begins = 0.0
    for tone, length, url in row.parts:
        if length > 0:
            width = max(length / most, LEAST_SHARE)
            link = _open_link(svg, url, f"{row.label}: {row.value}")
            _draw_rect(link, begins, top + LINE, width, BAR, f"fill {tone}", f"{row.label}: {row.value}")
            begins += width


def _draw_panel(svg: Element, top: int, panel: Panel) -> None:
    _draw_heading(_open_link(svg, panel.url), top, panel.label, panel.value, panel.more)
    base, most, width = top + LINE + PLOT, max(panel.values, default=0.0), 1 / max(len(panel.values), 1)
    for y, kind in ((base, "base"), (base - PLOT, "grid")):
        SubElement(svg, "line", {"x1": "0", "x2": "100%", "y1": f"{y}.5", "y2": f"{y}.5", "class": kind})
    urls = panel.urls or [""] * len(panel.values)
    for number, (value, tooltip, url) in enumerate(zip(panel.values, panel.tooltips, urls, strict=True)):
        slot = _open_link(svg, url if value > 0 else "", tooltip)
        if value > 0:
            height = max(round(value / most * PLOT, 1), 2)
            _draw_rect(slot, (number + 0.1) * width, base - height, width * 0.8, height, f"fill {panel.tone}")
        _draw_rect(slot, number * width, base - PLOT, width, PLOT, "slot", tooltip)  # what a pointer has to hit
    _draw_text(svg, 0.0, base - PLOT + 10, panel.peak, "small scale")


def _draw_range(svg: Element, top: int, row: Range, first: float, last: float) -> None:
    _draw_heading(_open_link(svg, row.url), top, row.label, row.value)
    middle = top + LINE + 8
    low, limit = (_scale_logarithmically(value, first, last) for value in (row.low, row.limit))
    high = low if row.high is None else _scale_logarithmically(row.high, first, last)
    tone = "tight" if row.tight else "calm"
    third = _scale_logarithmically(row.limit / 3, first, last)
    _draw_rect(svg, third, middle - 7, max(limit - third, 0.0), 14, "margin")
    _draw_rect(svg, low, middle - 2, high - low, 4, f"fill {tone}")
    if row.high is not None:
        _draw_square(svg, high, middle, tone)
    _draw_dot(svg, low, middle, tone)
    _draw_upright(svg, limit, middle - 9, middle + 9, "limit")


def _draw_legend(svg: Element, words: tuple[str, str, str]) -> None:
    _draw_dot(svg, 0.02, 8, "calm")
    _draw_square(svg, 0.32, 8, "calm")
    _draw_upright(svg, 0.7, 1, 15, "limit")
    for at, text in zip((0.02, 0.32, 0.7), words, strict=True):
        _draw_text(svg, at, 12, text, "small shifted")


def _start_svg(title: str, height: int) -> Element:
    return Element(
        "svg", {"class": "chart", "role": "group", "width": "100%", "height": str(height), "aria-label": title}
    )


def _open_link(parent: Element, url: str, name: str = "") -> Element:
    """Return a link to draw into; without an address, the parent.

    A link with a name of its own has no text. The keyboard does not stop at it: the table has the same link.
    """
    if not url:
        return parent
    return SubElement(parent, "a", {"href": url, **({"aria-label": name, "tabindex": "-1"} if name else {})})


def _draw_heading(svg: Element, top: int, label: str, value: str, more: str = "") -> None:
    _draw_text(svg, 0.0, top + 14, label, "label")
    text = _draw_text(svg, 1.0, top + 14, value, "value end")
    if more:
        SubElement(text, "tspan", {"class": "more"}).text = more


def _draw_axis(svg: Element, y: int, ticks: Iterable[Tick], kind: str = "") -> None:
    for tick in ticks:
        _draw_text(svg, tick.at, y, tick.label, f"small{_align(tick.at)}{kind}")


def _align(share: float) -> str:
    """Return the class that keeps a label inside the chart."""
    if share < 0.02:
        return ""
    return " end" if share > 0.98 else " middle"


def _draw_text(svg: Element, x: float, y: float, text: str, kind: str) -> Element:
    element = SubElement(svg, "text", {"x": _format_share(x), "y": f"{y:g}", "class": kind})
    element.text = text
    return element


def _draw_rect(svg: Element, x: float, y: float, width: float, height: float, kind: str, tooltip: str = "") -> None:
    place = {
        "x": _format_share(x),
        "y": f"{y:g}",
        "width": _format_share(width),
        "height": f"{height:g}",
        "class": kind,
    }
    rect = SubElement(svg, "rect", place)
    if tooltip:
        SubElement(rect, "title").text = tooltip


def _draw_upright(svg: Element, x: float, top: float, bottom: float, kind: str) -> None:
    ends = {"x1": _format_share(x), "x2": _format_share(x), "y1": f"{top:g}", "y2": f"{bottom:g}"}
    SubElement(svg, "line", {**ends, "class": kind})


def _draw_dot(svg: Element, x: float, y: float, kind: str) -> None:
    SubElement(svg, "circle", {"cx": _format_share(x), "cy": f"{y:g}", "r": "5", "class": f"fill {kind}"})


def _draw_square(svg: Element, x: float, y: float, kind: str) -> None:
    place = {"x": _format_share(x), "y": f"{y - 5:g}", "width": "10", "height": "10", "transform": "translate(-5)"}
    SubElement(svg, "rect", {**place, "class": f"fill {kind}"})


def _scale_logarithmically(value: float, first: float, last: float) -> float:
    return log(min(max(value, first), last) / first) / log(last / first)


def _format_share(value: float) -> str:
    return f"{round(value * 100, 2):g}%"


def _dump(svg: Element) -> str:
    return tostring(svg, encoding="unicode")
