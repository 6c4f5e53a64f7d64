"""The admin's list and record pages on a large table: python -m benchmarks.console [--rows 1000000]

Makes a PostgreSQL database of its own beside the one that DATABASE_URL names, fills it, opens every page as an operator
would, and prints how many queries it took, how long, and the slowest plan. At last it works off 10,000 dead letters
through the page for all of them. Ends with 1 where a page takes more than eight queries or one of them reads the whole
table.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import psycopg

from benchmarks.dashboard import COUNTS, DEAD_LETTERS
from benchmarks.scale import arguments, fill, nodes, own_database, server

MOST: Final = 8
LIST: Final = "/admin/django_idempotency/idempotencykey/"
MANY_DEAD: Final = """
    UPDATE idempotency_key SET status = 'dead_letter', response_status = NULL, response_body = NULL,
        completed_at = NULL, expires_at = NULL
    WHERE id IN (SELECT id FROM idempotency_key WHERE status = 'completed' ORDER BY created_at LIMIT 10000)
"""
HIDDEN: Final = re.compile(r'<input type="hidden" name="(cursor|done|skipped)" value="([^"]*)"')
RIGHTS: Final = ("view_idempotencykey", "view_content", "resolve_not_executed", "try_again", "expire_now")


def main() -> int:
    parser = arguments("console", __doc__, rows=1_000_000)
    rows, url = parser.parse_args().rows, server(parser)
    with own_database(url, keep=False, name="idempotency_console", settings="testproject.settings") as own:
        fill(own, rows)
        with psycopg.connect(own, autocommit=True) as connection:
            for statement in (COUNTS, *DEAD_LETTERS, "VACUUM ANALYZE idempotency_key"):
                connection.execute(statement)
        return report()


def report() -> int:
    from django.core.management import call_command
    from django.db import connection

    from django_idempotency.store.counts import merge_oldest_hour

    call_command("migrate", verbosity=0)
    while merge_oldest_hour("default"):  # as the reaper does
        pass
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE idempotency_count")
    client, bad = somebody(), 0
    print(f"\n{'page':58}{'queries':>8}{'time':>10}   the plan that took longest")
    for title, path in pages():
        bad += not cheap(client, title, path)
    work_off(client)
    connection.close()
    return int(bool(bad))


def work_off(client: Any) -> None:
    """As one person would: choose all, give a reason, and continue until the summary comes."""
    from django.db import connection

    with connection.cursor() as cursor:
        for statement in (MANY_DEAD, *DEAD_LETTERS[1:2], "ANALYZE idempotency_key", "ANALYZE idempotency_event"):
            cursor.execute(statement)
    address, clicks, began = f"{LIST}act/try-again/all/?status=dead_letter", 1, time.monotonic()
    carried: dict[str, str] = {}
    while (answer := client.post(address, {"reason": "the provider is back", **carried})).status_code == 200:
        carried, clicks = dict(HIDDEN.findall(answer.content.decode())), clicks + 1
    print(f"\n10,000 dead letters were worked off in {time.monotonic() - began:.0f} s and {clicks} clicks")


def somebody() -> Any:
    """Not a superuser: their rights are two queries more."""
    from django.conf import settings
    from django.contrib.auth.models import Permission, User
    from django.test import Client

    settings.ALLOWED_HOSTS = ["*"]
    settings.IDEMPOTENCY = {"COUNT_OUTCOMES": True}
    user = User.objects.create_user("somebody", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=RIGHTS))
    client = Client()
    client.force_login(user)
    return client


def pages() -> Iterator[tuple[str, str]]:
    from django_idempotency.models import IdempotencyKey

    keys = IdempotencyKey.objects
    some = keys.order_by("created_at")[1000:1001].get()
    for query in (
        "", "status=completed", "status=failed", "status=in_progress", "status=unknown", "status=dead_letter",
        "status=failure", "needs=person", "needs=unattended", "needs=sweeper", "needs=reconciler",
        "operation=payments.create", "operation=nobody.knows", "error=timeout", "http=5xx",
        "created=hour", "created=week", "created=month", "created=earlier",
        "created_from=2026-01-01T00:00&created_to=2126-01-01T00:00", "expires=past", "expires=hour", "expires=later",
        f"q={some.key}", f"q={some.pk}", f"q={some.derive('charge')}", "q=user:77", "q=nobody",
        "status=failed&operation=nobody.knows&created=day&expires=day",
    ):  # fmt: skip
        yield query or "the list", f"{LIST}?{query}"
    cursor = f"{some.created_at.isoformat()}~{some.pk.hex}".replace("+", "%2B")
    yield "the list, from the other end", f"{LIST}?p={cursor}"
    for status in ("completed", "in_progress", "unknown", "dead_letter"):
        found = keys.filter(status=status).order_by("created_at")[10:11].get()
        yield f"a record that is {status}", f"{LIST}{found.pk}/change/"
    chosen = ",".join(pk.hex for pk in keys.filter(status="dead_letter").values_list("pk", flat=True)[:20])
    yield "all dead letters to be confirmed", f"{LIST}act/try-again/all/?status=dead_letter"
    for period in ("hour", "day", "week", "month"):
        yield f"the dashboard, {period}", f"{LIST}dashboard/?period={period}"
    yield "the dashboard, one operation", f"{LIST}dashboard/?operation=payments.create"
    yield "twenty records to be confirmed", f"{LIST}act/try-again/?records={chosen}"


def cheap(client: Any, title: str, path: str) -> bool:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from django_idempotency.console.dashboard.numbers import clear_cache

    seconds = []
    for _ in range(3):
        clear_cache()
        began = time.monotonic()
        with CaptureQueriesContext(connection) as captured:
            answer = client.get(path)
        seconds.append(time.monotonic() - began)
    plans = [plan(query["sql"]) for query in captured if "idempotency_" in query["sql"]]
    spent, slowest = max(plans, default=(0.0, ""))
    scans = any("Seq Scan on idempotency_key" in steps for _spent, steps in plans)
    good = answer.status_code == 200 and len(captured) <= MOST and not scans
    print(
        f"{title[:57]:58}{len(captured):8}{min(seconds) * 1000:7.0f} ms   "
        f"{spent:.1f} ms {slowest}{'' if good else '   TOO MUCH'}"
    )
    return good


def plan(sql: str) -> tuple[float, str]:
    from django.db import connection

    best: list[Any] = []
    with connection.cursor() as cursor:
        for _ in range(3):  # the machine may do something else
            cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}")
            best.append(cursor.fetchone()[0][0])
    explained = min(best, key=lambda each: each["Execution Time"])
    steps = [step for step in nodes(explained["Plan"]) if "Scan" in step and "Subquery" not in step]
    return explained["Execution Time"], ", ".join(steps)


if __name__ == "__main__":
    sys.exit(main())
