"""Telling a worker that work is waiting. The message carries a record's id; the record says the rest."""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Final, TypeAlias
from uuid import UUID

from django.db import transaction
from django.utils.module_loading import import_string

from django_idempotency.conf import conf
from django_idempotency.signals import logger

_WITH_CELERY: Final = "django_idempotency.tasks.sender"

Sender: TypeAlias = Callable[[str], object]


def sender() -> Sender | None:
    """What the settings name; else the Celery task where the project uses Celery; None: workers come by themselves."""
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
    """How long a message may be on its way; where none is sent the work is due at once."""
    return ceil(conf.PICK_UP.total_seconds()) if sender() is not None else 0


def send(record: UUID) -> bool:
    """A message that cannot be sent is logged: the sweeper sends it again."""
    deliver = sender()
    if deliver is None:
        return True
    try:
        deliver(str(record))
    except Exception:  # noqa: BLE001 - whatever a broker's client fails with, the record stands
        logger.exception("No message could be sent for idempotency record %s; the sweeper sends it again.", record)
        return False
    return True


def send_on_commit(record: UUID, using: str) -> None:
    """After the caller's transaction, where one is open: a message that is early finds nothing to do."""
    transaction.on_commit(partial(send, record), using=using, robust=True)
