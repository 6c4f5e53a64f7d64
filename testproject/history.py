"""A day of keys, made up, for those who want to see the admin with something in it.

The ids have version 5, as MariaDB's uuid type wants them, but a request would compute others: no client has these keys.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from math import pi, sin
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from django.db import transaction
from django.utils import timezone

from django_idempotency import Status
from django_idempotency.models import IdempotencyCount, IdempotencyEvent, IdempotencyKey, MaintenanceRun

MARK = "seed-history"
HOURS = 24
OPERATIONS = {"payments": (0.4, 2.5), "transfers": (0.03, 0.4), "stripe-charges": (0.9, 9.0)}  # seconds: usual, slow
ENDINGS = {Status.COMPLETED: 960, Status.FAILED: 14, Status.FAILED_RETRYABLE: 12, Status.UNKNOWN: 9}
PEOPLE = ("ada", "grace", "edsger", "barbara")


def fill() -> int:
    """Nothing where it has been done before."""
    if IdempotencyKey.objects.filter(scope__startswith=MARK).exists():
        return 0
    dice, now = random.Random(7), timezone.now()
    keys = [*past(dice, now), *open_now(dice, now)]
    events = [event for key in keys for event in story(key)]
    with transaction.atomic():
        IdempotencyKey.objects.bulk_create(keys, batch_size=500)
        IdempotencyEvent.objects.bulk_create(events, batch_size=500)
        IdempotencyCount.objects.bulk_create(counts(dice, now), batch_size=500)
        for job, done in {"sweep": {"unknown": 1}, "reconcile": {"landed": 3}, "resume": {}, "reap": {}}.items():
            run = {"started_at": now, "finished_at": now, "counts": json.dumps(done)}
            MaintenanceRun.objects.get_or_create(job=job, defaults=run)
    return len(keys)


def past(dice: random.Random, now: datetime) -> Iterator[IdempotencyKey]:
    for minute in range(5, HOURS * 60):
        for _ in range(arrivals(dice, now, minute)):
            (status,) = dice.choices(list(ENDINGS), weights=list(ENDINGS.values()))
            yield key(dice, now - timedelta(minutes=minute, seconds=dice.random() * 60), status)


def open_now(dice: random.Random, now: datetime) -> Iterator[IdempotencyKey]:
    for status, count in ((Status.IN_PROGRESS, 7), (Status.PENDING, 4)):
        for _ in range(count):
            yield key(dice, now - timedelta(seconds=dice.random() * 100), status)
    for hours in (3, 9, 20):
        yield key(dice, now - timedelta(hours=hours), Status.DEAD_LETTER)


def arrivals(dice: random.Random, now: datetime, minutes_ago: int) -> int:
    hour = (now - timedelta(minutes=minutes_ago)).hour
    return round(dice.random() * (1.4 + sin((hour - 8) / 12 * pi)))


def key(dice: random.Random, created: datetime, status: Status) -> IdempotencyKey:
    operation, (usual, slow) = dice.choice(list(OPERATIONS.items()))
    person, text = dice.choice(PEOPLE), str(UUID(int=dice.getrandbits(128), version=4))
    scope = f"{MARK}:{person}:{operation}"
    row = IdempotencyKey(
        id=uuid5(NAMESPACE_OID, scope + text), scope=scope, key=text, status=status, fingerprint="v3::" + "0" * 22,
        principal=person, operation=operation, request_method="POST", request_path=f"/{operation}/",
        attempt_token=uuid4(), lease_seconds=30, grace_seconds=300, retention_seconds=86_400, created_at=created,
        last_run_at=created, grace_until=created + timedelta(minutes=5),
    )  # fmt: skip
    seconds = slow * (0.5 + dice.random()) if dice.random() < 0.03 else usual * (0.5 + dice.random())
    dress(row, created + timedelta(seconds=seconds))
    return row


def dress(row: IdempotencyKey, ended: datetime) -> None:
    """What the table asks of a row in this state."""
    if row.status in (Status.COMPLETED, Status.FAILED):
        row.completed_at, row.expires_at = ended, ended + timedelta(days=2)
        row.response_status = 201 if row.status == Status.COMPLETED else 500
        row.response_headers, row.response_body = '[["Content-Type", "application/json"]]', b'{"id": 1}'
    elif row.status in (Status.IN_PROGRESS, Status.PENDING):
        row.locked_until, row.deferred = ended + timedelta(minutes=30), row.status == Status.PENDING
    elif row.status == Status.UNKNOWN:
        row.reconcile_after, row.last_error_code = ended + timedelta(days=2), "timeout"
    elif row.status == Status.FAILED_RETRYABLE:
        row.expires_at = ended + timedelta(days=2)


def story(row: IdempotencyKey) -> Iterator[IdempotencyEvent]:
    told = [("in doubt", "T5", "timeout")] if row.status in (Status.UNKNOWN, Status.DEAD_LETTER) else []
    told += [("dead letter", "T12", "no tries left")] if row.status == Status.DEAD_LETTER else []
    for number, (kind, cite, reason) in enumerate(told):
        at = row.created_at + timedelta(minutes=5 + 60 * number)
        yield IdempotencyEvent(record_id=row.id, kind=kind, transition=cite, reason=reason, at=at)


def counts(dice: random.Random, now: datetime) -> Iterator[IdempotencyCount]:
    usual = {"reserve.created": 9, "completed": 9, "reserve.replay": 2, "reserve.in_progress": 1}
    rare = {"reserve.key_misuse": 0.02, "reserve.unknown": 0.015, "reserve.failed_retry": 0.01}
    for minute in range(HOURS * 60):
        at = (now - timedelta(minutes=minute)).replace(second=0, microsecond=0)
        for outcome, most in usual.items():
            count = round(most * dice.random() * arrivals(dice, now, minute))
            if count:
                yield IdempotencyCount(minute=at, operation="payments", outcome=outcome, count=count)
        for outcome, chance in rare.items():
            if dice.random() < chance:
                yield IdempotencyCount(minute=at, operation="payments", outcome=outcome, count=dice.randint(1, 4))
