"""Tasks that run once for each message; one of them stops at the gate."""

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from celery import shared_task
from django.conf import settings

from django_idempotency.once import Claim
from django_idempotency.tasks import once_per_message
from testproject.payments.models import LedgerEntry
from tests.celery.served.operations import pass_the_gate

SHORT = timedelta(seconds=2)
LONG = timedelta(minutes=5)
FOUR_WAITS = timedelta(seconds=14)  # of 2, 2, 4 and 8 seconds: one more than Celery retries a task by itself


def came(folder: Path) -> Path:
    """A file for each process that came to the gate: a transaction could take a row back."""
    return folder / "came"


def book(claim: Claim, reference: str) -> str:
    LedgerEntry.objects.create(reference=reference, account="message", amount=1)
    return uuid4().hex


def book_late(claim: Claim, reference: str) -> object:
    return claim.finish(lambda: book(claim, reference))


def book_at_the_gate(claim: Claim, reference: str) -> str:
    booked = book(claim, reference)
    stop_at_the_gate()
    return booked


def book_behind_the_gate(claim: Claim, reference: str) -> object:
    stop_at_the_gate()
    return book_late(claim, reference)


def stop_at_the_gate() -> None:
    came(settings.VAR).mkdir(exist_ok=True)
    (came(settings.VAR) / str(os.getpid())).touch()
    pass_the_gate()


def as_task(name: str, mode: str, lease: timedelta, function: Callable[..., object], **policy: Any) -> None:
    guarded = once_per_message(name, mode=mode, lease=lease, **policy)(function)
    shared_task(name=name, acks_late=True, reject_on_worker_lost=True, default_retry_delay=1)(guarded)


as_task("tests.book_leased", "leased", LONG, book)
as_task("tests.late_leased", "leased", LONG, book_late)
as_task("tests.book_atomic", "atomic", LONG, book)
as_task("tests.gate_leased", "leased", SHORT, book_at_the_gate)
as_task("tests.gate_atomic", "atomic", SHORT, book_at_the_gate)
as_task("tests.gate_restart", "leased", FOUR_WAITS, book_behind_the_gate, on_lost_lease="restart")
