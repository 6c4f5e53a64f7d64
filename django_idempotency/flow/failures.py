"""What exceptions tell: which record they are about, and what the audit trail keeps of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from django_idempotency.conf import conf
from django_idempotency.core.redaction import redact
from django_idempotency.signals import logger


@contextmanager
def naming(record: UUID) -> Iterator[None]:
    """Note on whatever is raised in this block that it is about this record: it proves nothing about another one."""
    try:
        yield
    except BaseException as error:
        with suppress(AttributeError):  # its class has slots
            error.idempotency_record = record  # type: ignore[attr-defined] # ours
        raise


def named_record(error: BaseException) -> UUID | None:
    """Return the record that an exception is about, if it was raised by the work of a key or about a key."""
    return getattr(error, "idempotency_record", None)


def describe_error(error: BaseException) -> str:
    """Return the message without what may be a secret. A database's message is left out: it quotes rows."""
    return "" if isinstance(error, DatabaseError) else redact(str(error))


def collect_evidence(error: BaseException | None) -> dict[str, Any]:
    """Return the message of an exception, and the project's name for the request. Never raises."""
    found = {
        "message": "" if error is None else _ask_project("DESCRIBE_ERROR", lambda: _describe(error)),
        "trace": _ask_project("TRACE_ID", _find_trace),
    }
    return {name: text for name, text in found.items() if text}


def _describe(error: BaseException) -> object:
    given = conf.DESCRIBE_ERROR if conf.is_given("DESCRIBE_ERROR") else describe_error
    return None if given is None else given(error)


def _find_trace() -> object:
    given = conf.TRACE_ID
    return None if given is None else given()


def _ask_project(setting: str, ask: Callable[[], object]) -> str:
    try:
        answer = ask()
    except Exception:  # noqa: BLE001 - what describes a failure must not hide it
        logger.exception("IDEMPOTENCY[%r] failed; the audit trail is kept without it.", setting)
        return ""
    return "" if answer is None else str(answer)[:500]
