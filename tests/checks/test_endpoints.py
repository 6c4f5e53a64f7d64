"""Every system check of the views, provoked; and none of them where nothing is wrong."""

import re
from datetime import timedelta
from functools import partial, wraps
from operator import attrgetter
from typing import Any

import pytest
from django.contrib.auth.decorators import login_required, permission_required, user_passes_test
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import include, path, resolve
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action, api_view
from rest_framework.generics import CreateAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSet

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.exceptions import Misplaced
from django_idempotency.reconciliation import NotLanded, reconciler
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran, atomic_requests

MIDDLEWARE = "django_idempotency.middleware.IdempotencyMiddleware"


def bare_wrapper(view: Any) -> Any:
    """A decorator that forgot functools.wraps."""

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    return wrapped


def careful_wrapper(view: Any) -> Any:
    return wraps(view)(bare_wrapper(view))


@idempotent
def protected(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class PlainMethod(View):
    @idempotent
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class DecoratedMethod(View):
    @method_decorator(idempotent)
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@method_decorator(idempotent, name="dispatch")
class Dispatched(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class Hand(APIView):
    @idempotent
    def post(self, request: Request) -> Response:
        return Response()


class Bare(APIView):
    def post(self, request: Request) -> Response:
        Ran.again()
        return Response()


class Exempt(APIView):
    @exempt
    def post(self, request: Request) -> Response:
        return Response()


class Readable(APIView):
    def get(self, request: Request) -> Response:
        return Response()


@method_decorator(idempotent, name="dispatch")
class RestDispatched(IdempotentMixin, APIView):
    permission_classes = []

    def post(self, request: Request) -> Response:
        Ran.again()
        return Response()


class Mixed(IdempotentMixin, APIView):
    def post(self, request: Request) -> Response:
        return Response()


class Helper(IdempotentMixin, CreateAPIView[Any]):
    @idempotent
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return Response()


class Hidden(IdempotentMixin, APIView):
    @bare_wrapper
    @idempotent
    def post(self, request: Request) -> Response:
        return Response()


@idempotent
@api_view(["POST"])
def above(request: Request) -> Response:
    return Response()


@api_view(["POST"])
@idempotent
def below(request: Request) -> Response:
    return Response()


@api_view(["POST", "PATCH"])
def function(request: Request) -> Response:
    return Response()


class TwoActions(IdempotentMixin, ViewSet):
    idempotency = {"operation": "things.write"}

    def create(self, request: Request) -> Response:
        return Response()

    @action(detail=False, methods=["post"])
    def archive(self, request: Request) -> Response:
        return Response()


class OneAction(IdempotentMixin, ViewSet):
    idempotency = {"operation": "things.create"}

    def create(self, request: Request) -> Response:
        return Response()

    @idempotent(operation="things.archive")
    @action(detail=False, methods=["post"])
    def archive(self, request: Request) -> Response:
        return Response()


@idempotent(mode="atomic")
async def asynchronous(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


@method_decorator(idempotent(mode="atomic"), name="dispatch")
class AsyncDispatched(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class AsyncMethod(View):
    @idempotent(mode="atomic")
    async def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@idempotent
async def async_leased(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


def named(operation: str) -> Any:
    return idempotent(operation=operation)(bare_wrapper(protected))


def routed(view_set: Any) -> Any:
    router = SimpleRouter()
    router.register("things", view_set, basename="things")
    return include(router.urls)


def found(settings: Any, *views: Any, silenced: bool = False) -> list[CheckMessage]:
    """What the checks say of these views, each under a URL of its own, below an include."""
    inner = [path(f"{number}/", view) for number, view in enumerate(views)]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("api/", include((inner, "inner")))]})
    return said(silenced=silenced)


def said(*, silenced: bool = False) -> list[CheckMessage]:
    """By our checks. Most views here have no reconciler, and this project silences W031."""
    ours = [message for message in run_checks() if (message.id or "").startswith("django_idempotency.")]
    return [message for message in ours if message.is_silenced() is silenced]


def ids(messages: list[CheckMessage]) -> list[str]:
    assert all(message.hint for message in messages)
    return [str(message.id).removeprefix("django_idempotency.") for message in messages]


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
    expected = {"testproject.urls": set(), "tests.http.test_async": {"E025", "E020"} if around else {"E025"}}
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


@pytest.mark.django_db
def test_e021_is_an_error_at_run_time_too(alice: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", RestDispatched.as_view())]})
    alice.client.raise_request_exception = True
    with pytest.raises(Misplaced, match=r"class RestDispatched\(IdempotentMixin, …\)"):
        alice.post("/it")
    assert Ran.count == 0


def test_w022_the_middleware_leaves_rest_views_alone(settings: Any) -> None:
    views = [Bare.as_view(), bare_wrapper(Bare.as_view()), function]
    assert found(settings, *views) == []
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    messages = found(settings, *views)
    assert ids(messages) == ["W022"] * 3
    assert "PATCH and POST is not protected" in messages[2].msg


def test_e023_an_operation_is_named_once(settings: Any) -> None:
    messages = found(settings, named("pay"), named("pay"), named("refund"))
    assert ids(messages) == ["E023"]
    assert "'pay'" in messages[0].msg
    assert "/api/0/, /api/1/" in messages[0].msg
    once = named("pay")
    assert found(settings, once, csrf_exempt(once)) == []


def test_e023_counts_the_actions_of_a_view_set(settings: Any) -> None:
    (message,) = found(settings, routed(TwoActions))
    assert ids([message]) == ["E023"]
    assert "create" in message.msg
    assert "archive" in message.msg


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


def test_e026_a_decorated_method_that_answers_nothing(settings: Any) -> None:
    messages = found(settings, Helper.as_view(), Hidden.as_view())
    assert ids(messages) == ["E026", "E026"]
    assert "Helper.create" in messages[0].msg
    assert "options, post" in str(messages[0].hint)
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


def leased(**policy: Any) -> Any:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    return idempotent(**policy)(view)


@pytest.mark.usefixtures("registrations")
def test_w031_doubts_that_nobody_can_be_asked_about(settings: Any) -> None:
    reconciler("tests.told")(lambda record: NotLanded())
    declared = [leased(mode="atomic"), leased(on_lost_lease="restart"), leased(on_lost_lease="resume")]
    asked = leased(operation="tests.told")
    assert found(settings, *declared, asked, Readable.as_view(), Exempt.as_view(), silenced=True) == []

    unnamed = leased()
    messages = found(settings, unnamed, unnamed, routed(OneAction), silenced=True)
    names = [resolve("/api/0/").view_name, "things.archive", "things.create"]
    assert ids(messages) == ["W031"] * 3, "once for each operation"
    assert [re.findall(r"@reconciler\(.([^)]+).\)", str(each.hint)) for each in messages] == [[name] for name in names]
    assert "/api/0/" in messages[0].msg


def wanted(test: Any) -> Any:
    """A decorator of Django's that asks something."""
    return {"login": login_required, "permission": permission_required("auth.add_group")}.get(test) or user_passes_test(
        lambda user: user.is_staff
    )


def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


class Asking(PermissionRequiredMixin, View):
    permission_required = "auth.add_group"

    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


class DecoratedInside(Asking):
    @idempotent
    def post(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse()


@pytest.mark.parametrize("test", ["permission", "staff"])
def test_e032_a_permission_asked_inside(settings: Any, test: str) -> None:
    inside = never_cache(idempotent(csrf_exempt(wanted(test)(answer))))
    dispatched: Any = method_decorator(idempotent, name="dispatch")(type("Dispatched", (Asking,), {}))
    messages = found(settings, inside, dispatched.as_view(), idempotent(Asking.as_view()))
    assert ids(messages) == ["E032"] * 3
    assert "user_passes_test" in messages[0].msg
    assert "PermissionRequiredMixin" in messages[1].msg


def test_e032_a_permission_asked_before(settings: Any) -> None:
    outside = wanted("permission")(idempotent(answer))
    login = idempotent(wanted("login")(answer))  # the scope asks for one already
    later: Any = type("Later", (PermissionRequiredMixin, Dispatched), {"permission_required": "auth.add_group"})
    mixed: Any = type("Mixed", (PermissionRequiredMixin, Mixed), {"permission_required": "auth.add_group"})
    views = [later.as_view(), mixed.as_view(), DecoratedInside.as_view(), never_cache(csrf_exempt(outside))]
    assert found(settings, outside, login, *views) == []


def test_e032_looks_at_nothing_beside_the_protection(settings: Any) -> None:
    def by_method(get: Any, post: Any) -> Any:
        def chosen(request: HttpRequest) -> HttpResponse:
            answered: HttpResponse = (post if request.method == "POST" else get)(request)
            return answered

        return chosen

    asking = wanted("permission")
    assert found(settings, by_method(asking(answer), asking(idempotent(careful_wrapper(answer))))) == []


def test_e032_any_callable_may_ask(settings: Any) -> None:
    staff = user_passes_test(attrgetter("is_staff"))
    assert ids(found(settings, idempotent(staff(answer)))) == ["E032"]
    assert found(settings, staff(idempotent(careful_wrapper(answer)))) == []


def test_w033_a_permission_asked_behind_the_middleware(settings: Any) -> None:
    views = [wanted("permission")(answer), Asking.as_view()]
    apart = [wanted("login")(answer), wanted("permission")(idempotent(answer)), DecoratedInside.as_view()]
    exempted = [exempt(wanted("permission")(answer)), wanted("permission")(exempt(careful_wrapper(answer)))]
    assert found(settings, *views) == []
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    messages = found(settings, *views, *apart, *exempted)
    assert ids(messages) == ["W033"] * 2
    assert "no PATCH and no POST" in str(messages[0].hint)


def test_w034_a_heartbeat_that_never_beats(settings: Any) -> None:
    settings.IDEMPOTENCY = {"LEASE": 60}
    short, long = (leased(transaction="late", heartbeat=timedelta(seconds=each)) for each in (60, 61))
    messages = found(settings, never_cache(short), long)
    assert ids(messages) == ["W034"], "once for each policy"
    assert "/api/0/" in messages[0].msg


@pytest.mark.parametrize(("given", "said"), [({"LEASE": "abc"}, "E003"), (None, "E001")])
def test_settings_that_cannot_be_read_are_told_once(settings: Any, given: Any, said: str) -> None:
    views = leased(), leased()
    settings.IDEMPOTENCY = given
    assert ids(found(settings, *views)) == [said]


def test_the_policy_of_a_route_is_checked_as_that_of_a_class(settings: Any) -> None:
    class Told(ViewSet):
        @action(detail=False, methods=["post"], idempotency={"operation": "once"})
        def one(self, request: Request) -> Response:
            return Response()

        @action(detail=False, methods=["post"], idempotency={"operation": "once"})
        def two(self, request: Request) -> Response:
            return Response()

    view_set = type("Told", (IdempotentMixin, Told), {"idempotency": None})
    assert ids(found(settings, routed(view_set))) == ["E023"]


def test_w031_fits_no_view_of_this_project_but_a_fixture(settings: Any) -> None:
    settings.ROOT_URLCONF = "testproject.urls"
    messages = said(silenced=True)
    assert messages
    assert all(message.msg.startswith("/conformance/") for message in messages)


def test_without_urls_there_is_nothing_to_check(settings: Any) -> None:
    del settings.ROOT_URLCONF
    from django_idempotency.checks.endpoints import check_endpoints

    assert check_endpoints(None) == []


def test_plain_check_runs_them(settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Hand.as_view())]})
    with pytest.raises(Exception, match=r"django_idempotency\.E021"):
        call_command("check")
