"""The home-made lock of docs/how-to/move-redis-lock.md: what it gets wrong, and how this package takes its place."""

import json
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from django.contrib.auth.models import Permission
from django.core.cache import cache
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import clear_url_caches, path

from django_idempotency import json_reply
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Landed, resolve
from tests.kit.http import Person, Ran, atomic_requests
from tests.repository.test_samples import PAGES, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__), pytest.mark.vendor]

View: TypeAlias = Callable[[HttpRequest], HttpResponse]
Layer: TypeAlias = Callable[[View], View]
Serve: TypeAlias = Callable[[View], None]

PAY, CRASH, WAIT = {"amount": 1}, {"do": "crash"}, {"do": "wait"}
INSIDE: list[int] = []

urlpatterns: list[Any] = []


@pytest.fixture(autouse=True)
def _no_locks() -> None:
    cache.clear()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    def serve(view: View) -> None:
        monkeypatch.setattr(f"{__name__}.urlpatterns", [path("pay", view)])
        clear_url_caches()

    return serve


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The names that the page defines."""
    return run("docs/how-to/move-redis-lock.md", PAGES["docs/how-to/move-redis-lock.md"])


@pytest.fixture(scope="module")
def lock(page: dict[str, Any]) -> Layer:
    layer: Layer = page["once_per_key"]
    return layer


def new(page: dict[str, Any], **policy: Any) -> Layer:
    layer: Layer = idempotent(operation="pay", **page["LIKE_THE_LOCK"], **policy)
    return layer


def view(request: HttpRequest) -> HttpResponse:
    name = Ran.again()
    match json.loads(request.body).get("do"):
        case "crash":
            raise RuntimeError("planned")
        case "wait" if not INSIDE:
            INSIDE.append(0)
            cache.delete("idempotency:wait")  # the lock's time to live is over
            INSIDE[0] = Person("alice").post("/pay", WAIT, key="wait").status_code
    return JsonResponse({"run": name}, status=201)


def twice(key: str, first: Any, second: Any, other: str = "alice") -> tuple[int, int, int]:
    """Send two requests with one key; return their statuses, and how often the view ran."""
    before = Ran.count
    told = [Person("alice").post("/pay", first, key=key), Person(other).post("/pay", second, key=key)]
    return told[0].status_code, told[1].status_code, Ran.count - before


def outlive() -> tuple[int, int, int]:
    """The same of a request that runs longer than its lock lives, and a duplicate that arrives meanwhile."""
    before = Ran.count
    status = Person("alice").post("/pay", WAIT, key="wait").status_code
    return status, INSIDE.pop(), Ran.count - before


@pytest.mark.parametrize("layers", ["lock", "both", "package"])
def test_what_the_lock_gets_wrong(layers: str, lock: Layer, page: dict[str, Any], serve: Serve) -> None:
    leased = new(page, mode="leased", transaction="late")
    serve({"lock": lock(view), "both": lock(leased(view)), "package": leased(view)}[layers])
    told = {
        "a replay": twice("replay", PAY, PAY),
        "another user": twice("user", PAY, PAY, other="bob"),
        "another payload": twice("payload", PAY, {"amount": 2}),
        "an exception": twice("exception", CRASH, CRASH),
        "longer than the lock": outlive(),
    }
    assert (
        told
        == {
            "lock": {
                "a replay": (201, 201, 1),
                "another user": (201, 201, 1),
                "another payload": (201, 201, 1),
                "an exception": (500, 500, 2),
                "longer than the lock": (201, 201, 2),
            },
            "both": {
                "a replay": (201, 201, 1),
                "another user": (201, 201, 1),
                "another payload": (201, 201, 1),
                "an exception": (500, 409, 1),
                "longer than the lock": (201, 409, 1),
            },
            "package": {
                "a replay": (201, 201, 1),
                "another user": (201, 201, 2),
                "another payload": (201, 422, 1),
                "an exception": (500, 409, 1),
                "longer than the lock": (201, 409, 1),
            },
        }[layers]
    )


@pytest.mark.skipif(not connection.features.can_defer_constraint_checks, reason="every INSERT is checked at once")
def test_the_lock_stores_a_response_whose_commit_fails(lock: Layer, page: dict[str, Any], serve: Serve) -> None:
    def fail_at_commit(request: HttpRequest) -> HttpResponse:
        Permission.objects.create(content_type_id=2**30)
        return JsonResponse({"run": Ran.again()}, status=201)

    told = []
    for layer in (lock, new(page, mode="atomic")):
        serve(layer(fail_at_commit))
        with atomic_requests():
            told.append(twice("commit", PAY, PAY))
        cache.clear()
    assert told == [(500, 201, 1), (500, 500, 2)]


def test_the_lock_keeps_no_409_of_the_layer_inside_it(lock: Layer, page: dict[str, Any], serve: Serve) -> None:
    """When the outcome is settled, the client gets it through both."""
    serve(lock(new(page, mode="leased")(view)))
    assert twice("settled", CRASH, CRASH) == (500, 409, 1)
    settled = Landed(json_reply(201, {"settled": True}))
    assert resolve(IdempotencyKey.objects.get(key="settled").pk, settled, by="the provider") == "landed"
    assert Person("alice").post("/pay", CRASH, key="settled").json() == {"settled": True}


@pytest.mark.parametrize("pair", [("old", "both"), ("both", "old"), ("both", "new"), ("new", "both")])
def test_no_key_is_forgotten_during_the_deployment(
    pair: tuple[str, str], lock: Layer, page: dict[str, Any], serve: Serve
) -> None:
    """The page's table: a process with one of these layers claims the key, and one with the other gets the retry."""
    package = new(page, mode="atomic")
    layers = {"old": lock(view), "both": lock(package(view)), "new": package(view)}
    told = []
    for layer in pair:
        serve(layers[layer])
        told.append(Person("alice").post("/pay", PAY).json())
    assert told == [{"run": 1}, {"run": 1}]
