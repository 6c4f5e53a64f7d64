"""A report in three steps; the one in the middle waits until a file is there."""

import os
import time
from pathlib import Path

from django.conf import settings

from django_idempotency import Reply, json_reply
from django_idempotency.operations import Op, operation
from testproject.payments.models import LedgerEntry

PATIENCE_SECONDS = 120


def gate(folder: Path) -> Path:
    return folder / "gate"


@operation("tests.report")
def report(op: Op, *, title: str) -> Reply:
    begun_by = op.phase("begun", note, f"{title} begun")
    op.progress(1, 2)
    op.effect("gate", wait_at_the_gate, in_doubt="repeat")
    ended_by = op.phase("ended", note, f"{title} ended")
    return json_reply(201, {"title": title, "processes": sorted({begun_by, ended_by})})


def note(reference: str) -> int:
    LedgerEntry.objects.create(reference=reference, account="report", amount=1)
    return os.getpid()


def wait_at_the_gate(key: str) -> None:
    LedgerEntry.objects.create(reference=f"at the gate {key[-4:]} {time.time()}", account=str(os.getpid()), amount=0)
    pass_the_gate()


def pass_the_gate() -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not gate(settings.VAR).exists():
        assert time.monotonic() < deadline, "nobody opened the gate"
        time.sleep(0.02)
