"""The store answers within its limit, or says in one way that it did not."""

from collections.abc import Iterator
from threading import Event
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from django.db import DatabaseError, Error, IntegrityError, connection, connections, transaction

from django_idempotency import Status
from django_idempotency.exceptions import InsideTransaction, StoreUnavailable
from django_idempotency.models import IdempotencyKey, MaintenanceRun
from django_idempotency.store import claims, limits
from django_idempotency.store.watchdog import WATCHDOG
from tests.kit.databases import another_alias, backend, is_waiting, kill, sessions, without_autocommit
from tests.kit.rows import NAMESPACE, a_call, put
from tests.kit.threads import Actor, actors, held_open, wait_until

pytestmark = pytest.mark.vendor

ON = "default"
LATE = 1.0  # how much a busy machine may add to a limit


@pytest.fixture
def crowd() -> Iterator[list[Actor]]:
    with actors(2) as crowd:
        yield crowd


@pytest.fixture
def needs_a_server(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("SQLite has no server")


def claimed(left: float, key: str = "key") -> bool:
    return claims.insert_claim(a_call(key), uuid4(), ON, left, namespace=NAMESPACE) is None


# Waiting


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seconds", [0.2, 1.5])
def test_a_claim_that_waits_for_another_one_gives_up(seconds: float, crowd: list[Actor]) -> None:
    """On SQLite it is the only writer's lock, elsewhere the uncommitted row with the same key."""
    with held_open(crowd[0], lambda: claimed(10)):
        open_before = sessions()
        began = monotonic()
        with pytest.raises(StoreUnavailable):
            limits.repeated(claimed, ON, seconds)
        assert monotonic() - began < seconds + LATE
        # What a busy machine cut off is still on the server, and would get the key as soon as that is free.
        wait_until(lambda: sessions() <= open_before)
    assert not WATCHDOG._guarded
    assert limits.repeated(claimed, ON, 10), "nothing stood in the way any more"
    assert IdempotencyKey.objects.count() == 1


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seconds", [0.5, 2.0])
def test_giving_up_does_not_cost_the_connection(seconds: float, crowd: list[Actor]) -> None:
    """The server gives up before the watchdog does: cut off, it would go on waiting and claim the key for nobody."""
    connection.ensure_connection()
    raw = connection.connection
    with held_open(crowd[0], lambda: claimed(10)):
        with pytest.raises(StoreUnavailable) as caught, limits.limited(ON, seconds):
            claimed(seconds * 0.8)
        assert limits.may_repeat(caught.value)
    assert connection.connection is raw
    assert connection.is_usable()


@pytest.mark.direct
@pytest.mark.django_db(transaction=True)
def test_a_claim_goes_on_when_the_other_one_is_gone(crowd: list[Actor], needs_a_server: None) -> None:
    waiter = crowd[1].do(backend)
    with held_open(crowd[0], lambda: claimed(10)):
        waiting = crowd[1].start(limits.repeated, claimed, ON, 20.0)
        wait_until(lambda: is_waiting(waiter))
    assert waiting.result(60) is True


@pytest.mark.django_db(transaction=True)
def test_sqlite_waits_no_longer_than_the_limit_and_is_set_back(vendor: str) -> None:
    if vendor != "sqlite":
        pytest.skip("the others have their limits on the server and in the watchdog")

    def configured() -> int:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout")
            return int(cursor.fetchone()[0])

    before = configured()
    with limits.limited(ON, 0.25):
        assert 0 < configured() <= 250, "what opening the connection took is off the limit"
    assert configured() == before
    with limits.limited(ON, before / 1000 + 1):
        assert configured() == before, "a limit never makes it wait longer"


@pytest.mark.django_db(transaction=True)
def test_no_time_left_is_no_time_to_connect() -> None:
    connection.close()
    with pytest.raises(StoreUnavailable), limits.limited(ON, 0.0):
        raise AssertionError("nothing runs")
    assert connection.connection is None


@pytest.mark.django_db(transaction=True)
def test_a_duplicate_that_waits_behind_its_own_first_request_is_told_of_it(vendor: str, crowd: list[Actor]) -> None:
    """It read before the first one's claim, and its INSERT waits behind the first one's view."""
    if vendor != "sqlite":
        pytest.skip("elsewhere a claim waits for nobody's view")
    writes, go = Event(), Event()
    first: list[Any] = []

    def run_the_first() -> None:
        assert claimed(10)
        with transaction.atomic():
            MaintenanceRun.objects.create(job="one")
            writes.set()
            assert go.wait(60)

    def meanwhile(execute: Any, *arguments: Any) -> Any:
        answer = execute(*arguments)
        if not first:
            first.append(crowd[0].start(run_the_first))
            assert writes.wait(60)
        return answer

    try:
        with connection.execute_wrapper(meanwhile):
            found = limits.repeated(
                lambda left: claims.insert_claim(a_call("key"), uuid4(), ON, left, namespace=NAMESPACE), ON, 0.5
            )
    finally:
        go.set()
    first[0].result(60)
    assert found is not None
    assert found.status is Status.IN_PROGRESS


# What failures are called


@pytest.mark.django_db(transaction=True)
def test_every_failure_of_the_database_is_store_unavailable() -> None:
    with pytest.raises(StoreUnavailable) as caught, limits.limited(ON, 5), connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")
    assert isinstance(caught.value.__cause__, DatabaseError)
    assert not limits.may_repeat(caught.value)
    assert not limits.was_lost(caught.value, ON, connection.connection)


@pytest.mark.django_db(transaction=True)
def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(LookupError), limits.limited(ON, 5):
        raise LookupError
    assert not WATCHDOG._guarded


@pytest.mark.django_db(transaction=True)
def test_a_database_that_cannot_be_reached_is_store_unavailable(vendor: str, tmp_path: Any) -> None:
    absent = {"NAME": str(tmp_path / "absent" / "db")} if vendor == "sqlite" else {"HOST": "127.0.0.1", "PORT": "1"}
    wrapper = connection.copy("absent")
    wrapper.settings_dict.update(absent)
    connections["absent"] = wrapper
    tries: list[float] = []
    try:
        with pytest.raises(StoreUnavailable):
            limits.repeated(tries.append, "absent", 2)
    finally:
        del connections["absent"]
    assert tries == []


# What may be tried again


def add_two() -> None:
    MaintenanceRun.objects.bulk_create([MaintenanceRun(job="one"), MaintenanceRun(job="two")])


def touch(job: str) -> None:
    assert MaintenanceRun.objects.filter(job=job).update(error=str(uuid4())) == 1


@pytest.mark.django_db(transaction=True)
def test_a_deadlock_may_be_repeated(crowd: list[Actor], needs_a_server: None) -> None:
    add_two()
    both = [Event(), Event()]

    def crosswise(mine: int) -> BaseException | None:
        names = ["one", "two"]
        try:
            with transaction.atomic():
                touch(names[mine])
                both[mine].set()
                assert both[1 - mine].wait(60)
                touch(names[1 - mine])
        except Error as error:
            return error
        return None

    ends = [each.result(60) for each in [crowd[mine].start(crosswise, mine) for mine in (0, 1)]]
    (victim,) = [error for error in ends if error is not None]
    assert limits.may_repeat(victim)


@pytest.mark.django_db(transaction=True)
def test_a_serialization_failure_may_be_repeated(vendor: str, crowd: list[Actor]) -> None:
    if vendor != "postgresql":
        pytest.skip("only PostgreSQL refuses to update what has changed since the snapshot")
    add_two()

    def touch_what_has_changed() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert MaintenanceRun.objects.count() == 2
        crowd[0].do(touch, "one")
        touch("one")

    with pytest.raises(Error) as caught, transaction.atomic():
        touch_what_has_changed()
    assert limits.may_repeat(caught.value)


@pytest.mark.django_db(transaction=True)
def test_a_lock_that_is_not_given_may_be_repeated(vendor: str, crowd: list[Actor]) -> None:
    add_two()

    def want() -> None:
        with transaction.atomic():
            MaintenanceRun.objects.select_for_update(nowait=vendor != "sqlite").get(job="one")

    patience = 0.05 if vendor == "sqlite" else 5  # only SQLite waits for it
    held = held_open(crowd[0], lambda: touch("one"))
    with held, pytest.raises(StoreUnavailable) as caught, limits.limited(ON, patience):
        want()
    assert limits.may_repeat(caught.value)


@pytest.mark.django_db(transaction=True)
def test_what_the_database_refuses_for_good_is_not_repeated() -> None:
    add_two()
    tries = []

    def add_again(left: float) -> None:
        tries.append(left)
        add_two()

    with pytest.raises(StoreUnavailable) as caught:
        limits.repeated(add_again, ON, 5)
    assert isinstance(caught.value.__cause__, IntegrityError)
    assert len(tries) == 1


AGAIN = {
    "postgresql": "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$",
    "mysql": "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213",
}


@pytest.mark.django_db(transaction=True)
def test_a_claim_is_tried_three_times_within_one_limit(vendor: str, needs_a_server: None) -> None:
    tries: list[float] = []

    def fail(left: float) -> None:
        tries.append(left)
        with connection.cursor() as cursor:
            cursor.execute(AGAIN[vendor])

    with pytest.raises(StoreUnavailable):
        limits.repeated(fail, ON, 5)
    assert len(tries) == limits.TRIES
    assert 5 > tries[0] > tries[1] > tries[2] > 3


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_a_claim_is_not_tried_again_after_its_limit(vendor: str, needs_a_server: None) -> None:
    tries = []

    def fail_late(left: float) -> None:
        tries.append(left)
        wait_until(lambda: not WATCHDOG._guarded)  # the limit is over
        with connection.cursor() as cursor:
            cursor.execute(AGAIN[vendor])

    with pytest.raises(StoreUnavailable):
        limits.repeated(fail_late, ON, LATE)  # a shorter limit would end a busy machine's claim before its first try
    assert len(tries) == 1


# Lost connections


def isolation() -> str:
    """Something that Django sets up on every connection it opens."""
    name = "transaction_isolation" if connection.vendor == "postgresql" else "@@session.tx_isolation"
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW {name}" if connection.vendor == "postgresql" else f"SELECT {name}")
        return str(cursor.fetchone()[0])


@pytest.mark.direct
@pytest.mark.django_db(transaction=True)
def test_a_claim_survives_a_killed_connection(crowd: list[Actor], needs_a_server: None) -> None:
    before, expected = backend(), isolation()
    crowd[0].do(kill, before)
    assert limits.repeated(claimed, ON, 10) is True
    assert backend() != before
    assert isolation() == expected, "the new connection was opened by Django, not by the driver behind its back"
    assert IdempotencyKey.objects.get().attempts == 1


@pytest.mark.direct
@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_known_to_be_lost_is_opened_again(crowd: list[Actor], needs_a_server: None) -> None:
    expected = isolation()
    crowd[0].do(kill, backend())
    with pytest.raises(Error), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    with limits.limited(ON, 5):
        assert claimed(1)
    assert isolation() == expected


@pytest.mark.direct
@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_lost_inside_a_transaction_stays_lost(crowd: list[Actor], needs_a_server: None) -> None:
    """On another connection the transaction's earlier writes would be missing."""

    def lose_it_halfway() -> None:
        add_two()
        crowd[0].do(kill, backend())
        with pytest.raises(Error), connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        limits.drop_broken(ON)
        with limits.limited(ON, 5):
            touch("one")

    with pytest.raises(StoreUnavailable) as caught, transaction.atomic():
        lose_it_halfway()
    assert "inside the transaction" in str(caught.value.__cause__)
    connection.close()
    assert not MaintenanceRun.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_usable_connection_is_kept() -> None:
    connection.ensure_connection()
    raw = connection.connection
    limits.drop_broken(ON)
    assert connection.connection is raw
    connection.close()
    limits.drop_broken(ON)
    assert connection.connection is None


# Whose transaction it is


@pytest.mark.django_db(transaction=True)
def test_an_open_transaction_is_refused() -> None:
    assert limits.inside_test_case(ON) is False
    with transaction.atomic(), pytest.raises(InsideTransaction):
        limits.inside_test_case(ON)


@pytest.mark.django_db(transaction=True)
def test_a_connection_without_autocommit_is_a_transaction() -> None:
    with without_autocommit():
        with pytest.raises(InsideTransaction):
            limits.inside_test_case(ON)
        with transaction.atomic(), pytest.raises(InsideTransaction):
            limits.inside_test_case(ON)
    assert limits.inside_test_case(ON) is False


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("autocommit", [True, False])
def test_whether_it_would_be_one_is_known_without_opening_a_connection(autocommit: bool) -> None:
    with another_alias("unopened", AUTOCOMMIT=autocommit) as alias:
        assert limits.in_transaction(alias) is not autocommit
        assert connections[alias].connection is None


@pytest.mark.django_db
def test_the_transaction_of_a_test_case_is_not_the_callers() -> None:
    assert limits.inside_test_case(ON) is True
    with transaction.atomic(), pytest.raises(InsideTransaction):
        limits.inside_test_case(ON)


# What a claim reads


@pytest.mark.django_db
def test_a_record_under_an_id_made_by_another_rule_is_found_by_its_key() -> None:
    strange = uuid4()
    put(Status.IN_PROGRESS)
    IdempotencyKey.objects.update(id=strange)
    found = claims.insert_claim(a_call(), uuid4(), ON, namespace=NAMESPACE)
    assert found is not None
    assert found.id == strange
