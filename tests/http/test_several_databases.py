"""R15: records in another database than the default, and ATOMIC_REQUESTS on several."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from tests.checks.views import PlainMethod
from tests.kit.databases import another_alias
from tests.kit.http import Person, Ran, atomic_requests, same_answer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True), pytest.mark.vendor]


@idempotent(required=False)
def where(request: HttpRequest) -> HttpResponse:
    """Which aliases have a transaction open."""
    return JsonResponse({alias: connections[alias].in_atomic_block for alias in ("default", "records")})


@idempotent(required=False, transaction="late")
def late(request: HttpRequest) -> HttpResponse:
    return request.idempotency.finish(lambda: where.__wrapped__(request))  # type: ignore[attr-defined, no-any-return]


@idempotent(store=lambda status: status < 400)
def declining(request: HttpRequest) -> HttpResponse:
    Ran.again()
    User.objects.create(username=f"written {Ran.count}")
    return JsonResponse({}, status=402)


def swallowing(request: HttpRequest) -> HttpResponse:
    User.objects.create(username="written")
    try:
        User.objects.create(username="written")
    except IntegrityError:
        return JsonResponse({}, status=int(request.GET["status"]))
    raise AssertionError


@idempotent
def failing(request: HttpRequest) -> HttpResponse:
    Ran.again()
    User.objects.create(username="written")
    raise RuntimeError("planned")


urlpatterns = [
    path("where", where, name="where"),
    path("where/opted-out", transaction.non_atomic_requests(idempotent(where.__wrapped__)), name="opted-out"),  # type: ignore[attr-defined]
    path("late", late, name="late"),
    path("declining", declining, name="declining"),
    path("declining/atomic", idempotent(mode="atomic", store=lambda status: status < 400)(declining.__wrapped__)),  # type: ignore[attr-defined]
    path("swallowing", idempotent(swallowing), name="swallowing"),
    path("swallowing/atomic", idempotent(mode="atomic")(swallowing), name="swallowing-atomic"),
    path("failing", failing, name="failing"),
    path("method", transaction.non_atomic_requests(PlainMethod.as_view()), name="method"),
]


class Router:
    """The records live under another alias, and replicas are never to be asked for them."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "records" if model._meta.app_label == "django_idempotency" else None

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        assert model._meta.app_label != "django_idempotency"
        return None


@pytest.fixture
def records(settings: Any) -> Iterator[None]:
    """The same database under a second name, which Django's own settings do not know."""
    settings.DATABASE_ROUTERS = [Router()]
    with another_alias("records"):
        yield


@pytest.fixture
def two_writers(vendor: str) -> None:
    if vendor == "sqlite":
        pytest.skip("one file has one writer, so two aliases cannot have transactions at once")


def test_the_records_go_where_the_router_writes_them(alice: Person, records: None) -> None:
    first, second = (alice.post("/where") for _ in range(2))
    assert first.json() == {"default": False, "records": True}
    assert same_answer(first, second)


@pytest.mark.parametrize("key", [None, "a-key-of-this-test"])
def test_a_late_view_writes_where_the_records_are_also_without_a_key(
    alice: Person, records: None, key: str | None
) -> None:
    assert alice.post("/late", key=key).json() == {"default": False, "records": True}


@pytest.mark.usefixtures("two_writers", "records")
def test_atomic_requests_of_the_other_database_stay_in_force(alice: Person) -> None:
    with atomic_requests():
        assert alice.post("/where").json() == {"default": True, "records": True}
        assert alice.post("/where", key=None).json() == {"default": True, "records": False}
        assert alice.post("/where/opted-out").json() == {"default": False, "records": True}


@pytest.mark.usefixtures("two_writers", "records")
def test_what_was_written_to_the_other_database_rolls_back_too(alice: Person) -> None:
    with atomic_requests():
        assert [alice.post("/failing").status_code for _ in range(2)] == [500, 409]
    assert Ran.count == 1
    assert not User.objects.filter(username="written").exists()


def test_a_method_whose_url_opts_out_by_hand_is_protected(alice: Person) -> None:
    with atomic_requests():
        first, second = (alice.post("/method") for _ in range(2))
    assert first.status_code == 200
    assert same_answer(first, second)
    assert not connection.in_atomic_block


def users() -> int:
    return User.objects.filter(username__startswith="written").count()


@pytest.mark.usefixtures("two_writers", "records")
@pytest.mark.parametrize("route", ["/declining", "/declining/atomic"])
def test_a_refusal_that_is_not_kept_takes_back_what_it_wrote_elsewhere(alice: Person, route: str) -> None:
    with atomic_requests():
        assert [alice.post(route).status_code for _ in range(2)] == [402, 402]
    assert (Ran.count, users()) == (2, 0)


@pytest.mark.usefixtures("two_writers", "records")
@pytest.mark.parametrize("route", ["/swallowing", "/swallowing/atomic"])
def test_a_view_cannot_succeed_when_the_other_database_rolls_back(alice: Person, route: str) -> None:
    with atomic_requests():
        assert alice.post(f"{route}?status=201").status_code == 500
        assert not IdempotencyKey.objects.using("records").filter(status="completed").exists()
        first, second = (alice.post(f"{route}?status=409", key="another-key-of-the-same-length") for _ in range(2))
    assert same_answer(first, second)
    assert (first.status_code, users()) == (409, 0)


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_second_database_that_is_down_leaves_no_doubt(alice: Person, settings: Any, mode: str) -> None:
    """The view never began."""
    view = idempotent(mode=mode, operation="tests.down")(lambda request: JsonResponse({"run": Ran.again()}))
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view)]})
    with another_alias("gone"):
        connections["gone"].ensure_connection()
        connections["gone"].connection.close()
        connections.settings["gone"] = {"ATOMIC_REQUESTS": True}  # where Django looks for them
        try:
            first = alice.post("/it")
        finally:
            del connections.settings["gone"]
            connections["gone"].connection = None  # not every driver closes twice
        assert first.status_code == 503
    assert set(IdempotencyKey.objects.values_list("status", flat=True)) <= {"failed_retryable"}
    assert (alice.post("/it").status_code, Ran.count) == (200, 1)
