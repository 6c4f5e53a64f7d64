"""Simulated days of the table of records, and a meter of what they take; `python -m benchmarks.capacity` runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import process_time
from typing import Any, Final
from uuid import uuid4

from benchmarks.cache import processor_time
from benchmarks.scale import progress
from benchmarks.storage import SIZES, repeat

MINUTES: Final = 5  # of one step
STEPS: Final = 24 * 60 // MINUTES
WORK: Final = ("keys", "reaper", "VACUUM", "checkpoints")
REQUESTS: Final = 200  # of one round of the comparison with a bare view

# PostgreSQL finds these clocks before its own, because their schema is named first.
PREPARE: Final = """
    CREATE FUNCTION public.statement_timestamp() RETURNS timestamptz STABLE LANGUAGE sql
        AS $$SELECT pg_catalog.statement_timestamp() + current_setting('capacity.passed')::interval$$;
    CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz VOLATILE LANGUAGE sql
        AS $$SELECT pg_catalog.clock_timestamp() + current_setting('capacity.passed')::interval$$;
    CREATE TABLE ledger (id bigserial PRIMARY KEY, amount integer);
    ALTER TABLE idempotency_key SET (autovacuum_enabled = off);
    SET synchronous_commit = off;
"""
PAGE: Final = 8192  # bytes
USAGE: Final = re.compile(r"buffer usage: (\d+) hits, (\d+) \w+, (\d+) dirtied")  # the first one is the table's
PROCESSES: Final = """
    SELECT pid FROM pg_stat_activity
    WHERE pid = PG_BACKEND_PID() OR backend_type IN ('checkpointer', 'background writer', 'walwriter')
"""


@dataclass
class Spent:
    log: float = 0  # bytes of write-ahead log
    database: float = 0  # seconds of processor time
    client: float = 0


class Meter:
    """Reads what the server and this process have used, and adds it to what it was used for."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.processes = [pid for (pid,) in self.ask(PROCESSES)]
        self.notices: list[str] = []
        connection.connection.add_notice_handler(lambda notice: self.notices.append(notice.message_primary))

    @contextmanager
    def measure(self, spent: Spent) -> Iterator[None]:
        before = self._read()
        yield
        log, database, client = (ended - began for began, ended in zip(before, self._read(), strict=True))
        spent.log, spent.database, spent.client = spent.log + log, spent.database + database, spent.client + client

    def ask(self, text: str) -> list[Any]:
        with self.connection.cursor() as cursor:
            cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else []

    def _read(self) -> tuple[float, float, float]:
        ((log,),) = self.ask("SELECT PG_CURRENT_WAL_INSERT_LSN() - '0/0'::pg_lsn")
        return float(log), processor_time(self.processes), process_time()


@dataclass
class Day:
    """What one day did, and what it left."""

    spent: dict[str, Spent] = field(default_factory=lambda: {name: Spent() for name in WORK})
    live: int = 0
    dead: int = 0  # the most at any time of the day
    deleted: int = 0
    vacuums: int = 0
    accessed: int = 0  # pages, by VACUUM
    dirtied: int = 0
    sizes: dict[str, int] = field(default_factory=dict)  # bytes by table and index

    @property
    def disk(self) -> int:
        return sum(self.sizes.values())

    @property
    def log(self) -> float:
        return sum(spent.log for spent in self.spent.values())


@dataclass
class Month:
    """The days of one table, and the rows that autovacuum's rule counts."""

    meter: Meter
    mode: str
    keys_per_day: int
    retention: int  # days
    checkpoint_minutes: int
    days: list[Day] = field(default_factory=list)
    live: int = 0
    dead: int = 0
    inserted: int = 0  # since the last VACUUM

    def run(self, days: int) -> None:
        self.meter.ask("TRUNCATE idempotency_key CASCADE")
        self.meter.ask("SET search_path = public, pg_catalog")
        for number in range(days):
            self.days.append(day := Day())
            for step in range(number * STEPS, (number + 1) * STEPS):
                self._pass_minutes(day, step)
            ((day.live,),) = self.meter.ask("SELECT COUNT(*) FROM idempotency_key")
            day.sizes = dict(self.meter.ask(SIZES))
            progress(f"{self.mode}, {self.retention} days of retention: day {number + 1}, {day.live:,} records")
        self.meter.ask("SET search_path = pg_catalog, public")
        progress("")

    def settled(self) -> list[Day]:
        """Return the days on which as many records end as begin."""
        return self.days[self.retention + 1 :] or self.days[-1:]

    def _pass_minutes(self, day: Day, step: int) -> None:
        self.meter.ask(f"SET capacity.passed = '{step * MINUTES} minutes'")
        passed = (step + 1) * MINUTES
        self._make_keys(day, step)
        if passed % 60 == 0:
            self._reap(day)
        day.dead = max(day.dead, self.dead)
        self._vacuum(day)
        if passed % self.checkpoint_minutes == 0:
            with self.meter.measure(day.spent["checkpoints"]):
                self.meter.ask("CHECKPOINT")

    def _make_keys(self, day: Day, step: int) -> None:
        first, last = (at * self.keys_per_day // STEPS for at in (step, step + 1))
        keys = repeat(self.mode, first + 1, last, retention=self.retention * 86_400)
        with self.meter.measure(day.spent["keys"]):
            self.meter.ask(keys)
        self.live, self.inserted = self.live + last - first, self.inserted + last - first
        if self.mode == "leased":
            self.dead += last - first  # the version before the completion

    def _reap(self, day: Day) -> None:
        from django_idempotency.maintenance import reap

        with self.meter.measure(day.spent["reaper"]):
            deleted = reap()["deleted"]
        self.live, self.dead, day.deleted = self.live - deleted, self.dead + deleted, day.deleted + deleted

    def _vacuum(self, day: Day) -> None:
        """Apply autovacuum's rule, with the defaults of its settings."""
        if self.dead > 50 + 0.2 * self.live or self.inserted > 1000 + 0.2 * self.live:
            self.meter.notices.clear()
            with self.meter.measure(day.spent["VACUUM"]):
                self.meter.ask("VACUUM (PARALLEL 0, VERBOSE) idempotency_key")
            hits, misses, dirtied = map(int, USAGE.findall("".join(self.meter.notices))[0])
            day.accessed, day.dirtied = day.accessed + hits + misses, day.dirtied + dirtied
            self.dead, self.inserted, day.vacuums = 0, 0, day.vacuums + 1


def measure_requests(meter: Meter, mode: str, rounds: int) -> Spent:
    """Return what one new key adds to a view that writes one row, on the table as it is."""
    from django.db import transaction
    from django.http import JsonResponse
    from django.test import RequestFactory

    from django_idempotency.decorators import idempotent

    def view(_request: Any) -> Any:
        meter.ask("INSERT INTO ledger (amount) VALUES (1)")
        return JsonResponse({"id": 2718281, "amount": 1200, "currency": "EUR", "status": "succeeded"}, status=201)

    views: dict[str, Any] = {"bare": transaction.atomic(view)}
    views[mode] = idempotent(operation=mode, mode=mode, share_anonymous=True)(view)
    spent = {name: Spent() for name in views}
    for number in range(rounds + 1):  # the first one only warms up
        for name, each in views.items():
            keys = [{"Idempotency-Key": str(uuid4())} for _ in range(REQUESTS)]
            posts = [RequestFactory().post("/", b"{}", content_type="application/json", headers=key) for key in keys]
            with meter.measure(spent[name] if number else Spent()):
                for post in posts:
                    each(post)
    bare, ours, count = spent["bare"], spent[mode], rounds * REQUESTS
    return Spent(0, (ours.database - bare.database) / count, (ours.client - bare.client) / count)


def pack(meter: Meter) -> float:
    """Write the table anew, and return the bytes of a record."""
    meter.ask("VACUUM FULL idempotency_key")
    ((rows,),) = meter.ask("SELECT COUNT(*) FROM idempotency_key")
    return float(sum(size for _, size in meter.ask(SIZES)) / rows)
