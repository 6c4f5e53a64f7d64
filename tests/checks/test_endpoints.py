"""Every system check of the views, provoked; and none of them where nothing is wrong."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from django_idempotency.checks.deferred import check_deferred_work
from django_idempotency.checks.endpoints import check_endpoints
from django_idempotency.checks.operations import check_operations
from django_idempotency.decorators import exempt, idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.checks.messages import found, ids, said
from tests.checks.views import (
    AsyncDispatched,
    AsyncMethod,
    Bare,
    DecoratedMethod,
    Dispatched,
    Exempt,
    Hand,
    Helper,
    Hidden,
    Mixed,
    OneAction,
    PlainMethod,
    Readable,
    RestDispatched,
    above,
    async_leased,
    asynchronous,
    below,
    function,
    leased,
    protected,
    routed,
)
from tests.kit.http import MIDDLEWARE, atomic_requests, bare_wrapper, careful_wrapper


async def plain_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


async def other_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


GOOD = [
    protected,
    csrf_exempt(protected),
    careful_wrapper(never_cache(protected)),
    Dispatched.as_view(),
    Mixed.as_view(),
    above,
    routed(OneAction),
    async_leased,
    Exempt.as_view(),
    Readable.as_view(),
]


@pytest.mark.parametrize("around", [False, True], ids=["plain", "atomic requests"])
def test_a_good_setup_has_nothing_to_say(settings: Any, around: bool) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    with atomic_requests(around):
        assert found(settings, *GOOD) == []


@pytest.mark.parametrize("around", [False, True], ids=["plain", "atomic requests"])
@pytest.mark.parametrize("urls", ["testproject.urls", "tests.http.test_async"])
def test_the_views_of_this_project_have_what_they_deserve(settings: Any, around: bool, urls: str) -> None:
    connection.close()
    settings.ROOT_URLCONF = urls
    with atomic_requests(around):
        named = ids(said())
    asynchronous = {"E025", "W031", "E020"} if around else {"E025", "W031"}
    expected = {"testproject.urls": set(), "tests.http.test_async": asynchronous}
    assert set(named) == expected[urls]
    assert connection.connection is None, "the checks open no connection"


@pytest.mark.parametrize(
    "view",
    [
        bare_wrapper(protected),
        partial(protected),
        csrf_exempt(bare_wrapper(csrf_exempt(protected))),
        PlainMethod.as_view(),
        DecoratedMethod.as_view(),
        bare_wrapper(Dispatched.as_view()),
        bare_wrapper(Mixed.as_view()),
        below,
    ],
    ids=["bare wrapper", "partial", "deep", "method", "method_decorator", "around class", "around mixin", "below"],
)
def test_e020_atomic_requests_cannot_be_left(settings: Any, view: Any) -> None:
    assert found(settings, view) == []
    with atomic_requests():
        messages = found(settings, view)
        assert ids(messages) == ["E020"]
        assert "/api/0/" in messages[0].msg
        assert "'default'" in messages[0].msg
        assert found(settings, transaction.non_atomic_requests(careful_wrapper(view))) == []


@pytest.mark.parametrize(
    "view",
    [
        Hand.as_view(),
        RestDispatched.as_view(),
        idempotent(bare_wrapper(Mixed.as_view())),
        idempotent(bare_wrapper(above)),
    ],
    ids=["without the mixin", "around dispatch", "around a view", "around a function"],
)
def test_e021_before_authentication(settings: Any, view: Any) -> None:
    messages = found(settings, view)
    assert ids(messages) == ["E021"]
    assert "(IdempotentMixin, …)" in str(messages[0].hint)


def test_w022_the_middleware_leaves_rest_views_alone(settings: Any) -> None:
    views = [Bare.as_view(), bare_wrapper(Bare.as_view()), function]
    assert found(settings, *views) == []
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    messages = found(settings, *views)
    assert ids(messages) == ["W022"] * 3
    assert "PATCH and POST is not protected" in messages[2].msg


def test_e024_the_router_names_an_alias_that_exists(settings: Any) -> None:
    class Lost:
        def db_for_write(self, model: Any, **hints: Any) -> str:
            return "nowhere"

    settings.DATABASE_ROUTERS = [Lost()]
    messages = found(settings, protected)
    assert ids(messages) == ["E024"]
    assert "'nowhere'" in messages[0].msg


@pytest.mark.parametrize("view", [asynchronous, AsyncDispatched.as_view(), AsyncMethod.as_view()])
def test_e025_an_async_view_is_not_atomic(settings: Any, view: Any) -> None:
    assert ids(found(settings, view)) == ["E025"]


def test_e025_an_async_view_is_not_atomic_by_the_setting_either(settings: Any) -> None:
    named = leased(mode="leased")
    settings.IDEMPOTENCY = {"MODE": "atomic"}
    (message,) = found(settings, async_leased, named)
    assert ids([message]) == ["E025"]
    assert "mode='leased'" in str(message.hint)


def test_e026_a_decorated_method_that_answers_nothing(settings: Any) -> None:
    messages = found(settings, Helper.as_view(), Hidden.as_view())
    assert ids(messages) == ["E026", "E026"]
    assert "Helper.create" in messages[0].msg
    assert str(messages[0].hint).startswith("Decorate post, or put")
    assert "functools.wraps" in str(messages[1].hint)


def test_e026_a_hook_of_a_view_set_answers_nothing(settings: Any) -> None:
    hooked: Any = type("Hooked", (IdempotentMixin, ViewSet), {"perform_create": idempotent(lambda self, form: None)})
    hooked.create = lambda self, request: Response()
    messages = found(settings, hooked.as_view({"post": "create"}))
    assert ids(messages) == ["E026"]
    assert "Hooked.perform_create" in messages[0].msg
    assert "create" in str(messages[0].hint)


def test_e027_nothing_with_process_view_stands_behind_the_middleware(settings: Any) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE, *settings.MIDDLEWARE]
    messages = found(settings, protected)
    assert ids(messages) == ["E027"]
    assert "CsrfViewMiddleware" in messages[0].msg


def test_w034_a_heartbeat_that_never_beats(settings: Any) -> None:
    settings.IDEMPOTENCY = {"LEASE": 60}
    short, long = (leased(transaction="late", heartbeat=timedelta(seconds=each)) for each in (60, 61))
    messages = found(settings, never_cache(short), long)
    assert ids(messages) == ["W034"], "once for each policy"
    assert "/api/0/" in messages[0].msg


@pytest.mark.parametrize(
    ("given", "arguments", "what"),
    [
        ({"MODE": "atomic"}, {"transaction": "late"}, "transaction='late' cannot be combined with mode='atomic'"),
        ({"AFTER_EXPIRY": "gone", "EXPIRY": "soft"}, {"expiry": "hard"}, "after_expiry='gone' needs expiry='soft'"),
    ],
)
def test_e005_a_policy_that_the_settings_contradict(settings: Any, given: Any, arguments: Any, what: str) -> None:
    class Mixin(IdempotentMixin, Bare):
        idempotency = arguments

    class Method(PlainMethod):
        post = idempotent(**arguments)(PlainMethod.post)

    settings.IDEMPOTENCY = given
    messages = found(settings, leased(**arguments), Mixin.as_view(), Method.as_view(), protected)
    assert ids(messages) == ["E005"] * 3
    assert all(f"/api/{number}/" in message.msg for number, message in enumerate(messages))
    assert all(what in message.msg for message in messages)


def test_w042_the_middleware_cannot_run_an_async_view_in_atomic_mode(settings: Any) -> None:
    class AsyncPost(View):
        async def post(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    class AsyncGet(View):
        async def get(self, request: HttpRequest) -> HttpResponse:
            return HttpResponse()

    class Own(AsyncPost):
        post = idempotent(mode="leased")(AsyncPost.post)

    views = [never_cache(plain_async), AsyncPost.as_view(), AsyncGet.as_view(), Own.as_view(), exempt(other_async)]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    assert found(settings, *views) == []
    settings.IDEMPOTENCY = {"MODE": "atomic"}
    messages = found(settings, *views)
    assert ids(messages) == ["W042"] * 2
    assert ["/api/0/" in messages[0].msg, "/api/1/" in messages[1].msg] == [True, True]


@pytest.mark.parametrize(("given", "said"), [({"LEASE": "abc"}, "E003"), (None, "E001")])
def test_settings_that_cannot_be_read_are_told_once(settings: Any, given: Any, said: str) -> None:
    views = leased(), leased()
    settings.IDEMPOTENCY = given
    assert ids(found(settings, *views)) == [said]


def test_without_urls_there_is_nothing_to_check(settings: Any) -> None:
    del settings.ROOT_URLCONF
    for check in (check_deferred_work, check_endpoints, check_operations):
        assert check(None) == []


def test_plain_check_runs_them(settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Hand.as_view())]})
    with pytest.raises(Exception, match=r"django_idempotency\.E021"):
        call_command("check")
