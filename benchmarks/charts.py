"""Line charts as one SVG picture, below one another and readable on a telephone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from docs.pictures.drawing import svg

WIDTH: Final = 420
HEIGHT: Final = 150  # of one chart
LEFT, RIGHT, TOP, BOTTOM = 40, 20, 28, 26


@dataclass(frozen=True)
class Chart:
    """Lines by name, one value for each label. The highest mark is the top of the chart."""

    title: str
    labels: Sequence[str]
    lines: Mapping[str, Sequence[float]]
    marks: Sequence[float]
    reference: float | None = None  # the mark that values are compared with


def draw(title: str, colours: Mapping[str, str], charts: Sequence[Chart]) -> str:
    parts = []
    for number, (name, colour) in enumerate(colours.items()):
        parts.append(f'<rect x="{LEFT + 90 * number}" y="8" width="12" height="12" fill="var(--{colour})"/>')
        parts.append(f'<text x="{LEFT + 18 + 90 * number}" y="18" fill="var(--ink)">{name}</text>')
    for number, chart in enumerate(charts):
        parts += draw_chart(30 + HEIGHT * number, chart, colours)
    return svg(title, WIDTH, HEIGHT * len(charts) + 30, parts, attributes=' font-size="13"')


def draw_chart(top: int, chart: Chart, colours: Mapping[str, str]) -> list[str]:
    inner, highest = HEIGHT - TOP - BOTTOM, max(chart.marks)

    def x(number: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (number + 0.5) / len(chart.labels)

    def y(value: float) -> float:
        return top + TOP + inner * (1 - min(value, highest) / highest)

    parts = [f'<text x="{LEFT}" y="{top + 18}" fill="var(--ink)" font-weight="bold">{chart.title}</text>']
    for mark in chart.marks:
        line = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"'
        parts.append(f'<line {line} stroke="var(--{"faint" if mark == chart.reference else "rule"})"/>')
        parts.append(
            f'<text x="{LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end" fill="var(--faint)">{mark:,g}</text>'
        )
    for number, label in enumerate(chart.labels):
        at = f'x="{x(number):.1f}" y="{top + HEIGHT - 10}"'
        parts.append(f'<text {at} text-anchor="middle" fill="var(--faint)">{label}</text>')
    for name, values in chart.lines.items():
        places = [(x(number), y(value)) for number, value in enumerate(values)]
        line = " ".join(f"{across:.1f},{down:.1f}" for across, down in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="var(--{colours[name]})" stroke-width="2"/>')
        radius = min(3.0, 45 / len(values))
        parts += [
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius:g}" fill="var(--{colours[name]})"/>'
            for across, down in places
        ]
    return parts
