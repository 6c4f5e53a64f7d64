"""An async view may have an async `scope` and an async `authorize`: they are awaited, and decide as sync ones do."""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from django_idempotency import Reply, json_reply
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import operation, perform
from tests.http.disconnecting import posted
from tests.kit.http import Person, Ran

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]


class Permission:
    """What `authorize` says."""

    granted: Any = True
    asked = 0


@pytest.fixture(autouse=True)
def _granted() -> Iterator[None]:
    """A request's thread closes its connection when it ends."""
    Permission.granted, Permission.asked = True, 0
    age, connection.settings_dict["CONN_MAX_AGE"] = connection.settings_dict["CONN_MAX_AGE"], 0
    yield
    connection.settings_dict["CONN_MAX_AGE"] = age


async def by_name(request: HttpRequest) -> str:
    """Waits for the loop, and asks the database."""
    await asyncio.sleep(0)
    user = await request.auser()
    if not user.is_authenticated:
        return ""
    found = await User.objects.aget(username=user.get_username())
    return f"name:{found.get_username()}"


async def numbered(request: HttpRequest) -> int:
    return 7


async def failing(request: HttpRequest) -> str:
    raise ValueError("planned")


async def permitted(request: HttpRequest, record: Any) -> Any:
    Permission.asked += 1
    assert (await request.auser()).is_authenticated
    return Permission.granted


class Permitted:
    async def __call__(self, answer: Any, request: HttpRequest, record: Any) -> Any:
        return await permitted(request, record)


@operation("async.callables")
def work(step: Any) -> Reply:
    return json_reply(200, {"run": Ran.again()})


async def counted(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


@idempotent(operation="async.callables", authorize=permitted)
async def deferring(request: HttpRequest) -> HttpResponse:
    return await request.idempotency.adefer(work)  # type: ignore[attr-defined, no-any-return]


@method_decorator(idempotent(scope=by_name, authorize=partial(Permitted(), None)), name="dispatch")
class Class(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return await counted(request)


class Method(View):
    @idempotent(scope=by_name, authorize=permitted)
    async def post(self, request: HttpRequest) -> HttpResponse:
        return await counted(request)


VIEWS: dict[str, Any] = {
    "function": idempotent(scope=by_name, authorize=permitted)(counted),
    "class": Class.as_view(),
    "method": Method.as_view(),
    "numbered": idempotent(scope=numbered)(counted),
    "failing": idempotent(scope=failing)(counted),
    "deferring": deferring,
}
urlpatterns: list[Any] = [path(name, csrf_exempt(view), name=name) for name, view in VIEWS.items()]
urlpatterns.append(path("idempotency/", include("django_idempotency.urls")))


def status_of(person: Person, url: str, asynchronous: bool) -> Any:
    return posted(url, person).status if asynchronous else person.post(url).status_code


both = pytest.mark.parametrize("asynchronous", [True, False], ids=["asgi", "wsgi"])
views = pytest.mark.parametrize("url", ["/function", "/class", "/method"])


@both
@views
def test_an_async_scope_tells_callers_apart(alice: Person, url: str, asynchronous: bool) -> None:
    people = [alice, Person("bob"), alice]
    assert [status_of(person, url, asynchronous) for person in people] == [201, 201, 201]
    assert set(IdempotencyKey.objects.values_list("principal", flat=True)) == {"name:alice", "name:bob"}
    assert (Ran.count, Permission.asked) == (2, 1)


@both
def test_an_async_scope_without_a_principal_refuses_the_request(asynchronous: bool) -> None:
    assert [status_of(Person(), "/function", asynchronous) for _ in range(2)] == [403, 403]
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


@both
@pytest.mark.parametrize(("url", "status"), [("/numbered", 403), ("/failing", 500)])
def test_an_async_scope_that_fails_claims_nothing(alice: Person, url: str, status: int, asynchronous: bool) -> None:
    assert status_of(alice, url, asynchronous) == status
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


@both
@views
@pytest.mark.parametrize("answer", [False, None, 1, "yes"])
def test_only_true_lets_a_replay_through(alice: Person, url: str, answer: Any, asynchronous: bool) -> None:
    Permission.granted = answer
    assert [status_of(alice, url, asynchronous) for _ in range(2)] == [201, 403]
    assert Ran.count == 1


@pytest.mark.usefixtures("registrations")
@pytest.mark.parametrize(("granted", "status"), [(True, 200), (False, 403)])
def test_the_status_view_awaits_it_too(alice: Person, granted: bool, status: int) -> None:
    accepted = alice.post("/deferring")
    assert accepted.status_code == 202
    perform(str(IdempotencyKey.objects.get().pk))
    Permission.granted = granted
    assert alice.client.get(accepted["Location"]).status_code == status
    assert Permission.asked
