"""What a month of keys takes: python -m benchmarks.capacity [--keys-per-day 20000] [--retention-days 1 7] [--svg]

Makes a PostgreSQL database of its own beside the one that DATABASE_URL names, and lets simulated days pass in it. The
package's own statements make and complete the keys of each five minutes. Its reaper runs every hour, VACUUM when
autovacuum's rule asks for it, and CHECKPOINT at its interval. Two functions that tell the time replace PostgreSQL's and
add the simulated time. Prints what each day leaves and what a million keys take. `--svg` draws
docs/images/capacity.svg. The server has to be on this machine, and nothing else may write to it.
"""

from __future__ import annotations

import argparse
import sys
from math import ceil, floor, log10
from typing import Final

from benchmarks.charts import Chart, draw
from benchmarks.month import PAGE, PREPARE, WORK, Meter, Month, Spent, measure_requests, pack
from benchmarks.scale import own_database, server
from benchmarks.views import describe_machine
from testproject.servers import ROOT

MILLION: Final = 1_000_000  # keys, and bytes of a MB
SCALES: Final = (1, 10, 100)  # million keys a day
COLOURS: Final = ("line-1", "line-2", "line-3", "line-4")
PICTURE: Final = ROOT / "docs" / "images" / "capacity.svg"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--keys-per-day", type=int, default=20_000)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--retention-days", type=int, nargs="+", default=[1, 7])
    parser.add_argument("--mode", choices=("leased", "atomic"), default="leased")
    parser.add_argument("--checkpoint-minutes", type=int, default=5, help="a multiple of 5")
    parser.add_argument("--rounds", type=int, default=10, help="of the comparison with a bare view")
    parser.add_argument("--svg", action="store_true", help="draw the picture")
    options = parser.parse_args()
    with own_database(server(parser), keep=False, name="idempotency_capacity") as own:
        from django.db import connection

        print(describe_machine(own))
        meter, months = Meter(connection), []
        meter.ask(PREPARE)
        for retention in options.retention_days:
            month = Month(meter, options.mode, options.keys_per_day, retention, options.checkpoint_minutes)
            month.run(options.days)
            report_days(month)
            report_million(month, measure_requests(meter, options.mode, options.rounds), pack(meter))
            months.append(month)
        connection.close()
    if options.svg:
        PICTURE.write_text(draw_months(months))
        print(f"\n{PICTURE.relative_to(ROOT)} is drawn.")
    return 0


def report_days(month: Month) -> None:
    print(f"\n{month.mode}, {month.keys_per_day:,} keys a day, retention {month.retention} d, ", end="")
    print(f"a checkpoint every {month.checkpoint_minutes} min; sizes in MB\n")
    places = list(month.days[0].sizes)
    columns = [place.removeprefix("idempotency_key_") for place in places]
    print_row("day", "records", "dead rows, at most", "deleted", "VACUUM", *columns, "all", "log")
    print_row(*["---:"] * (len(places) + 7))
    for number, day in enumerate(month.days, start=1):
        sizes = [f"{size / MILLION:.1f}" for size in (*(day.sizes[place] for place in places), day.disk, day.log)]
        print_row(number, f"{day.live:,}", f"{day.dead:,}", f"{day.deleted:,}", day.vacuums, *sizes)


def report_million(month: Month, request: Spent, packed: float) -> None:
    """Print the averages of the settled days, and what follows from them for larger numbers of keys."""
    days = month.settled()
    keys = month.keys_per_day * len(days)
    live = sum(day.live for day in days) / len(days)
    disk = sum(day.disk for day in days) / len(days)
    print(f"\nmeasured, days {month.days.index(days[0]) + 1} to {len(month.days)}, for each million keys\n")
    print_row("", "log, GB", "database, s", "client, s")
    print_row(*["---"] * 4)
    database = 0.0
    for name in WORK:
        log, spent, client = (
            sum(getattr(day.spent[name], unit) for day in days) / keys * MILLION
            for unit in ("log", "database", "client")
        )
        if name == "keys":  # the month made them in a loop on the server
            spent, client = request.database * MILLION, request.client * MILLION
        database += spent
        print_row(name, f"{log / 1e9:.2f}", f"{spent:.1f}", f"{client:.1f}")
    print(f"\n{disk / live:,.0f} bytes a record, {packed:,.0f} after VACUUM FULL: {disk / live / packed:.2f} times")
    for place, size in days[-1].sizes.items():
        print(f"    {place:32}{size / days[-1].live:8,.1f}")
    dead = max(day.dead / day.live for day in days)
    vacuums = sum(day.vacuums for day in days)
    print(f"{vacuums / len(days):.1f} VACUUM a day; dead rows at most {dead:.2f} of the live ones")
    pages = max(disk / PAGE * vacuums, 1)
    accessed, dirtied = (sum(getattr(day, name) for day in days) / pages for name in ("accessed", "dirtied"))
    print(f"one VACUUM reads {accessed:.2f} times the pages of table and indexes, and changes {dirtied:.2f} of them")
    print("\ncalculated\n")
    print_row("million keys a day", "records", "disk, GB", "log a day, GB", "keys a second", "cores of the database")
    print_row(*["---:"] * 6)
    log = sum(day.log for day in days) / keys
    for scale in SCALES:
        a_day = scale * MILLION
        records = live * a_day / month.keys_per_day
        per_second = a_day / 86_400
        sizes = (f"{size / 1e9:,.1f}" for size in (records * disk / live, log * a_day))
        print_row(scale, f"{records:,.0f}", *sizes, f"{per_second:,.0f}", f"{database / MILLION * per_second:.2f}")


def print_row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def draw_months(months: list[Month]) -> str:
    """Draw what each day left, one line for each retention."""
    colours = {name_of(month): colour for month, colour in zip(months, COLOURS, strict=False)}
    length = len(months[0].days)
    labels = [str(day) if day == 1 or day % 5 == 0 else "" for day in range(1, length + 1)]
    charts = []
    for title, name, unit in (
        ("records, in thousands", "live", 1e3),
        ("disk, MB", "disk", 1e6),
        ("dead rows, at most, in thousands", "dead", 1e3),
        ("write-ahead log of the day, MB", "log", 1e6),
    ):
        lines = {name_of(month): [getattr(day, name) / unit for day in month.days] for month in months}
        top = round_up(max(1e-3, *(max(line) for line in lines.values())))
        charts.append(Chart(title, labels, lines, marks=(0, top / 2, top)))
    return draw(f"{length} days of {months[0].keys_per_day:,} keys", colours, charts)


def name_of(month: Month) -> str:
    return f"kept {month.retention} d"


def round_up(value: float) -> float:
    """Return the next number with two digits."""
    digit = 10.0 ** (floor(log10(value)) - 1)
    return ceil(value / digit) * digit


if __name__ == "__main__":
    sys.exit(main())
