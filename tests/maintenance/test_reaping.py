"""The reaper deletes what has ended in plain batches, or, where rows point at records, without touching those rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import NotSupportedError, OperationalError, connection, models
from django.db.models import F
from django.test.utils import CaptureQueriesContext
from pytest_django.plugin import DjangoDbBlocker

from django_idempotency import maintenance
from django_idempotency.core.refs import Ref
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.finish import release
from django_idempotency.models import IdempotencyKey
from django_idempotency.store import deletion
from testproject.payments.models import Payment
from testproject.servers import ROOT
from tests.kit.counting import counted
from tests.kit.processes import database_beside
from tests.kit.records import change, claimed, completed, doubtful, status_of
from tests.kit.threads import actors, held_open

pytestmark = pytest.mark.vendor

LONG_AGO = F("created_at") - timedelta(days=3650)


@pytest.fixture(params=["plain batch", "collector"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """As in a project whose rows do not point at records, and as in this one."""
    assert deletion.pointers()
    if request.param == "plain batch":
        monkeypatch.setattr(deletion, "pointers", list)
    return str(request.param)


def past(attempt: Attempt, **changes: Any) -> Attempt:
    change(attempt, expires_at=LONG_AGO, **changes)
    return attempt


def paid_by(attempt: Attempt) -> Payment:
    owner, _ = User.objects.get_or_create(username="ada")
    order = {"amount": 5, "currency": "EUR", "customer": "ada", "charge": "ch_1"}
    return Payment.objects.create(owner=owner, idempotency_key_id=attempt.call.id, **order)


def records() -> set[object]:
    return set(IdempotencyKey.objects.values_list("id", flat=True))


@pytest.mark.django_db
@pytest.mark.usefixtures("way")
def test_it_takes_what_has_ended_and_nothing_else() -> None:
    past(completed())
    kept, open_, unsettled, forever = completed(), claimed(), doubtful(), completed(retention=None)

    assert +maintenance.reap() == {"deleted": 1}

    assert records() == {each.call.id for each in (kept, open_, unsettled, forever)}


@pytest.mark.django_db
@pytest.mark.usefixtures("way")
def test_what_expires_softly_is_kept_for_audit_first() -> None:
    attempt = past(completed(expiry="soft"))
    assert +maintenance.reap() == {"expired": 1}
    assert status_of(attempt) == "expired"
    assert +maintenance.reap() == {}, "its audit time has begun"
    past(attempt)
    assert +maintenance.reap() == {"deleted": 1}


@pytest.mark.django_db
@pytest.mark.usefixtures("way")
def test_what_had_no_effect_waits_for_its_grace_too() -> None:
    early, late = claimed(), claimed()
    for attempt in (early, late):
        assert release(attempt, "test")
    past(early)
    past(late, grace_until=LONG_AGO)

    assert +maintenance.reap() == {"deleted": 1}

    assert records() == {early.call.id}


@pytest.mark.django_db
@pytest.mark.usefixtures("way")
def test_pages_full_of_what_waits_do_not_keep_the_others() -> None:
    waiting, ended = [claimed() for _ in range(5)], [completed() for _ in range(3)]
    for attempt in waiting:
        assert release(attempt, "test")
        past(attempt)
    for attempt in ended:
        change(attempt, expires_at=F("created_at") - timedelta(hours=1))

    assert +maintenance.reap(maintenance.Bounds(batch_size=2)) == {"deleted": 3}

    assert records() == {attempt.call.id for attempt in waiting}


@pytest.mark.django_db
@pytest.mark.parametrize("pointing", [0, 3, 5], ids="{} of 5 are pointed at".format)
def test_a_row_that_points_at_a_record_outlives_it(pointing: int) -> None:
    gone, kept = [past(completed()) for _ in range(5)], completed()
    payments = [paid_by(attempt) for attempt in gone[:pointing]]
    twice, other = paid_by(gone[0]), paid_by(kept)

    assert +maintenance.reap() == {"deleted": 5}

    assert records() == {kept.call.id}
    pointers = dict(Payment.objects.values_list("id", "idempotency_key_id"))
    assert pointers == {**{each.pk: None for each in (*payments, twice)}, other.pk: kept.call.id}


@pytest.mark.django_db
def test_a_page_is_followed_by_the_next() -> None:
    for _ in range(5):
        paid_by(past(completed()))
    assert +maintenance.reap(maintenance.Bounds(batch_size=2)) == {"deleted": 5}
    assert Payment.objects.filter(idempotency_key=None).count() == 5


@pytest.mark.django_db(transaction=True)  # PostgreSQL and SQLite look at a foreign key at the commit
@pytest.mark.parametrize(
    "on_delete", [pytest.param(models.DO_NOTHING, marks=pytest.mark.unique_id), models.PROTECT, models.RESTRICT]
)
def test_what_a_row_keeps_from_going_keeps_no_others(
    on_delete: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (relation,) = deletion.pointers()
    monkeypatch.setattr(relation, "on_delete", on_delete)
    gone = [past(completed()) for _ in range(7)]
    kept = {paid_by(each).idempotency_key_id for each in (gone[0], gone[4])}

    for deleted in (5, 0):
        counts = maintenance.reap(maintenance.Bounds(batch_size=3))
        assert (counts["deleted"], counts["failed"], records()) == (deleted, 2, kept)

    assert set(Payment.objects.values_list("idempotency_key_id", flat=True)) == kept
    assert all(f"{record} cannot be deleted" in caplog.text for record in kept)


@pytest.fixture
def _refusing_trigger() -> Iterator[None]:
    """An append-only table: the foreign key of its rows cannot be set to NULL."""
    if connection.vendor != "postgresql":
        pytest.skip("the trigger is PostgreSQL's")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE SQLSTATE '42501' USING MESSAGE = 'append only'; END $$"
        )
        cursor.execute("CREATE TRIGGER refuse BEFORE UPDATE ON payments_payment FOR EACH ROW EXECUTE FUNCTION refuse()")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse CASCADE")


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_refusing_trigger")
def test_a_trigger_that_refuses_keeps_no_others(caplog: pytest.LogCaptureFixture) -> None:
    gone = [past(completed()) for _ in range(5)]
    kept = paid_by(gone[2]).idempotency_key_id
    assert +maintenance.reap() == {"deleted": 4, "failed": 1}
    assert records() == {kept}
    assert f"{kept} cannot be deleted" in caplog.text


@pytest.mark.django_db
def test_a_receiver_that_refuses_keeps_no_others() -> None:
    gone = [past(completed()) for _ in range(5)]

    def refuse(instance: IdempotencyKey, **sent: Any) -> None:
        if instance.pk == gone[2].call.id:
            raise RuntimeError("legal hold")

    models.signals.pre_delete.connect(refuse, sender=IdempotencyKey)
    try:
        assert +maintenance.reap() == {"deleted": 4, "failed": 1}
    finally:
        models.signals.pre_delete.disconnect(refuse, sender=IdempotencyKey)
    assert records() == {gone[2].call.id}


@pytest.mark.django_db
def test_an_engine_that_locks_one_scope_at_a_time_gets_scope_by_scope(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("it locks no rows")
    gone = [past(completed()) for _ in range(4)]
    change(gone[1], scope="bob payments")
    change(gone[3], scope="bob payments")
    payments = [paid_by(attempt) for attempt in gone]
    locks: list[set[str]] = []

    def refuse_several_scopes(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        """As Citus does, where every shard may hold a row of the statement."""
        if "FOR UPDATE" in sql:
            locks.append({"alice payments", "bob payments"}.intersection(params))
            if len(locks[-1]) != 1:
                raise NotSupportedError("could not run distributed query with FOR UPDATE/SHARE commands")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(refuse_several_scopes):
        assert +maintenance.reap() == {"deleted": 4}

    assert locks[0] == {"alice payments", "bob payments"}
    assert sorted(map(len, locks[1:])) == [1, 1]
    assert Payment.objects.filter(pk__in=[each.pk for each in payments], idempotency_key=None).count() == 4


LOCK_LIMIT = {
    "postgresql": ("SET lock_timeout = '100ms'", "SET lock_timeout = 0"),
    "mysql": ("SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION innodb_lock_wait_timeout = DEFAULT"),
}


@pytest.mark.direct
@pytest.mark.django_db(transaction=True)
def test_what_another_transaction_holds_keeps_no_others(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("it locks no rows")
    gone, soft = [past(completed()) for _ in range(3)], past(completed(expiry="soft"))
    payment = paid_by(gone[1])
    shorten, restore = LOCK_LIMIT[vendor]
    with connection.cursor() as cursor:
        cursor.execute(shorten)
    try:
        with actors(1) as (other,), held_open(other, lambda: Payment.objects.select_for_update().get(pk=payment.pk)):
            assert +maintenance.reap() == {"deleted": 2, "expired": 1, "contended": 1}
    finally:
        with connection.cursor() as cursor:
            cursor.execute(restore)
    assert status_of(soft) == "expired"
    assert +maintenance.reap() == {"deleted": 1}


class Busy(Exception):
    sqlite_errorname = "SQLITE_BUSY"


def contention() -> OperationalError:
    error = OperationalError("locked")
    error.__cause__ = Busy()
    return error


@pytest.mark.django_db
def test_where_all_is_held_a_page_is_not_waited_for_row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(100):
        past(completed(expiry="soft"))
    tries: list[int] = []

    def waits(page: list[Ref], using: str) -> int:
        tries.append(len(page))
        raise contention()

    monkeypatch.setattr(deletion, "delete", waits)
    assert +maintenance.reap() == {"contended": 100}
    assert len(tries) < 20


@pytest.mark.django_db
def test_a_database_that_is_gone_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    past(completed())

    def gone(page: list[Ref], using: str) -> int:
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(deletion, "delete", gone)
    with pytest.raises(OperationalError, match="closed"):
        maintenance.reap()


@pytest.fixture
def _no_way_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As with `related_name="+"`."""
    (relation,) = deletion.pointers()
    monkeypatch.setattr(relation, "hidden", True)
    options: Any = IdempotencyKey._meta
    options._expire_cache(forward=False)
    assert not options.related_objects
    yield
    options._expire_cache(forward=False)


@pytest.mark.django_db
@pytest.mark.usefixtures("_no_way_back")
def test_a_foreign_key_without_a_way_back_counts() -> None:
    payment = paid_by(past(completed()))
    assert +maintenance.reap() == {"deleted": 1}
    payment.refresh_from_db()
    assert payment.idempotency_key_id is None


@pytest.mark.django_db
@pytest.mark.parametrize("number", [1, 60])
def test_what_a_page_costs(way: str, number: int) -> None:
    maintenance.reap()  # the job's row is there from now on
    for _ in range(number):
        past(completed())

    cost = counted(maintenance.reap)

    # The job's row twice, one page, and whether there are old events, old counts and counts of minutes to merge.
    around = 6
    # One DELETE; or: lock, read what may still go, no pointers left behind, one DELETE.
    assert cost.plain == around + (1 if way == "plain batch" else 4), str(cost)
    assert not records()


@pytest.mark.django_db
def test_the_collector_does_not_read_the_stored_answers() -> None:
    past(completed())
    with CaptureQueriesContext(connection) as captured:
        maintenance.reap()
    texts = [each["sql"] for each in captured]
    assert any("payments_payment" in text for text in texts)
    assert not [text for text in texts if "response_body" in text]


REAP = """
import django
django.setup()

from datetime import UTC, datetime
from uuid import uuid4
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_idempotency.maintenance import reap
from django_idempotency.models import IdempotencyKey

then = datetime(2020, 1, 1, tzinfo=UTC)
past = {"created_at": then, "completed_at": then, "expires_at": then, "lease_seconds": 1, "grace_seconds": 1}
for number in range(5):
    IdempotencyKey.objects.create(id=uuid4(), scope="s", key=number, status="completed", response_status=200, **past)
with CaptureQueriesContext(connection) as captured:
    print(reap()["deleted"])
for text in "DELETE FROM", "FOR UPDATE":
    print(sum(text in query["sql"] for query in captured))
"""


@pytest.mark.processes
def test_without_foreign_keys_to_records_one_statement_deletes_them(
    tmp_path: Path, django_db_blocker: DjangoDbBlocker
) -> None:
    with django_db_blocker.unblock(), database_beside(settings.DATABASE_URL, "alone", tmp_path) as url:
        done = subprocess.run(
            [sys.executable, "-c", REAP],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "benchmarks.records_alone"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.stdout.split(), done.stderr) == (["5", "1", "0"], "")
