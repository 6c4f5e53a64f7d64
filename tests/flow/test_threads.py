"""What code sees in a thread that the package starts: the context variables of the code that needed the thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from datetime import timedelta
from threading import current_thread
from typing import Any

import pytest
from django.db import connections
from django.db.backends.signals import connection_created
from django.utils.translation import get_language, override

from django_idempotency import maintenance
from django_idempotency.flow.heartbeat import beating
from django_idempotency.reconciliation import Inconclusive, reconciler
from django_idempotency.store import threads
from tests.kit import records
from tests.kit.registrations import temporary_registrations
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]

ACCOUNT: ContextVar[str] = ContextVar("account", default="")
SEEN: list[tuple[str, str, str | None]] = []


def note(**kwargs: Any) -> None:
    SEEN.append((current_thread().name, ACCOUNT.get(), get_language()))


@pytest.fixture(autouse=True)
def seen() -> Iterator[None]:
    SEEN.clear()
    before = ACCOUNT.set("acme")
    connection_created.connect(note)
    with override("de"):
        yield
    connection_created.disconnect(note)
    ACCOUNT.reset(before)


def test_a_reconciler_asks_for_the_account_of_its_caller() -> None:
    records.age(records.doubtful("tests.accounts"), "reconcile_after")
    with temporary_registrations():

        @reconciler("tests.accounts")
        def ask(record: Any) -> Inconclusive:
            note()
            return Inconclusive()

        maintenance.reconcile()
    assert ("idempotency-poll", "acme", "de") in SEEN


def test_a_heartbeat_connects_for_the_account_of_its_handler() -> None:
    with beating(records.claimed(lease=timedelta(seconds=1), transaction="late", heartbeat=timedelta(minutes=1))):
        assert wait_until(lambda: ("idempotency-heartbeat", "acme", "de") in SEEN, within=10)


def test_a_thread_of_the_whole_process_keeps_nothing_of_its_first_caller() -> None:
    threads.start_for_process("test", note).join()
    assert SEEN == [("idempotency-test", "", "en-us")]


def test_calls_at_once_have_a_context_each() -> None:
    def rename(number: int) -> str:
        before = ACCOUNT.get()
        ACCOUNT.set(str(number))
        return before

    assert threads.run_each(rename, range(4)) == ["acme"] * 4
    assert ACCOUNT.get() == "acme"


class OfTenants:
    """What django-tenants' engine has besides a connection."""

    def __init__(self, alias: str) -> None:
        self.alias, self.tenant = alias, None

    def set_tenant(self, tenant: Any) -> None:
        self.tenant = tenant

    schema_name = "public"


def test_a_thread_that_cannot_enter_the_schema_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck: Any = OfTenants("default")
    stuck.tenant = type("Tenant", (), {"schema_name": "acme"})
    monkeypatch.setattr(connections, "all", lambda initialized_only: [stuck])
    work = threads.bind(note)
    monkeypatch.setattr(type(connections), "__getitem__", lambda self, alias: stuck)
    with pytest.raises(RuntimeError, match="in the schema 'public', not in 'acme'"):
        work()
    assert not SEEN
