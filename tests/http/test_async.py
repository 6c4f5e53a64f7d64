"""Async views through Django's ASGI handler: repeats, and clients that go away at each point."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from django_idempotency import signals
from django_idempotency.decorators import exempt, idempotent
from django_idempotency.exceptions import Misplaced, NotExecuted
from django_idempotency.http.context import run_to_end
from django_idempotency.models import IdempotencyKey
from tests.http.disconnecting import PATIENCE, Moment, abandoned, posted
from tests.kit.databases import sessions
from tests.kit.http import KEY, Person, Ran
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True), pytest.mark.vendor]


class Held:
    """Where the next request stops."""

    in_view: Moment | None = None
    in_commit: Moment | None = None


def write() -> HttpResponse:
    User.objects.create(username=f"written {Ran.again()}")
    if Held.in_commit is not None:
        Held.in_commit.hold()
    return JsonResponse({"run": Ran.count}, status=201)


async def stop() -> None:
    if Held.in_view is not None:
        Held.in_view.reached.set()
        await asyncio.Event().wait()


@idempotent
async def function(request: HttpRequest) -> HttpResponse:
    await stop()
    return await request.idempotency.afinish(write)  # type: ignore[attr-defined, no-any-return]


@idempotent
async def plain(request: HttpRequest) -> HttpResponse:
    """Returns its answer; its writes are its own affair."""
    await stop()
    return await sync_to_async(write)()


@method_decorator(idempotent(operation="async class"), name="dispatch")
class Class(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        await stop()
        return await request.idempotency.afinish(write)  # type: ignore[attr-defined, no-any-return]


class Method(View):
    @idempotent
    async def post(self, request: HttpRequest) -> HttpResponse:
        await stop()
        return await request.idempotency.afinish(write)  # type: ignore[attr-defined, no-any-return]


@idempotent
async def failing(request: HttpRequest) -> HttpResponse:
    Ran.again()
    kinds = {"missing": Http404, "nothing": NotExecuted, "crash": RuntimeError}
    raise kinds[(await sync_to_async(lambda: request.body)()).decode().strip('"')]("planned")


@idempotent
async def stubborn(request: HttpRequest) -> HttpResponse:
    """Catches its cancellation and answers."""
    with suppress(asyncio.CancelledError):
        await stop()
    return await request.idempotency.afinish(write)  # type: ignore[attr-defined, no-any-return]


@idempotent(mode="atomic")
async def atomic(request: HttpRequest) -> HttpResponse:
    return JsonResponse({})


@exempt
async def left_alone(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()})


async def undecorated(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()})


VIEWS: dict[str, Any] = {
    "function": function,
    "plain": plain,
    "class": Class.as_view(),
    "method": Method.as_view(),
    "failing": failing,
    "stubborn": stubborn,
    "atomic": atomic,
    "left-alone": left_alone,
    "undecorated": undecorated,
}
urlpatterns: list[Any] = [path(name, csrf_exempt(view), name=name) for name, view in VIEWS.items()]
urlpatterns.append(path("idempotency/", include("django_idempotency.urls")))


@pytest.fixture(autouse=True)
def _nothing_held() -> Iterator[None]:
    """A request's thread closes its connection when it ends."""
    Held.in_view = Held.in_commit = None
    age, connection.settings_dict["CONN_MAX_AGE"] = connection.settings_dict["CONN_MAX_AGE"], 0
    yield
    connection.settings_dict["CONN_MAX_AGE"] = age


def status() -> str:
    return IdempotencyKey.objects.get().status


FINISHING = ["/function", "/class", "/method"]


@pytest.mark.parametrize("view", [*FINISHING, "/stubborn"])
def test_a_repeat_gets_the_first_answer(alice: Person, view: str) -> None:
    first, second = (posted(view, alice) for _ in range(2))
    assert (first.status, second.status, Ran.count) == (201, 201, 1)
    assert second.sent[1:] == first.sent[1:]
    assert (first.replayed, second.replayed) == (False, True)


@pytest.mark.parametrize(
    ("kind", "first", "second", "ran", "state"),
    [
        ("missing", 404, 404, 1, "completed"),
        ("nothing", 503, 503, 2, "failed_retryable"),
        ("crash", 500, 409, 1, "unknown"),
    ],
)
def test_what_an_exception_means(alice: Person, kind: str, first: int, second: int, ran: int, state: str) -> None:
    answers = [posted("/failing", alice, data=kind).status for _ in range(2)]
    assert (answers, Ran.count, status()) == ([first, second], ran, state)


# The client goes away


@pytest.fixture
def cancelled(settings: Any) -> None:
    """The view is cancelled with its client; `test_disconnects` has what happens by default."""
    settings.IDEMPOTENCY = {"ON_DISCONNECT": "cancel"}


@pytest.mark.usefixtures("cancelled")
@pytest.mark.parametrize("view", [*FINISHING, "/plain"])
def test_a_client_that_disconnects_during_the_view_leaves_an_unknown_outcome(alice: Person, view: str) -> None:
    Held.in_view = Moment()
    assert abandoned(view, alice, Held.in_view).sent == []
    assert (status(), User.objects.filter(username__startswith="written").count()) == ("unknown", 0)
    Held.in_view = None
    again = posted(view, alice)
    assert (again.status, Ran.count) == (409, 0)


@pytest.mark.parametrize("view", FINISHING)
def test_in_the_commit_it_is_finished_first(alice: Person, view: str) -> None:
    Held.in_commit = Moment()
    assert abandoned(view, alice, Held.in_commit).sent == []
    assert (status(), User.objects.filter(username__startswith="written").count()) == ("completed", 1)
    again = posted(view, alice)
    assert (again.status, again.replayed, Ran.count) == (201, True, 1)


@pytest.mark.parametrize("view", [*FINISHING, "/plain"])
def test_between_claim_and_view_nothing_was_executed(alice: Person, view: str) -> None:
    claimed = Moment()
    signals.reserved.connect(claimed.hold)
    try:
        assert abandoned(view, alice, claimed).sent == []
    finally:
        signals.reserved.disconnect(claimed.hold)
    assert (status(), Ran.count) == ("failed_retryable", 0)
    assert posted(view, alice).status == 201


@pytest.mark.usefixtures("cancelled")
def test_a_view_that_survives_its_cancellation_is_stored(alice: Person) -> None:
    Held.in_view = Moment()
    abandoned("/stubborn", alice, Held.in_view)
    assert status() == "completed"
    Held.in_view = None
    assert posted("/stubborn", alice).replayed


def test_a_replay_that_nobody_waits_for_changes_nothing(alice: Person) -> None:
    posted("/function", alice)
    before = IdempotencyKey.objects.values().get()
    looked = Moment()
    signals.replayed.connect(looked.hold)
    try:
        assert abandoned("/function", alice, looked).sent == []
    finally:
        signals.replayed.disconnect(looked.hold)
    assert IdempotencyKey.objects.values().get() == before


@pytest.mark.usefixtures("cancelled")
def test_no_thread_and_no_connection_is_left_behind(alice: Person) -> None:
    def abandon_one_of_each() -> None:
        for name in ("in_view", "in_commit"):
            IdempotencyKey.objects.all().delete()
            moment = Moment()
            setattr(Held, name, moment)
            abandoned("/function", alice, moment)
            setattr(Held, name, None)

    abandon_one_of_each()  # what is kept for good, such as the watchdog's thread, is there from now on
    threads, open_before = set(threading.enumerate()), sessions()
    for _ in range(3):
        abandon_one_of_each()
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=PATIENCE)
        assert not thread.is_alive(), thread.name
    wait_until(lambda: sessions() <= open_before)  # the server counts one for a moment after it was closed


def test_a_cancellation_is_passed_on_as_what_it_was_when_the_work_is_done() -> None:
    """Some task groups, and so Django 6.1 on Python 3.12, take a subclass of it for an error of the view."""

    async def scenario() -> list[object]:
        seen: list[object] = []
        go_on = asyncio.Event()

        async def work() -> None:
            await go_on.wait()
            seen.append("done")

        async def request() -> None:
            try:
                await run_to_end(work())
            except BaseException as error:  # noqa: BLE001 - its exact class is what is looked at
                seen.append(type(error))

        task = asyncio.ensure_future(request())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        await task
        return seen

    assert asyncio.run(scenario()) == ["done", asyncio.CancelledError]


# What cannot hold, and what is left alone


def test_an_async_view_cannot_be_atomic(alice: Person) -> None:
    alice.client.raise_request_exception = True
    with pytest.raises(Misplaced, match="mode='leased'"):
        alice.post("/atomic")


@pytest.mark.parametrize("asynchronous", [True, False], ids=["asgi", "wsgi"])
def test_the_middleware_protects_async_views_too(alice: Person, settings: Any, asynchronous: bool) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django_idempotency.middleware.IdempotencyMiddleware"]

    def status_of(url: str) -> Any:
        return posted(url, alice).status if asynchronous else alice.post(url).status_code

    statuses = [status_of(url) for url in ("/undecorated", "/undecorated", "/left-alone", "/left-alone")]
    assert (statuses, Ran.count) == ([200, 200, 200, 200], 3)
    assert list(IdempotencyKey.objects.values_list("key", "operation")) == [(KEY, "undecorated")]
