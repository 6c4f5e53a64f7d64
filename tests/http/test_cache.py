"""The cache in front of completed responses: what it may replay, and all that it never does."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django.db import connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Status, json_reply, signals
from django_idempotency.core.decisions import Record
from django_idempotency.core.entries import LONGEST_LIFE
from django_idempotency.core.transitions import TRANSITIONS, Edge, Event, Guard
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import InsideTransaction
from django_idempotency.flow import resolve
from django_idempotency.flow.cache import CachedReplay, _name
from django_idempotency.flow.settle import Outcome
from django_idempotency.models import IdempotencyKey, MaintenanceRun
from django_idempotency.reconciliation import Landed
from django_idempotency.rest_framework import IdempotentMixin
from django_idempotency.store import installation
from django_idempotency.store.records import find
from django_idempotency.testing import retention_over
from tests.kit.caches import ALIAS, CHAOS, QUICK, Chaos, Redis, Trouble, entries, has_redis, in_trouble, running_redis
from tests.kit.calls import a_call, heard
from tests.kit.counting import counted
from tests.kit.databases import another_alias, nobody_answers
from tests.kit.http import KEY, Person, Ran, atomic_requests, same_answer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True), pytest.mark.vendor]

ALLOWED = [True]
SEEN: list[Record] = []


def work(request: HttpRequest) -> HttpResponse:
    User.objects.create(username=f"written {Ran.again()}")
    return JsonResponse({"run": Ran.count}, status=201, headers={"Location": f"/it/{Ran.count}"})


async def awork(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


class RestWork(IdempotentMixin, APIView):
    permission_classes = ()
    idempotency = {"share_anonymous": True, "cache": True}

    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()}, status=201)


def look(request: HttpRequest, record: Record) -> bool:
    SEEN.append(record)
    return ALLOWED[0]


def expire_meanwhile(request: HttpRequest, record: Record) -> bool:
    """An operator expires the response while it is being replayed."""
    return resolve.expire(record.id, by="ops", reason="wrong") is Outcome.EXPIRED


def fail(request: HttpRequest) -> HttpResponse:
    Ran.again()
    raise RuntimeError("planned")


anybody: dict[str, Any] = {"share_anonymous": True, "cache": True}
urlpatterns = [
    path("leased", idempotent(**anybody)(work), name="leased"),
    path("atomic", idempotent(mode="atomic", **anybody)(work), name="atomic"),
    path("async", idempotent(**anybody)(awork), name="async"),
    path("rest", RestWork.as_view(), name="rest"),
    path("own", idempotent(cache=True)(work), name="own"),
    path("looked-at", idempotent(authorize=look, **anybody)(work), name="looked-at"),
    path("expired-meanwhile", idempotent(authorize=expire_meanwhile, **anybody)(work), name="expired-meanwhile"),
    path("not-cached", idempotent(share_anonymous=True)(work), name="not-cached"),
    path("failing", idempotent(**anybody)(fail), name="failing"),
    path("minute", idempotent(retention=timedelta(minutes=1), **anybody)(work), name="minute"),
    path("seconds", idempotent(retention=timedelta(seconds=5), **anybody)(work), name="seconds"),
    path("for-ever", idempotent(retention=None, **anybody)(work), name="for-ever"),
]


def use(settings: Any, backend: str, **configuration: Any) -> None:
    settings.CACHES = {"default": settings.CACHES["default"], ALIAS: {"BACKEND": backend, **configuration}}
    settings.IDEMPOTENCY = {"CACHE_ALIAS": ALIAS}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    if not has_redis():
        pytest.skip("there is no redis-server on this machine")
    with running_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def redis(server: Redis, settings: Any) -> Iterator[Redis]:
    server.command("FLUSHALL")
    use(settings, "django.core.cache.backends.redis.RedisCache", LOCATION=server.url, OPTIONS=QUICK)
    yield server
    caches[ALIAS]._cache._pools[0].disconnect()  # type: ignore[attr-defined]


@pytest.fixture
def memory(settings: Any) -> Iterator[None]:
    use(settings, CHAOS, LOCATION=uuid4().hex)
    yield
    caches[ALIAS].clear()


@pytest.fixture(params=["memory", "file", pytest.param("redis", marks=pytest.mark.processes)])
def cache(request: pytest.FixtureRequest, settings: Any, tmp_path: Path) -> None:
    if request.param == "file":
        use(settings, "django.core.cache.backends.filebased.FileBasedCache", LOCATION=str(tmp_path))
    else:
        request.getfixturevalue(request.param)


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    ALLOWED[:], SEEN[:] = [True], []


@pytest.fixture
def person() -> Person:
    return Person()


# What it replays


@pytest.mark.parametrize("route", ["leased", "atomic", "async", "rest"])
@pytest.mark.usefixtures("cache")
def test_a_replay_comes_from_the_cache_to_the_byte_and_asks_no_database(person: Person, route: str) -> None:
    first = person.post(f"/{route}")
    with heard(signals.cache_hit) as hits, heard(signals.replayed) as replays:
        from_table = person.post(f"/{route}")
        assert (len(hits), len(replays)) == (0, 1)
        statements = counted(lambda: same_answer(first, person.post(f"/{route}")))
        assert (len(hits), len(replays)) == (1, 2)
        from_cache = person.post(f"/{route}")
    assert statements.numbers() == (0, 0, 0, 0), str(statements)
    assert same_answer(first, from_table)
    assert same_answer(first, from_cache)
    assert from_table.headers == from_cache.headers
    assert Ran.count == 1


@pytest.mark.parametrize("route", ["leased", "atomic", "rest"])
@pytest.mark.usefixtures("memory")
def test_a_replay_comes_from_the_cache_with_atomic_requests_too(person: Person, route: str) -> None:
    with atomic_requests(), heard(signals.cache_hit) as hits:
        first, *others = [person.post(f"/{route}") for _ in range(3)]
    assert all(same_answer(first, other) for other in others)
    assert len(hits) == 1


@pytest.mark.usefixtures("memory")
def test_a_new_key_sends_what_it_sends_without_a_cache(person: Person, settings: Any) -> None:
    with_cache = counted(lambda: person.post("/leased", key=str(uuid4())))
    settings.IDEMPOTENCY = {}
    assert counted(lambda: person.post("/leased", key=str(uuid4()))).numbers() == with_cache.numbers()


@pytest.mark.usefixtures("memory")
def test_a_new_key_puts_nothing_into_the_cache(person: Person) -> None:
    person.post("/leased")
    assert entries() == {}
    person.post("/leased")
    assert len(entries()) == 1


def test_nothing_is_cached_by_default(person: Person, settings: Any) -> None:
    use(settings, CHAOS)
    settings.IDEMPOTENCY = {}
    before = Chaos.asked
    for _ in range(3):
        person.post("/leased")
    assert Chaos.asked == before


@pytest.mark.usefixtures("memory")
def test_an_endpoint_may_stay_out_of_the_cache(person: Person) -> None:
    before = Chaos.asked
    first, *others = [person.post("/not-cached") for _ in range(3)]
    assert all(same_answer(first, other) for other in others)
    assert Chaos.asked == before


@pytest.mark.usefixtures("memory")
def test_a_replay_needs_no_database(person: Person, vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("a file that is not there is another database, with entries of its own")
    first, _ = [person.post("/leased") for _ in range(2)]
    with nobody_answers():
        assert same_answer(first, person.post("/leased"))
        assert person.post("/leased", key=str(uuid4())).status_code == 503


# Who gets it


@pytest.mark.usefixtures("cache")
def test_another_user_has_another_entry(alice: Person) -> None:
    bob = Person("bob")
    for _ in range(3):
        alice.post("/own")
    other = bob.post("/own")
    assert (other.status_code, other.json(), "Idempotency-Replayed" in other) == (201, {"run": 2}, False)


@pytest.mark.usefixtures("memory")
def test_a_user_who_has_logged_out_gets_nothing(alice: Person) -> None:
    for _ in range(3):
        alice.post("/own")
    alice.client.logout()
    assert alice.post("/own").status_code == 403


@pytest.mark.usefixtures("cache")
def test_authorize_is_asked_about_the_same_record(person: Person) -> None:
    for _ in range(3):
        person.post("/looked-at")
    from_table, from_cache = SEEN
    times = ("grace_left", "expires_in", "ran_ago", "age")
    assert replace(from_cache, **{name: getattr(from_table, name) for name in times}) == from_table
    for name in times:
        assert getattr(from_cache, name) == pytest.approx(getattr(from_table, name), abs=5)
    ALLOWED[0] = False
    with heard(signals.cache_hit) as hits:
        assert person.post("/looked-at").status_code == 403
    assert len(hits) == 1


@pytest.mark.usefixtures("cache")
def test_another_request_with_the_key_is_refused_by_the_table(person: Person) -> None:
    for _ in range(3):
        person.post("/leased")
    with heard(signals.misused) as misused:
        assert person.post("/leased", {"other": 1}).status_code == 422
    assert len(misused) == 1


# What changes


@pytest.mark.parametrize("route", ["leased", "atomic"])
@pytest.mark.usefixtures("cache")
def test_what_an_operator_expires_is_not_replayed(person: Person, route: str) -> None:
    for _ in range(3):
        person.post(f"/{route}")
    assert resolve.expire(IdempotencyKey.objects.get().id, by="ops", reason="wrong") is Outcome.EXPIRED
    answers = [person.post(f"/{route}") for _ in range(3)]
    assert [answer.json() for answer in answers] == [{"run": 2}] * 3
    assert Ran.count == 2


def test_nothing_else_ends_a_completed_record_before_its_time() -> None:
    """So the cache has to hear of nothing else: an entry ends before its record expires."""
    endings = [each for each in TRANSITIONS if Status.COMPLETED in each.sources and each.target is not Edge.SAME]
    assert len(endings) > 1
    assert [each.event for each in endings if Guard.RETENTION_OVER not in each.guards] == [Event.EXPIRE_NOW]


@pytest.mark.usefixtures("cache")
def test_a_request_that_had_read_it_before_does_not_bring_it_back(person: Person) -> None:
    person.post("/expired-meanwhile")
    assert person.post("/expired-meanwhile").json() == {"run": 1}  # the operator was slower than the table
    with heard(signals.cache_hit) as hits:
        assert person.post("/expired-meanwhile").json() == {"run": 2}
    assert hits == []


@pytest.mark.usefixtures("memory")
def test_the_entry_is_gone_before_the_operators_change_is_committed(person: Person) -> None:
    """The process may die right after its COMMIT."""
    for _ in range(3):
        person.post("/leased")
    with transaction.atomic():
        resolve.expire(IdempotencyKey.objects.get().id, by="ops", reason="wrong")
        assert [*entries().values()] == [b""]
        transaction.set_rollback(True)
    assert person.post("/leased").json() == {"run": 1}  # from the table, where nothing was changed


@pytest.mark.usefixtures("cache")
def test_an_expired_key_runs_as_new_and_replays_the_new_response(person: Person) -> None:
    for _ in range(3):
        person.post("/leased")
    retention_over(IdempotencyKey.objects.get())
    assert [person.post("/leased").json() for _ in range(3)] == [{"run": 2}] * 3


@pytest.mark.usefixtures("cache")
def test_an_unknown_outcome_is_not_cached_and_its_resolution_is_replayed(person: Person) -> None:
    assert person.post("/failing").status_code == 500
    assert [person.post("/failing").status_code for _ in range(2)] == [409, 409]
    record = IdempotencyKey.objects.get()
    with heard(signals.cache_hit) as hits:
        resolve.resolve(record.id, Landed(json_reply(201, {"id": 7})), by="provider")
        answers = [person.post("/failing") for _ in range(3)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(201, {"id": 7})] * 3
    assert (len(hits), Ran.count) == (2, 1)


@pytest.mark.usefixtures("memory")
def test_a_failed_record_is_not_cached(person: Person) -> None:
    person.post("/leased")
    IdempotencyKey.objects.update(status="failed")
    assert [person.post("/leased").status_code for _ in range(2)] == [201, 201]
    assert entries() == {}


# How long it lives


@pytest.mark.parametrize(("route", "longest"), [("minute", 55), ("leased", 300), ("for-ever", 300)])
@pytest.mark.processes
def test_an_entry_ends_before_its_record_expires_and_soon(
    person: Person, redis: Redis, route: str, longest: int
) -> None:
    for _ in range(2):
        person.post(f"/{route}")
    (name,) = redis.command("KEYS", "*")
    assert longest - 30 < redis.command("TTL", name.decode()) <= longest


@pytest.mark.usefixtures("memory")
def test_a_response_that_expires_within_seconds_is_not_cached(person: Person) -> None:
    first, second = (person.post("/seconds") for _ in range(2))
    assert same_answer(first, second)
    assert entries() == {}


@pytest.mark.usefixtures("memory")
def test_a_record_that_is_read_too_late_is_not_added(person: Person) -> None:
    """A mark outlives every entry that somebody could make who read the record before it."""
    person.post("/leased")
    row = IdempotencyKey.objects.get()
    record = find(row.ref)
    assert record is not None
    call = replace(a_call(row.key), scope=row.scope)
    place = CachedReplay(call, "default")
    assert place.read() is None
    assert place.missed_at is not None
    place.missed_at -= LONGEST_LIFE
    place.fill(record)
    assert entries() == {}


# What others put there


@pytest.fixture
def rejected(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], int]]:
    """How many entries were reported, in the log and by the signal."""
    with heard(signals.cache_rejected) as rejections, caplog.at_level(logging.WARNING, "django_idempotency.security"):

        def count() -> int:
            logged = [each for each in caplog.records if "was ignored" in each.getMessage()]
            assert len(logged) == len(rejections)
            return len(rejections)

        yield count


@pytest.mark.usefixtures("memory")
def test_the_entry_of_another_key_is_rejected(person: Person, rejected: Callable[[], int]) -> None:
    keys = [str(uuid4()) for _ in range(2)]
    for key in keys * 2:
        person.post("/leased", key=key)
    one, other = entries()
    caches[ALIAS].set(one, entries()[other])
    assert {person.post("/leased", key=key).json()["run"] for key in keys} == {1, 2}
    assert [person.post("/leased", key=key).json()["run"] for key in keys] == [1, 2]
    assert rejected() == 2


@pytest.mark.usefixtures("memory")
def test_what_is_not_an_entry_is_rejected(person: Person, rejected: Callable[[], int]) -> None:
    for _ in range(2):
        first = person.post("/leased")
    ((name, entry),) = entries().items()
    forged = entry.replace(b'{"run": 1}', b'{"run": 9}')
    assert forged != entry
    wrong = [forged, entry[:31], entry[:32], entry[:-1], entry + b" ", b"x", "text", 5, ["x"], {"run": 9}, True]
    for value in wrong:
        caches[ALIAS].set(name, value)
        assert person.post("/leased").json() == first.json() == {"run": 1}
    assert rejected() == len(wrong)
    assert Ran.count == 1


@pytest.mark.usefixtures("memory")
def test_an_entry_of_another_environment_is_not_found_and_would_be_rejected(
    person: Person, settings: Any, rejected: Callable[[], int]
) -> None:
    """The other environment has the same database and the same cache, and another SECRET_KEY."""
    for _ in range(2):
        person.post("/leased")
    (elsewhere,) = entries()
    settings.SECRET_KEY = "another secret key, of another environment"
    with heard(signals.cache_missed) as misses:
        person.post("/leased")
    assert (len(misses), rejected()) == (1, 0)
    (here,) = entries().keys() - {elsewhere}
    caches[ALIAS].set(here, entries()[elsewhere])
    person.post("/leased")
    assert rejected() == 1
    assert Ran.count == 1


@pytest.mark.usefixtures("memory")
def test_installations_databases_and_tenants_that_share_a_cache_share_no_entry(settings: Any) -> None:
    def name() -> str:
        return _name(a_call("k").ref("other"))

    names = [_name(a_call("k").ref("default"))]
    with another_alias("other"):
        names.append(name())
        settings.IDEMPOTENCY = {"CACHE_ALIAS": ALIAS, "NAMESPACE": lambda: "of a tenant"}
        assert name() == names[-1]  # a function may tell something else in another process
        settings.IDEMPOTENCY = {"CACHE_ALIAS": ALIAS, "NAMESPACE": "staging"}
        names.append(name())
        connections["other"].schema_name = "acme"  # type: ignore[attr-defined] # as django-tenants sets it
        names.append(name())
    installation._known["other", "elsewhere", ""] = "of another database"
    with another_alias("other", NAME="elsewhere"):
        names.append(name())
    assert len({*names}) == 5


def move_to_another_deployment() -> None:
    """Be a process of a deployment that has the same secret and cache, and a database of the same name."""
    IdempotencyKey.objects.all().delete()
    MaintenanceRun.objects.all().delete()
    installation._known.clear()


@pytest.mark.usefixtures("cache")
def test_another_deployment_with_a_database_of_the_same_name_gets_no_replay(person: Person) -> None:
    assert [person.post("/leased").json()["run"] for _ in range(3)] == [1, 1, 1]
    move_to_another_deployment()
    assert [person.post("/leased").json()["run"] for _ in range(3)] == [2, 2, 2]


# When it fails


@pytest.mark.parametrize("trouble", [Trouble.AWAY, Trouble.FULL, Trouble.DEAF])
@pytest.mark.usefixtures("memory")
def test_a_cache_in_trouble_changes_no_response(person: Person, trouble: Trouble) -> None:
    with in_trouble(trouble), heard(signals.cache_failed) as failures:
        first, *others = [person.post("/leased") for _ in range(3)]
        assert all(same_answer(first, other) for other in others)
    assert len(failures) == {Trouble.AWAY: 3, Trouble.FULL: 2, Trouble.DEAF: 0}[trouble]
    assert Ran.count == 1


@pytest.mark.usefixtures("memory")
def test_an_operator_is_told_that_the_cache_may_replay_it_for_a_while(
    person: Person, caplog: pytest.LogCaptureFixture
) -> None:
    """The entry could not be removed: this is how stale the cache can be."""
    for _ in range(3):
        person.post("/leased")
    with in_trouble(Trouble.FULL):
        assert resolve.expire(IdempotencyKey.objects.get().id, by="ops", reason="wrong") is Outcome.EXPIRED
    assert "may replay" in caplog.text
    assert "300 seconds" in caplog.text
    assert person.post("/leased").json() == {"run": 1}
    caches[ALIAS].clear()
    assert person.post("/leased").json() == {"run": 2}


@pytest.mark.processes
def test_redis_stopped_in_the_middle_paused_and_full(person: Person, redis: Redis) -> None:
    first, _ = [person.post("/leased") for _ in range(2)]
    with heard(signals.cache_hit) as hits, heard(signals.cache_failed) as failures:
        assert same_answer(first, person.post("/leased"))
        redis.stop()
        assert same_answer(first, person.post("/leased"))
        assert (len(hits), len(failures)) == (1, 1)
        redis.start()
        assert [same_answer(first, person.post("/leased")) for _ in range(3)] == [True] * 3
        redis.pause()
        assert same_answer(first, person.post("/leased"))
        redis.go_on()
        assert same_answer(first, person.post("/leased"))
        redis.command("FLUSHALL")
        redis.fill_up()
        assert [same_answer(first, person.post("/leased")) for _ in range(2)] == [True] * 2
        redis.command("CONFIG", "SET", "maxmemory", "0")
    assert len(hits) >= 2
    assert len(failures) >= 4
    assert Ran.count == 1


# Transactions


@pytest.mark.usefixtures("memory")
def test_a_key_inside_an_open_transaction_is_an_error_whatever_the_cache_holds(person: Person) -> None:
    for _ in range(3):
        person.post("/leased")
    person.client.raise_request_exception = True
    with transaction.atomic(), pytest.raises(InsideTransaction):
        person.post("/leased")


@pytest.mark.django_db
@pytest.mark.usefixtures("memory")
def test_what_a_test_case_rolls_back_is_not_cached(person: Person) -> None:
    before = Chaos.asked
    for _ in range(3):
        person.post("/leased", key=KEY)
    assert Chaos.asked == before
