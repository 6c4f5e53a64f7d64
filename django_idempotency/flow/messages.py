"""Telling a worker that work is waiting. A message carries a record's id; the record holds the rest."""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final, TypeAlias
from uuid import UUID

from django.db import transaction
from django.utils.module_loading import import_string

from django_idempotency.conf import conf
from django_idempotency.signals import logger

_WITH_CELERY: Final = "django_idempotency.tasks.celery_sender"

Sender: TypeAlias = Callable[[str], object]


def sender() -> Sender | None:
    """Return what sends a message: the setting, or else the Celery task; None if workers look for work themselves."""
    if conf.ENQUEUE is not None:
        return conf.ENQUEUE
    if conf.is_given("ENQUEUE"):
        return None
    try:
        found: Callable[[], Sender | None] = import_string(_WITH_CELERY)
    except ImportError:
        return None
    return found()


def pick_up_seconds() -> int:
    """Return how long a message may take to arrive; 0 if none is sent, because the work is then due at once."""
    return ceil(conf.PICK_UP.total_seconds()) if sender() is not None else 0


def send(record: UUID) -> bool:
    """Send one message. True unless it failed; the failure is logged, and the sweeper sends the message again."""
    deliver = sender()
    if deliver is None:
        return True
    try:
        deliver(str(record))
    except Exception:  # noqa: BLE001 - whatever a broker's client fails with, the record is stored
        logger.exception("No message could be sent for idempotency record %s; the sweeper sends it again.", record)
        return False
    return True


def send_on_commit(record: UUID, using: str) -> None:
    """Send a message after the caller's transaction: one that arrives before its COMMIT would find nothing to do."""
    transaction.on_commit(partial(send, record), using=using, robust=True)
