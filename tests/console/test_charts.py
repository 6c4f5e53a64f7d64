"""Pictures from numbers: what is drawn, where, and that no word can become markup."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import pytest

import django_idempotency
from django_idempotency.console.dashboard.charts import (
    Bar,
    BarPart,
    Panel,
    Range,
    Tick,
    draw_bars,
    draw_panels,
    draw_ranges,
)

EVIL = '"><script>alert(1)</script>&'
LEGEND = ("half", "slow", "lease")
AXIS = [Tick(0.01, "10 ms"), Tick(1.0, "1 s"), Tick(100.0, "100 s")]


def parsed(svg: str) -> Element:
    return fromstring(svg)  # noqa: S314 - made by the code under test


def filled(svg: str) -> list[Element]:
    return [each for each in parsed(svg).iter() if "fill" in each.get("class", "").split()]


def share(value: str | None) -> float:
    assert value is not None
    assert value.endswith("%")
    return float(value[:-1])


def words(svg: str) -> list[str]:
    return ["".join(each.itertext()) for each in parsed(svg).iter("text")]


def panel(*values: float) -> Panel:
    return Panel("replays", "7", ", at most 4", "good", values, [f"at {number}" for number in range(len(values))])


def drawn(label: str = "label") -> dict[str, str]:
    return {
        "bars": draw_bars(label, [Bar(label, label, [BarPart("good", 1)])]),
        "panels": draw_panels(label, [Panel(label, label, label, "good", [1], [label])], [Tick(0.5, label)]),
        "ranges": draw_ranges(label, [Range(label, label, 0.1, 1, 30, False)], [*AXIS, Tick(1e3, label)], LEGEND),
    }


@pytest.mark.parametrize("kind", ["bars", "panels", "ranges"])
def test_a_picture_has_a_name_and_its_words_are_no_markup(kind: str) -> None:
    svg = drawn(EVIL)[kind]
    root = parsed(svg)
    assert (root.get("role"), root.get("aria-label")) == ("group", EVIL)
    assert "<script" not in svg
    assert EVIL in "".join(words(svg))


@pytest.mark.parametrize("kind", ["bars", "panels", "ranges"])
def test_nothing_needs_an_inline_style_or_script(kind: str) -> None:
    assert not re.search(r"\sstyle=|\son\w+=|<style|<script", drawn()[kind])


def test_every_colour_is_in_the_style_sheet() -> None:
    folder = Path(django_idempotency.__file__).parent
    sheet = (folder / "static/django_idempotency/dashboard.css").read_text()
    used = {name for svg in drawn().values() for name in re.findall(r'class="([^"]+)"', svg)}
    for name in {word for names in used for word in names.split()} - {"fill"}:
        assert re.search(rf"\.{name}\b", sheet), name


def test_bars_share_one_scale_that_begins_at_zero() -> None:
    values = {"a": 4, "b": 1, "c": 0}
    svg = draw_bars("t", [Bar(name, str(value), [BarPart("good", value)]) for name, value in values.items()])
    assert [share(each.get("width")) for each in filled(svg)] == [100, 25]
    assert words(svg) == ["a", "4", "b", "1", "c", "0"]


def test_the_parts_of_a_bar_stand_side_by_side() -> None:
    first, second = filled(draw_bars("t", [Bar("a", "4", [BarPart("bad", 3), BarPart("worst", 1)])]))
    assert (share(first.get("x")), share(first.get("width"))) == (0, 75)
    assert (share(second.get("x")), share(second.get("width"))) == (75, 25)


def test_one_among_millions_can_still_be_seen() -> None:
    small = filled(draw_bars("t", [Bar("a", "", [BarPart("good", 5e6)]), Bar("b", "", [BarPart("worst", 1)])]))[1]
    assert share(small.get("width")) > 0.5


@pytest.mark.parametrize("rows", [[], [Bar("a", "0", [BarPart("good", 0)])], [Bar("a", "0", [])]])
def test_bars_of_nothing_are_empty(rows: list[Bar]) -> None:
    assert filled(draw_bars("t", rows)) == []


def test_columns_stand_on_their_line_and_reach_the_top_once() -> None:
    low, high = filled(draw_panels("t", [panel(1, 4, 0)], []))
    assert float(high.get("height", 0)) == 4 * float(low.get("height", 0)) == 40
    bottoms = {float(each.get("y", 0)) + float(each.get("height", 0)) for each in (low, high)}
    assert len(bottoms) == 1


def test_each_column_says_its_number_to_a_pointer_however_low_it_is() -> None:
    svg = draw_panels("t", [panel(1, 4, 0)], [])
    slots = [each for each in parsed(svg).iter("rect") if each.get("class") == "slot"]
    assert [each.findtext("title") for each in slots] == ["at 0", "at 1", "at 2"]
    assert {each.get("height") for each in slots} == {"40"}


def test_each_panel_has_a_scale_of_its_own() -> None:
    heights = [float(each.get("height", 0)) for each in filled(draw_panels("t", [panel(1_000_000), panel(3)], []))]
    assert heights == [40, 40]


def test_columns_lie_side_by_side_within_the_width() -> None:
    columns = filled(draw_panels("t", [panel(*[1] * 48)], []))
    ends = [(share(each.get("x")), share(each.get("x")) + share(each.get("width"))) for each in columns]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
    assert ends[0][0] >= 0
    assert ends[-1][1] <= 100


@pytest.mark.parametrize("values", [(), (0,), (0, 0, 0)])
def test_a_panel_of_nothing_is_a_line(values: tuple[float, ...]) -> None:
    svg = draw_panels("t", [panel(*values)], [Tick(0.0, "old"), Tick(1.0, "new")])
    assert filled(svg) == []
    assert {"old", "new"} <= set(words(svg))


def test_the_first_and_the_last_tick_stay_inside() -> None:
    svg = draw_panels("t", [panel(1)], [Tick(0.0, "old"), Tick(0.5, "mid"), Tick(1.0, "new")])
    sides = {each.text: each.get("class") for each in parsed(svg).iter("text")}
    assert (sides["old"], sides["mid"], sides["new"]) == ("small", "small middle more", "small end")


def test_a_range_lies_on_a_logarithmic_axis() -> None:
    svg = draw_ranges("t", [Range("op", "", 0.1, 1.0, 10.0, False)], AXIS, LEGEND)
    (line,) = [each for each in filled(svg) if each.get("height") == "4"]
    assert (share(line.get("x")), share(line.get("width"))) == (25, 25)
    limits = [share(each.get("x1")) for each in parsed(svg).iter("line") if each.get("class") == "limit"]
    assert limits[-1] == 75


def test_a_range_with_one_measure_is_a_dot_and_a_tight_one_is_marked() -> None:
    only = draw_ranges("t", [Range("op", "", 1.0, None, 10.0, False)], AXIS, LEGEND)
    assert len([each for each in filled(only) if each.tag == "circle"]) == 2, "the legend's and its own"
    assert "tight" not in only
    assert "fill tight" in draw_ranges("t", [Range("op", "", 1.0, 8.0, 10.0, True)], AXIS, LEGEND)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 1e9])
def test_what_is_beyond_the_axis_stands_at_its_end(seconds: float) -> None:
    svg = draw_ranges("t", [Range("op", "", seconds, seconds, seconds, False)], AXIS, LEGEND)
    assert all(0 <= share(each.get("x") or each.get("cx")) <= 100 for each in filled(svg))


def test_a_picture_is_as_high_as_its_rows() -> None:
    one, two = (
        int(parsed(draw_bars("t", [Bar("a", "", [BarPart("good", 1)])] * rows)).get("height", 0)) for rows in (1, 2)
    )
    assert two == 2 * one


LISTS = [
    draw_bars("t", [Bar("a", "4", [BarPart("good", 3, "?a=1&b=2"), BarPart("bad", 1, "?c=3")], "?d=4")]),
    draw_panels("t", [Panel("a", "4", "", "good", [4, 0], ["x", "y"], "?d=4", ["?a=1&b=2", "?c=3"], "4")], []),
    draw_ranges("t", [Range("a", "4", 1, 2, 30, False, "?d=4")], AXIS, LEGEND),
]
LINKED = list(zip(LISTS, (["?d=4", "?a=1&b=2", "?c=3"], ["?d=4", "?a=1&b=2"], ["?d=4"]), strict=True))


@pytest.mark.parametrize(("svg", "links"), LINKED)
def test_names_and_numbers_lead_to_their_records_and_nothing_leads_to_none(svg: str, links: list[str]) -> None:
    assert [each.get("href") for each in parsed(svg).iter("a")] == links


@pytest.mark.parametrize("svg", LISTS)
def test_the_keyboard_stops_at_names_and_a_link_without_a_text_has_a_name(svg: str) -> None:
    for link in parsed(svg).iter("a"):
        has_text = any("".join(each.itertext()) for each in link.iter("text"))
        assert has_text != ("aria-label" in link.attrib)
        assert (link.get("tabindex") == "-1") is not has_text
