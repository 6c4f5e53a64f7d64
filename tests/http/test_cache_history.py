"""The same history with a cache and without one gives the same responses, whatever happens to the cache."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.cache import caches
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory

from django_idempotency import json_reply, signals
from django_idempotency.core.calls import make_record_id
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.flow import resolve
from django_idempotency.http.requests import scope_of
from django_idempotency.maintenance import reap
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Landed, NotLanded
from django_idempotency.testing import grace_over, retention_over
from tests.kit.caches import ALIAS, CHAOS, QUICK, Memory, Server, has_redis, poison, running_redis
from tests.kit.calls import heard

pytestmark = pytest.mark.django_db(transaction=True)

KEYS, USERS, PAYLOADS = 10, ("alice", "bob"), (1, 2)
MODES = ("leased", "atomic")
WORLDS = ("cached", "uncached")


class World:
    """A service whose views do as they are told, and everything that it ever answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome = ""
        self.runs: Counter[str] = Counter()
        common: dict[str, Any] = {
            "scope": lambda request: request.headers["X-User"],
            "cache": name == "cached",
            "attempts_span": timedelta(0),
            "attempts": 3,
        }
        self.views = {
            mode: idempotent(mode=mode, operation=f"{name}.{mode}", **common)(self.work)
            for mode in ("leased", "atomic")
        }

    def work(self, request: HttpRequest) -> HttpResponse:
        self.runs[request.headers["X-Plain-Key"]] += 1
        match self.outcome:
            case "missing":
                raise Http404
            case "broken":
                raise RuntimeError("planned")
            case "not executed":
                raise NotExecuted("planned")
        return JsonResponse({"run": self.runs.total(), "body": json.loads(request.body)}, status=201)

    def scope(self, user: str, mode: str) -> str:
        return scope_of(user, f"{self.name}.{mode}")

    def record(self, user: str, mode: str, key: str) -> IdempotencyKey | None:
        return IdempotencyKey.objects.filter(id=make_record_id(self.scope(user, mode), key)).first()

    def ask(self, user: str, mode: str, key: str, payload: int, outcome: str) -> tuple[Any, ...]:
        self.outcome = outcome
        headers = {"Idempotency-Key": key, "X-Plain-Key": key, "X-User": user}
        request = RequestFactory().post("/it", json.dumps(payload), "application/json", headers=headers)
        try:
            response = self.views[mode](request)
        except (Http404, RuntimeError) as error:
            return (repr(error),)
        own = str(make_record_id(self.scope(user, mode), key)).encode()
        return response.status_code, dict(response.items()), response.content.replace(own, b"")


class History:
    """Everything that happens, to both worlds alike; and what happens to the cache, which only one of them has."""

    def __init__(self, cache: Memory | Server, settings: Any) -> None:
        self.chance = random.Random(20261119)
        self.cache = cache
        self.settings = settings
        self.worlds = [World(name) for name in WORLDS]
        self.keys = [self.chance.randbytes(11).hex() for _ in range(KEYS)]
        self.answers: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()

    def step(self) -> None:
        chance = self.chance.random()
        if chance < 0.8:
            self.request()
        elif chance < 0.93:
            self.change(self.chance.choice([self.expire, self.time_passes, self.land, self.free]))
        else:
            events = [self.trouble, self.switch_off, self.switch_on, self.flush, self.poison, self.reap]
            event = self.chance.choices(events, [1, 1, 3, 1, 3, 1])[0]
            self.happened[event.__name__] += 1
            event()

    def request(self) -> None:
        if self.chance.random() < 0.02:  # a key that was never seen before takes the place of another
            self.keys[self.chance.randrange(KEYS)] = self.chance.randbytes(11).hex()
        outcome = self.chance.choices(["done", "missing", "broken", "not executed"], [85, 5, 5, 5])[0]
        details = (*self.place(), self.chance.choices(PAYLOADS, [9, 1])[0], outcome)
        with_cache, without = (world.ask(*details) for world in self.worlds)
        assert with_cache == without, (details, self.happened)
        assert self.worlds[0].runs == self.worlds[1].runs
        self.answers[str(with_cache[0])] += 1

    def place(self) -> tuple[str, str, str]:
        number = self.chance.randrange(KEYS)
        return USERS[number % 2], MODES[number // 2 % 2], self.keys[number]

    def change(self, change: Callable[[IdempotencyKey], object]) -> None:
        """Something changes a record. What the cache does not hear of, it is flushed for, as the documentation says."""
        self.happened[change.__name__] += 1
        place = self.place()
        for world in self.worlds:
            row = world.record(*place)
            if row is not None:
                change(row)
        if not self.cache.is_well() or not self.settings.IDEMPOTENCY:
            self.flush()

    def expire(self, row: IdempotencyKey) -> None:
        resolve.expire(row.id, by="ops", reason="a test")

    def time_passes(self, row: IdempotencyKey) -> None:
        retention_over(row)

    def land(self, row: IdempotencyKey) -> None:
        resolve.resolve(row.id, Landed(json_reply(201, {"landed": True})), by="provider")

    def free(self, row: IdempotencyKey) -> None:
        if row.status == "unknown":
            grace_over(row)
            resolve.resolve(row.id, NotLanded(), by="ops", reason="a test", operator=True)

    def trouble(self) -> None:
        self.cache.disturb(self.chance)

    def switch_off(self) -> None:
        self.settings.IDEMPOTENCY = {}

    def switch_on(self) -> None:
        self.cache.recover()
        self.settings.IDEMPOTENCY = {"CACHE_ALIAS": ALIAS}

    def flush(self) -> None:
        self.cache.flush()

    def poison(self) -> None:
        if self.cache.is_well():
            poison(self.cache.names(), self.chance)

    def reap(self) -> None:
        reap()

    def play(self, steps: int) -> list[int]:
        """Return how many requests the cache answered, knew nothing for, had a wrong entry for, and failed at."""
        kinds = (signals.cache_hit, signals.cache_missed, signals.cache_rejected, signals.cache_failed)
        with ExitStack() as stack:
            heard_of = [stack.enter_context(heard(signal)) for signal in kinds]
            for _ in range(steps):
                self.step()
        return [len(each) for each in heard_of]


def use(settings: Any, backend: str, **configuration: Any) -> None:
    settings.CACHES = {"default": settings.CACHES["default"], ALIAS: {"BACKEND": backend, **configuration}}
    settings.IDEMPOTENCY = {"CACHE_ALIAS": ALIAS}


@pytest.mark.parametrize(
    ("steps", "often", "now_and_then"),
    [(1_500, 50, 0), pytest.param(10_000, 400, 20, marks=[pytest.mark.soak, pytest.mark.vendor])],
)
def test_a_history_with_a_cache_and_without_one(settings: Any, steps: int, often: int, now_and_then: int) -> None:
    options = {"MAX_ENTRIES": 6, "CULL_FREQUENCY": 3}  # it is full most of the time
    use(settings, CHAOS, LOCATION=uuid4().hex, OPTIONS=options)
    history = History(Memory(), settings)
    try:
        hits, misses, rejections, failures = history.play(steps)
    finally:
        history.cache.recover()
        history.cache.flush()
    assert min(hits, misses, failures) > often, (hits, misses, failures)
    assert rejections > often / 10
    assert min(history.answers[status] for status in ("201", "404", "409", "422", "503")) > now_and_then, (
        history.answers
    )
    assert min(history.happened.values()) > now_and_then, history.happened


@pytest.mark.processes
@pytest.mark.vendor
@pytest.mark.soak
def test_1_000_steps_with_redis_and_without_it(settings: Any, tmp_path: Path) -> None:
    if not has_redis():
        pytest.skip("there is no redis-server on this machine")
    with running_redis(tmp_path) as redis:
        use(settings, "django.core.cache.backends.redis.RedisCache", LOCATION=redis.url, OPTIONS=QUICK)
        history = History(Server(redis), settings)
        hits, misses, rejections, failures = history.play(1_000)
        caches[ALIAS]._cache._pools[0].disconnect()  # type: ignore[attr-defined]
    assert min(hits, misses, failures) > 50, (hits, misses, failures)
    assert rejections > 0
    assert min(history.happened.values()) > 0, history.happened
