"""Where the processor time of a request goes: python -m benchmarks.stages

Calls the view of `python -m benchmarks` in this process, on the PostgreSQL server that DATABASE_URL names, and measures
the main functions of the package and of Django's database layer. Each line has the own time of its functions, without
that of other lines: in microseconds a request, the median of several batches. Measuring adds about half a microsecond
to each call.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from time import thread_time_ns
from typing import Any, Final
from uuid import uuid4

BATCHES, REQUESTS = 15, 100
KINDS: Final = ("leased", "atomic", "replay")


class Stages:
    """A stack of the functions that run, and the time that each of them used itself."""

    def __init__(self) -> None:
        self.own: dict[str, int] = defaultdict(int)
        self._below = [0]

    def measure(self, owner: Any, name: str, label: str) -> None:
        """Replace a function by one that is measured."""
        function = getattr(owner, name)

        @wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            return self.call(label, function, *args, **kwargs)

        setattr(owner, name, measured)

    def call(self, label: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        began = thread_time_ns()
        self._below.append(0)
        try:
            return function(*args, **kwargs)
        finally:
            spent = thread_time_ns() - began
            self.own[label] += spent - self._below.pop()
            self._below[-1] += spent


def install(stages: Stages) -> None:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper
    from django.db.transaction import Atomic

    from django_idempotency.flow import atomic, claim, completion, finish
    from django_idempotency.http import exchange, requests, run
    from django_idempotency.store import attempts, claims, dialects, limits, records

    measured: list[tuple[Any, str, str]] = [
        (CursorWrapper, "execute", "database: statements"),
        (BaseDatabaseWrapper, "cursor", "database: cursors"),
        *((BaseDatabaseWrapper, name, "database: transactions") for name in ("commit", "set_autocommit")),
        *((Atomic, name, "database: transactions") for name in ("__enter__", "__exit__")),
        (requests, "seal", "fingerprint"),
        (requests, "request_parts", "request: parts and body"),
        (requests, "parse_key", "request: key"),
        (exchange.Exchange, "call", "request: scope and call"),
        (claim, "digest_of_namespace", "claim: namespace"),
        (run, "begin", "claim: flow"),
        (atomic, "_claim", "claim: flow"),
        *((claims, name, "claim: values and result") for name in ("insert_claim", "look", "insert_finished")),
        (limits, "repeated", "time limits"),
        *((limits.limited, name, "time limits") for name in ("__enter__", "__exit__")),
        (limits, "connect", "time limits"),
        *((dialects.Statement, name, "statements: text and values") for name in ("insert", "apply", "rows")),
        *((completion.Completion, name, "completion") for name in ("__enter__", "__exit__", "store")),
        (run, "finish", "completion"),
        (attempts, "complete", "completion"),
        *((module, "announce", "signals") for module in (claim, finish, atomic)),
        (exchange.Exchange, "keep", "response: captured"),
        (records, "make_record", "replay: record"),
        (exchange.Exchange, "answer", "replay: response"),
    ]
    for owner, name, label in measured:
        stages.measure(owner, name, label)


def batches(stages: Stages, kind: str) -> Iterator[dict[str, float]]:
    """Yield microseconds a request by stage; the first batch only warms up."""
    from django.test import RequestFactory

    from benchmarks.served import work
    from django_idempotency.decorators import idempotent

    def handle(request: Any) -> Any:
        return stages.call("the view", work, request)

    mode = "atomic" if kind == "atomic" else "leased"
    view = idempotent(operation=mode, mode=mode, share_anonymous=True)(handle)
    known = str(uuid4())
    for number in range(BATCHES + 1):
        requests = [
            RequestFactory().post(
                "/x",
                b'{"amount": 1}',
                content_type="application/json",
                headers={"Idempotency-Key": known if kind == "replay" else str(uuid4())},
            )
            for _ in range(REQUESTS)
        ]
        stages.own.clear()
        for request in requests:
            stages.call("everything else of the package", view, request)
        if number:
            yield {label: spent / REQUESTS / 1000 for label, spent in stages.own.items()}


def main() -> int:
    if not os.environ.get("DATABASE_URL", "").startswith("postgres"):
        print("This needs a PostgreSQL server: set DATABASE_URL=postgresql://user@host:5432/name", file=sys.stderr)
        return 2
    os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
    import django

    django.setup()
    from testproject.servers import prepare_database

    prepare_database(os.environ["DATABASE_URL"])
    stages = Stages()
    install(stages)
    table: dict[str, dict[str, float]] = defaultdict(dict)
    for kind in KINDS:
        measured = list(batches(stages, kind))
        for label in {label for batch in measured for label in batch}:
            table[label][kind] = statistics.median(batch.get(label, 0.0) for batch in measured)
    print("| microseconds a request | " + " | ".join(KINDS) + " |\n|" + " --- |" * (len(KINDS) + 1))
    for label, found in sorted(table.items(), key=lambda row: -max(row[1].values())):
        print(f"| {label} | " + " | ".join(f"{found[kind]:.0f}" if kind in found else "" for kind in KINDS) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
