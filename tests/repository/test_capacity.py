"""`python -m benchmarks.capacity` simulates days in which the reaper deletes what has expired, and draws them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from django.conf import settings
from django.db import connection

from benchmarks.charts import HEIGHT, LEFT, RIGHT, WIDTH, Chart, draw
from testproject.servers import ROOT

SVG = "{http://www.w3.org/2000/svg}"
KEYS = 576  # two in each five minutes
IN_FLIGHT = 8


def is_on_this_machine() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT PG_BACKEND_PID()")
        name = Path(f"/proc/{cursor.fetchone()[0]}/comm")
    return name.exists() and name.read_text() == "postgres\n"


@pytest.mark.vendor
@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.django_db
def test_the_reaper_deletes_the_keys_of_the_day_before(vendor: str) -> None:
    if vendor != "postgresql" or not is_on_this_machine():
        pytest.skip("reads the processor time of a PostgreSQL server on this machine")
    command = f"benchmarks.capacity --keys-per-day {KEYS} --days 2 --retention-days 1"
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--checkpoint-minutes", "1440", "--rounds", "1"],
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": settings.DATABASE_URL},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    tables = list(read_tables(done.stdout))
    days = [(int(day["deleted"].replace(",", "")), int(day["records"].replace(",", ""))) for day in tables[0]]
    assert days == [(0, KEYS), (KEYS - IN_FLIGHT, KEYS + IN_FLIGHT)]
    assert [row[""] for row in tables[1]] == ["keys", "reaper", "VACUUM", "checkpoints"]
    assert all(float(row["log, GB"]) > 0 for row in tables[1][:3])
    assert [row["keys a second"] for row in tables[2]] == ["12", "116", "1,157"]


def read_tables(text: str) -> Iterator[list[dict[str, str]]]:
    """Yield the rows of each Markdown table by its columns."""
    for part in text.split("\n\n"):
        lines = [[cell.strip() for cell in line[1:-1].split("|")] for line in part.splitlines() if line.startswith("|")]
        if lines:
            yield [dict(zip(lines[0], line, strict=True)) for line in lines[2:]]


def test_a_chart_has_a_point_for_each_value_between_its_marks() -> None:
    chart = Chart("disk", ["1", "2", "3"], {"1 d": [0, 5, 20], "7 d": [10, 10, 10]}, marks=(0, 5, 10))
    picture = ElementTree.fromstring(draw("two lines", {"1 d": "line-1", "7 d": "line-2"}, [chart, chart]))  # noqa: S314 - drawn above
    places = [
        [tuple(map(float, place.split(","))) for place in line.attrib["points"].split()]
        for line in picture.iter(f"{SVG}polyline")
    ]
    assert len(places) == 4
    for first, second in (places[:2], places[2:]):
        (_, bottom), (_, middle), (_, top) = first
        assert bottom - middle == middle - top  # a value above the highest mark is drawn on it
        assert [down for _, down in second] == [top] * 3
    assert all(LEFT < across < WIDTH - RIGHT and 0 < down < 2 * HEIGHT + 30 for line in places for across, down in line)
    background = next(picture.iter(f"{SVG}rect")).attrib
    assert (background["fill"], background["width"]) == ("var(--page)", str(WIDTH))
