"""Run in a process of its own: kills a child at each point, crashes at the same one, and prints what both left."""

import json
import os
import signal
import sys
from typing import Any

import django
from django.conf import settings

django.setup()
settings.ROOT_URLCONF, settings.ALLOWED_HOSTS = "tests.testing.views", ["testserver"]

from django.contrib.auth.models import User  # noqa: E402 - the apps have to be ready
from django.db import connections  # noqa: E402

from django_idempotency.models import IdempotencyEvent, IdempotencyKey  # noqa: E402
from django_idempotency.testing import IdempotentClient, crash_at  # noqa: E402
from django_idempotency.testing.crashes import stop_at  # noqa: E402
from testproject.payments.models import LedgerEntry  # noqa: E402

OF_THE_RECORD = {"id", "key", "scope", "attempt_token"}


def post(client: IdempotentClient, name: str) -> None:
    client.post(f"/{name}", {"amount": 5}, "application/json")


def kill_child(client: IdempotentClient, name: str, where: dict[str, Any]) -> None:
    connections.close_all()
    child = os.fork()
    if child == 0:
        with stop_at(act=lambda call, using: os.kill(os.getpid(), signal.SIGKILL), **where):
            post(client, name)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, status


def crash_here(client: IdempotentClient, name: str, where: dict[str, Any]) -> None:
    with crash_at(**where):
        post(client, name)


def leave(name: str, where: dict[str, Any], end: Any) -> list[Any]:
    """What is there afterwards, times only as set or not."""
    for model in (IdempotencyKey, IdempotencyEvent, LedgerEntry):
        model.objects.all().delete()
    client = IdempotentClient()
    client.force_login(User.objects.get_or_create(username="alice")[0])
    end(client, name, where)
    rows = [
        {column: bool(value) if column.endswith(("_at", "_until")) else str(value) for column, value in row.items()}
        for row in IdempotencyKey.objects.values()
    ]
    kept = [{column: value for column, value in row.items() if column not in OF_THE_RECORD} for row in rows]
    for row in kept:
        for column in ("response_body", "request_path"):
            row[column] = bool(row[column])
    return [kept, IdempotencyEvent.objects.count(), LedgerEntry.objects.count()]


if __name__ == "__main__":
    found = []
    for name, where in json.loads(sys.argv[1]):
        found.append([leave(name, where, end) for end in (kill_child, crash_here)])
    json.dump(found, sys.stdout)
