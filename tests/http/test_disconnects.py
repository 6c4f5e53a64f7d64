"""Async views whose client disconnects: they finish within their lease, and are cancelled only for a stated reason."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path
from django.utils.decorators import async_only_middleware, method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from tests.http.disconnecting import PATIENCE, Exchange, Moment, abandoned, posted
from tests.kit.databases import sessions
from tests.kit.http import MIDDLEWARE, Person, Ran
from tests.kit.threads import wait_until

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True), pytest.mark.vendor]

SECOND = timedelta(seconds=1)
chosen_in_view: ContextVar[str] = ContextVar("chosen_in_view", default="nothing")


class Held:
    """Where the next request waits, and how it may go on."""

    moment: Moment | None = None
    cancelled = 0


async def stop() -> None:
    if Held.moment is None:
        return
    Held.moment.reached.set()
    try:
        await Held.moment.may_go_on()
    except asyncio.CancelledError:
        Held.cancelled += 1
        raise


def write() -> HttpResponse:
    User.objects.create(username=f"written {Ran.again()}")
    return JsonResponse({"run": Ran.count}, status=201)


@idempotent
async def function(request: HttpRequest) -> HttpResponse:
    await stop()
    return await request.idempotency.afinish(write)  # type: ignore[attr-defined, no-any-return]


async def plain(request: HttpRequest) -> HttpResponse:
    """Its sync parts share one thread, and so one connection."""
    count = await User.objects.acount()
    await stop()
    assert await User.objects.acount() == count
    return await sync_to_async(write)()


@method_decorator(idempotent, name="dispatch")
class Class(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return await plain(request)


class Method(View):
    @idempotent
    async def post(self, request: HttpRequest) -> HttpResponse:
        return await plain(request)


@idempotent
async def in_a_thread(request: HttpRequest) -> HttpResponse:
    """Is in its sync part when the client disconnects."""

    def held() -> HttpResponse:
        if Held.moment is not None:
            Held.moment.hold()
        return write()

    return await sync_to_async(held)()


@idempotent
async def with_a_session(request: HttpRequest) -> HttpResponse:
    await request.session.aset("cart", "empty")
    return await plain(request)


@idempotent
async def failing(request: HttpRequest) -> HttpResponse:
    Ran.again()
    await stop()
    raise RuntimeError("planned")


@idempotent(lease=SECOND)
async def short_lease(request: HttpRequest) -> HttpResponse:
    return await plain(request)


@idempotent(lease=SECOND)
async def extended(request: HttpRequest) -> HttpResponse:
    await request.idempotency.aextend(timedelta(minutes=5))  # type: ignore[attr-defined]
    if Held.moment is not None:
        Held.moment.reached.set()
        await asyncio.sleep(1.2)  # the lease that the policy gives is over
    return await sync_to_async(write)()


@idempotent(on_disconnect="cancel")
async def cancelling(request: HttpRequest) -> HttpResponse:
    return await plain(request)


@idempotent
async def endless(request: HttpRequest) -> StreamingHttpResponse:
    await plain(request)

    async def ticks() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.01)
            yield b"tick"

    return StreamingHttpResponse(ticks(), status=201)


@idempotent
async def choosing(request: HttpRequest) -> HttpResponse:
    chosen_in_view.set("something")
    return await plain(request)


@async_only_middleware
def seen_by_middleware(get_response: Any) -> Any:
    async def middleware(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = await get_response(request)
        seen.append((chosen_in_view.get(), response.status_code))
        return response

    return middleware


seen: list[tuple[str, int]] = []
VIEWS: dict[str, Any] = {
    "function": function,
    "plain": idempotent(plain),
    "class": Class.as_view(),
    "method": Method.as_view(),
    "thread": in_a_thread,
    "session": with_a_session,
    "failing": failing,
    "short": short_lease,
    "extended": extended,
    "cancelling": cancelling,
    "choosing": choosing,
    "endless": endless,
    "undecorated": plain,
}
urlpatterns: list[Any] = [path(name, csrf_exempt(view), name=name) for name, view in VIEWS.items()]


@pytest.fixture(autouse=True)
def _nothing_held() -> Iterator[None]:
    """A request's thread closes its connection when it ends."""
    Held.moment, Held.cancelled = None, 0
    seen.clear()
    age, connection.settings_dict["CONN_MAX_AGE"] = connection.settings_dict["CONN_MAX_AGE"], 0
    yield
    connection.settings_dict["CONN_MAX_AGE"] = age
    gc.collect()  # a task that nobody asked for its exception says so when it is collected


def abandon(view: str, alice: Person, **more: Any) -> Exchange:
    """Hang up in the view."""
    Held.moment = Moment()
    exchange = abandoned(view, alice, Held.moment, **more)
    Held.moment = None
    return exchange


def state() -> tuple[str, int]:
    """The record's status, and how often the effect happened."""
    return IdempotencyKey.objects.get().status, User.objects.filter(username__startswith="written").count()


@pytest.mark.parametrize("view", ["/function", "/plain", "/class", "/method", "/thread", "/session"])
def test_a_view_whose_client_hangs_up_finishes(alice: Person, view: str) -> None:
    assert abandon(view, alice).sent == []
    assert state() == ("completed", 1)
    again = posted(view, alice)
    assert (again.status, again.replayed, state(), Ran.count) == (201, True, ("completed", 1), 1)


def test_a_view_below_the_middleware_finishes_too(alice: Person, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    abandon("/undecorated", alice)
    assert state() == ("completed", 1)
    assert posted("/undecorated", alice).replayed


def test_what_the_view_wrote_into_the_session_is_saved(alice: Person) -> None:
    abandon("/session", alice)
    assert alice.client.session["cart"] == "empty"


@pytest.mark.parametrize("hangs_up", [False, True])
def test_middleware_sees_the_response_and_the_context_of_the_view(alice: Person, settings: Any, hangs_up: bool) -> None:
    settings.MIDDLEWARE = [f"{__name__}.seen_by_middleware", *settings.MIDDLEWARE]
    (abandon if hangs_up else posted)("/choosing", alice)
    assert seen == [("something", 201)]


def test_an_exception_is_logged_once_and_names_the_endpoint(alice: Person, caplog: pytest.LogCaptureFixture) -> None:
    abandon("/failing", alice)
    gc.collect()
    errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert errors == ["Internal Server Error: /failing"]
    assert state() == ("unknown", 0)
    assert posted("/failing", alice).status == 409


def test_nobody_waits_for_a_stream_that_nobody_reads(alice: Person) -> None:
    abandon("/endless", alice)
    assert state() == ("completed", 1)


def test_no_thread_and_no_connection_is_left_behind(alice: Person) -> None:
    abandon("/plain", alice)  # what is kept for good, such as the watchdog's thread, is there from now on
    threads, open_before = set(threading.enumerate()), sessions()
    for _ in range(3):
        IdempotencyKey.objects.all().delete()
        abandon("/plain", alice)
    for thread in set(threading.enumerate()) - threads:
        thread.join(timeout=PATIENCE)
        assert not thread.is_alive(), thread.name
    wait_until(lambda: sessions() <= open_before)


# What ends it

# Where the whole request is cancelled, Django sends no `request_finished`, and its connection is not closed.
leaves_its_connection = pytest.mark.filterwarnings("ignore::ResourceWarning")


def test_when_the_lease_is_over_it_is_cancelled(alice: Person, caplog: pytest.LogCaptureFixture) -> None:
    Held.moment = moment = Moment()

    async def scenario() -> None:
        exchange = Exchange("/short", alice)
        running = asyncio.ensure_future(exchange.run())
        await moment.wait()
        exchange.gone.set()
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(scenario())
    assert (state(), Held.cancelled) == (("unknown", 0), 1)
    assert "short" in caplog.text
    assert "its lease is over" in caplog.text
    Held.moment = None
    assert posted("/short", alice).status == 409


def test_a_lease_that_was_extended_ends_later(alice: Person) -> None:
    abandon("/extended", alice)
    assert state() == ("completed", 1)


def test_the_policy_may_cancel_it(alice: Person) -> None:
    abandon("/cancelling", alice)
    assert (state(), Held.cancelled) == (("unknown", 0), 1)


def test_the_setting_may_cancel_all(alice: Person, settings: Any) -> None:
    settings.IDEMPOTENCY = {"ON_DISCONNECT": "cancel"}
    abandon("/plain", alice)
    assert (state(), Held.cancelled) == (("unknown", 0), 1)


async def hang_up(key: str, person: Person) -> tuple[Moment, asyncio.Future[None]]:
    Held.moment = moment = Moment()
    exchange = Exchange("/function", person, key=key)
    running = asyncio.ensure_future(exchange.run())
    await moment.wait()
    exchange.gone.set()
    for _ in range(20):
        await asyncio.sleep(0)
    return moment, running


def test_above_the_bound_it_is_cancelled(alice: Person, settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.IDEMPOTENCY = {"MAX_DISCONNECTED": 1}

    async def scenario() -> None:
        first, finishing = await hang_up("first", alice)
        _, cancelled = await hang_up("second", alice)
        await asyncio.wait_for(cancelled, PATIENCE)
        first.go_on.set()
        await asyncio.wait_for(finishing, PATIENCE)
        third, finishing = await hang_up("third", alice)
        third.go_on.set()
        await asyncio.wait_for(finishing, PATIENCE)

    asyncio.run(scenario())
    found = dict(IdempotencyKey.objects.values_list("key", "status"))
    assert found == {"first": "completed", "second": "unknown", "third": "completed"}
    assert "MAX_DISCONNECTED" in caplog.text


def test_one_caller_who_hangs_up_takes_no_place_of_another(alice: Person, settings: Any) -> None:
    settings.IDEMPOTENCY = {"MAX_DISCONNECTED": 2}
    bob = Person("bob")

    async def scenario() -> None:
        views = [await hang_up(key, person) for key, person in (("alice", alice), ("bob", bob))]
        _, cancelled = await hang_up("again", alice)
        await asyncio.wait_for(cancelled, PATIENCE)
        for moment, finishing in views:
            moment.go_on.set()
            await asyncio.wait_for(finishing, PATIENCE)

    asyncio.run(scenario())
    found = dict(IdempotencyKey.objects.values_list("key", "status"))
    assert found == {"alice": "completed", "bob": "completed", "again": "unknown"}


@leaves_its_connection
def test_a_second_cancellation_is_the_servers_and_ends_it(alice: Person) -> None:
    Held.moment = moment = Moment()

    async def scenario() -> None:
        exchange = Exchange("/plain", alice)
        running = asyncio.ensure_future(exchange.run())
        await moment.wait()
        exchange.gone.set()
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=PATIENCE)
        assert running.done()

    asyncio.run(scenario())
    assert (state(), Held.cancelled) == (("unknown", 0), 1)


@leaves_its_connection
@pytest.mark.parametrize("hangs_up", [False, True])
def test_the_end_of_the_event_loop_ends_it(alice: Person, hangs_up: bool) -> None:
    """Whether the client is there or not: `asyncio.run` cancels every task, and waits for all."""
    Held.moment = moment = Moment()

    async def scenario() -> asyncio.Future[None]:
        exchange = Exchange("/plain", alice)
        running = asyncio.ensure_future(exchange.run())
        await moment.wait()
        if hangs_up:
            exchange.gone.set()
            for _ in range(20):
                await asyncio.sleep(0)
        return running

    running = asyncio.run(scenario())
    assert running.done()
    assert (state(), Held.cancelled) == (("unknown", 0), 1)


def test_a_middleware_that_gives_up_waiting_cancels_nothing(alice: Person, settings: Any) -> None:
    """`asyncio.timeout` cancels as a disconnect does; the response that comes late is given all the same."""
    settings.MIDDLEWARE = [f"{__name__}.impatient", *settings.MIDDLEWARE]
    Held.moment = moment = Moment()
    moment.go_on.set()
    exchange = posted("/plain", alice)
    assert (exchange.status, state()) == (201, ("completed", 1))


@async_only_middleware
def impatient(get_response: Any) -> Any:
    async def middleware(request: HttpRequest) -> HttpResponse:
        task = asyncio.current_task()
        assert task is not None
        before = task.cancelling()
        async with asyncio.TaskGroup() as group:
            group.create_task(cancel_in_the_view(task))
            response: HttpResponse = await get_response(request)
        assert task.cancelling() == before
        return response

    return middleware


async def cancel_in_the_view(task: asyncio.Task[Any]) -> None:
    assert Held.moment is not None
    await Held.moment.wait()
    task.cancel()
