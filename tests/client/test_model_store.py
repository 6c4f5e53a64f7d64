"""The store of an outbox in the project's database."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from django.db import connection, transaction

from django_idempotency.client import ChangedRequest, Outbox, ReceivedResponse
from django_idempotency.contrib.outbox.models import OutboxCall
from django_idempotency.contrib.outbox.store import ModelStore
from tests.client.libraries import with_async_httpx, with_httpx
from tests.kit.scripted import Request, Scripted, ScriptedService

pytestmark = pytest.mark.vendor

OK = Scripted(201, {"X-Order": "17"})


def in_the_services_thread(work: Callable[[], object]) -> Callable[[Request], None]:
    """It has a connection of its own, and sees what is committed."""

    def run(_request: Request) -> None:
        with closing(connection):
            work()

    return run


@pytest.mark.django_db(transaction=True)
def test_a_call_is_committed_before_it_is_sent_and_has_one_response(service: ScriptedService) -> None:
    service.script = [OK]
    outbox = Outbox(ModelStore())
    states: list[list[str]] = []
    look = in_the_services_thread(lambda: states.append([call.name for call in ModelStore().open_calls()]))
    service.on_request = look
    first = with_httpx("POST", service.url, b'{"amount": 5}', outbox=outbox)
    assert states == [["order-17"]]
    assert with_httpx("POST", service.url, b'{"amount": 5}', outbox=outbox) == first == (201, OK.body)
    assert len(service.got) == 1
    row = OutboxCall.objects.get()
    assert (row.response_status, row.response_headers["x-order"], bytes(row.body)) == (201, "17", b'{"amount": 5}')
    assert str(row) == "order-17"
    assert ModelStore().open_calls() == []
    with pytest.raises(ChangedRequest):
        with_httpx("POST", service.url, b"other", outbox=outbox)


@pytest.mark.django_db(transaction=True)
def test_the_first_response_stays(service: ScriptedService) -> None:
    """It was stored by another process while this one was sending."""
    service.script = [Scripted(201, body=b"second")]
    outbox, store = Outbox(ModelStore()), ModelStore()
    first = ReceivedResponse(201, {}, b"first")
    service.on_request = in_the_services_thread(lambda: store.finish("order-17", first))
    assert with_httpx("POST", service.url, outbox=outbox) == (201, b"first")


@pytest.mark.django_db(transaction=True)
def test_nothing_is_sent_inside_a_transaction(service: ScriptedService) -> None:
    service.script = [OK]
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        with_httpx("POST", service.url, outbox=Outbox(ModelStore()))
    assert service.got == []


@pytest.mark.django_db(transaction=True)
def test_names_are_compared_byte_for_byte(service: ScriptedService) -> None:
    service.script = [OK]
    for name in ("order", "Order", "order "):
        with_httpx("POST", service.url, outbox=Outbox(ModelStore()), name=name)
    assert len({request.key for request in service.got}) == 3


@pytest.mark.django_db(transaction=True)
def test_async_code_uses_it_from_a_thread(service: ScriptedService) -> None:
    service.script = [OK]
    assert with_async_httpx("POST", service.url, outbox=Outbox(ModelStore())).status == 201
    assert with_async_httpx("POST", service.url, outbox=Outbox(ModelStore())).status == 201
    assert len(service.got) == 1


@pytest.mark.django_db
def test_a_test_case_of_yours_may_use_it(service: ScriptedService) -> None:
    """Its transaction is Django's own."""
    service.script = [OK]
    assert with_httpx("POST", service.url, outbox=Outbox(ModelStore())).status == 201
