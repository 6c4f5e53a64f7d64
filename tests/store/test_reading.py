"""What the store reads, and what it makes of what it finds."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from django_idempotency import Reply, Status
from django_idempotency.core.audit import Kind
from django_idempotency.core.decisions import Record
from django_idempotency.core.refs import Ref, derive_key
from django_idempotency.core.states import LostLease
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyEvent, IdempotencyKey, MaintenanceRun
from django_idempotency.store import attempts, claims, events, operations, records
from tests.kit.rows import FUTURE, NAMESPACE, PAST, REPLY, SCOPE, a_call, put
from tests.kit.threads import actors

pytestmark = pytest.mark.vendor

ON = "default"


@pytest.mark.django_db
def test_a_record_is_read_with_the_time_it_has_left() -> None:
    now = timezone.now()
    record = put(
        Status.IN_PROGRESS,
        locked_until=now + FUTURE,
        grace_until=now + 2 * FUTURE,
        attempts=3,
        tainted=True,
        on_lost_lease="resume",
    )
    found = records.find(Ref(SCOPE, record, ON))
    assert found is not None
    assert found.lease_left == pytest.approx(FUTURE.total_seconds(), abs=30)
    assert found.grace_left == pytest.approx(2 * FUTURE.total_seconds(), abs=30)
    assert found.expires_in is None
    assert (found.attempts, found.tainted, found.deferred) == (3, True, False)
    assert (found.on_lost_lease, found.reply) == (LostLease.RESUME, None)
    assert not found.lease_over


@pytest.mark.django_db
@pytest.mark.parametrize(("moved", "over"), [(timedelta(seconds=-1), True), (timedelta(seconds=30), False)])
def test_times_are_compared_with_the_databases_clock(moved: timedelta, over: bool) -> None:
    record = put(Status.IN_PROGRESS, locked_until=timezone.now() + moved)
    found = records.find(Ref(SCOPE, record, ON))
    assert found is not None
    assert found.lease_over is over


@pytest.mark.django_db
@pytest.mark.parametrize(
    "reply",
    [
        REPLY,
        Reply(204, (), b""),
        Reply(200, (("Content-Type", "text/plain"),), None),
        Reply(500, (("Content-Language", "de, fr"),), bytes(range(256)) * 64, 65_535),
    ],
    ids=["plain", "empty", "omitted", "large"],
)
def test_an_answer_comes_back_byte_for_byte(reply: Reply) -> None:
    call, token = a_call(), uuid4()
    claims.insert_claim(call, token, ON, namespace=NAMESPACE)
    assert attempts.complete(Ref(SCOPE, call.id, ON), token, reply, success=True)
    found = records.find(Ref(SCOPE, call.id, ON))
    assert found is not None
    assert found.reply == reply


@pytest.mark.django_db
def test_the_first_schema_version_takes_no_room() -> None:
    for reply in (Reply(200, (), b""), Reply(200, (), b"", 2)):
        assert claims.insert_finished(a_call(key=f"{reply.schema_version}"), uuid4(), reply, ON, namespace=NAMESPACE)
    stored = IdempotencyKey.objects.order_by("key").values_list("response_schema_version", flat=True)
    assert list(stored) == [None, 2]


@pytest.mark.django_db
@pytest.mark.parametrize("headers", ["", "no JSON", '{"a": 1}'])
def test_an_answer_that_cannot_be_read_is_withheld(headers: str) -> None:
    record = put(Status.COMPLETED, response_headers=headers)
    found = records.find(Ref(SCOPE, record, ON))
    assert found is not None
    assert found.reply == Reply(200, (), None)


@pytest.mark.django_db
def test_what_is_not_there_is_none() -> None:
    call = a_call()
    assert records.find(Ref(SCOPE, call.id, ON)) is None
    assert records.find_by_key(SCOPE, "key", ON) is None
    assert operations.read_operation(Ref(SCOPE, call.id, ON)) is None


@pytest.mark.django_db
def test_where_a_run_stands() -> None:
    record = put(Status.IN_PROGRESS, run_name="export", arguments="[1]", progress="[2]", steps_done=3)
    assert operations.read_operation(Ref(SCOPE, record, ON)) == operations.StoredOperation("export", "[1]", "[2]", 3)


# Atomic mode's look


@pytest.mark.django_db
def test_a_look_finds_the_record_or_nothing() -> None:
    call = a_call()
    assert claims.look(call, ON) == (True, None)
    put(Status.DEAD_LETTER, grace_until=None)
    mine, found = claims.look(call, ON)
    assert mine
    again = records.find(Ref(SCOPE, call.id, ON))
    assert found is not None
    assert again is not None
    assert found == replace(again, ran_ago=found.ran_ago, age=found.age), "these two grow between the reads"


@pytest.mark.django_db(transaction=True)
def test_a_look_says_whether_another_transaction_has_the_key(vendor: str) -> None:
    """Where the database has a lock that can be asked for without waiting; else the unique insert decides alone."""
    alone = vendor != "postgresql"
    with actors(1) as (other,), transaction.atomic():
        assert claims.look(a_call(), ON) == (True, None)
        assert other.do(claims.look, a_call(), ON) == (alone, None)
        assert other.do(claims.look, a_call("another key"), ON) == (True, None)


# Claims that cannot be


@pytest.mark.unique_id
@pytest.mark.django_db
def test_a_claim_that_neither_wins_nor_finds_the_winner_gives_up() -> None:
    call = a_call()
    put(Status.IN_PROGRESS)
    IdempotencyKey.objects.update(scope="another scope")
    with pytest.raises(StoreUnavailable, match="comes and goes"):
        claims.insert_claim(call, uuid4(), ON, namespace=NAMESPACE)


@pytest.mark.django_db
def test_a_claim_that_the_table_refuses_is_no_duplicate() -> None:
    broken: Any = None
    with pytest.raises(IntegrityError), transaction.atomic():
        claims.insert_claim(replace(a_call(), fingerprint=broken), uuid4(), ON, namespace=NAMESPACE)
    assert not IdempotencyKey.objects.exists()


@pytest.mark.django_db
def test_text_about_the_request_is_cut_to_its_column() -> None:
    long = replace(a_call(), principal="p" * 300, operation="o" * 300, method="M" * 20, path="/" * 300)
    assert claims.insert_claim(long, uuid4(), ON, namespace=NAMESPACE) is None
    row = IdempotencyKey.objects.get()
    assert (len(row.principal), len(row.operation), len(row.request_method), len(row.request_path)) == (
        255,
        255,
        16,
        255,
    )


# Beside the record


@pytest.mark.django_db
def test_an_event_is_appended_by_the_databases_clock() -> None:
    record = uuid4()
    events.write(Ref(SCOPE, record, ON), Kind.DISMISSED, actor="a" * 300, reason="asked the bank")
    event = IdempotencyEvent.objects.get()
    assert (event.record_id, event.kind, event.transition) == (record, "dismissed", "T14")
    assert (event.actor, event.reason) == ("a" * 255, "asked the bank")
    assert abs(event.at - timezone.now()) < timedelta(seconds=30)


@pytest.mark.django_db
def test_a_reason_that_no_database_would_take_is_stored_without_what_it_refuses() -> None:
    events.write(Ref(SCOPE, uuid4(), ON), Kind.DEAD_LETTER, actor="gate\0way", reason="no \0such \ud800charge")
    event = IdempotencyEvent.objects.get()
    assert (event.actor, event.reason) == ("gateway", "no such ?charge")


def test_a_job_is_called_by_its_name() -> None:
    assert str(MaintenanceRun(job="sweep")) == "sweep"


def test_a_record_derives_the_keys_that_its_attempts_used() -> None:
    call = a_call()
    row = IdempotencyKey(id=call.id, namespace=NAMESPACE)
    assert row.derive("charge") == derive_key(call.id, NAMESPACE, "charge")


@pytest.mark.django_db
def test_the_clock_is_in_utc_whatever_the_session_says() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no session time zone")
    record = put(Status.IN_PROGRESS, locked_until=timezone.now() + PAST / 60)
    with connection.cursor() as cursor:
        zone = {"postgresql": "SET LOCAL TIME ZONE 'Asia/Tokyo'", "mysql": "SET time_zone = '+09:00'"}
        cursor.execute(zone[connection.vendor])
        try:
            found = records.find(Ref(SCOPE, record, ON))
            assert IdempotencyKey.objects.overdue().count() == 1
            assert IdempotencyKey.objects.filter(locked_until__gt=StatementNow()).count() == 0
        finally:
            if connection.vendor == "mysql":  # elsewhere it ends with the transaction
                cursor.execute("SET time_zone = DEFAULT")
    assert found is not None
    assert found.lease_left == pytest.approx(-60, abs=30)


@pytest.mark.django_db
@pytest.mark.parametrize("status", Status)
def test_a_record_is_the_same_whichever_way_it_is_read(status: Status) -> None:
    """A policy's `authorize` gets it from a statement on a replay, and from the model at an address."""
    now = timezone.now()
    record = put(status, grace_until=now + FUTURE, last_run_at=now - FUTURE, attempts=3, tainted=True)
    IdempotencyKey.objects.filter(id=record).update(on_lost_lease="resume", namespace="9f86d081884c")
    found, row = records.find(Ref(SCOPE, record, ON)), records.load(record, ON)
    assert found is not None
    assert row is not None
    there = records.as_read(row)
    for each in fields(Record):
        value = getattr(found, each.name)
        expected = pytest.approx(value, abs=30) if isinstance(value, float) else value
        assert getattr(there, each.name) == expected, each.name
