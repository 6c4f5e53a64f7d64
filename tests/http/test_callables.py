"""What the functions of a policy return decides about other people's answers: only what was asked for counts."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View
from rest_framework.decorators import api_view
from rest_framework.views import APIView

from django_idempotency import FingerprintRule, KeyRule, Policy, Profile
from django_idempotency.conf import conf
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

pytestmark = pytest.mark.django_db


async def an_async_function(*_: Any) -> bool:
    return False


class AsyncCall:
    async def __call__(self, *_: Any) -> bool:
        return False


class AsyncMethod:
    async def ask(self, *_: Any) -> bool:
        return False


async def an_async_generator(*_: Any) -> Any:
    yield False


ASYNC: list[Any] = [
    an_async_function,
    AsyncCall(),
    AsyncMethod().ask,
    partial(an_async_function, 1),
    partial(AsyncCall(), 1),
    partial(partial(an_async_function, 1), 2),
    an_async_generator,
]
POLICY_FUNCTIONS = ("scope", "tenant", "authorize", "not_executed", "store", "upgrade")


@pytest.fixture
def serve(settings: Any) -> Callable[[Any], None]:
    """Put a view at /it."""

    def at(view: Any) -> None:
        settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})

    return at


Serve = Callable[[Any], None]


def counted(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


WRITTEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a policy": lambda policy: Policy(**policy),
    "a decorator": lambda policy: idempotent(**policy)(counted),
    "below api_view": lambda policy: api_view(["POST"])(idempotent(**policy)(counted)),
    "above api_view": lambda policy: idempotent(**policy)(api_view(["POST"])(counted)),
    "a class": lambda policy: type("Mixed", (IdempotentMixin, APIView), {"idempotency": policy}),
}


@pytest.mark.parametrize("name", POLICY_FUNCTIONS)
def test_an_async_function_is_refused_where_the_policy_is_written(name: str) -> None:
    for function, write in product(ASYNC, WRITTEN.values()):
        with pytest.raises(TypeError, match=rf"^{name} must be .*not async"):
            write({name: function})


@pytest.mark.parametrize("name", sorted({*POLICY_FUNCTIONS} - {"scope", "authorize"}))
def test_what_nothing_awaits_is_refused_around_async_views_too(name: str) -> None:
    for function in ASYNC:
        with pytest.raises(TypeError, match=rf"^{name} must be .*not async"):
            idempotent(**{name: function})


@pytest.mark.parametrize("name", ["scope", "authorize"])
def test_an_async_generator_is_refused_around_async_views_too(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name} must be .*not async"):
        idempotent(**{name: an_async_generator})


def test_an_async_scope_is_refused_by_a_class_with_sync_methods(alice: Person, serve: Serve) -> None:
    """The decorator meets the class with the first request."""

    @method_decorator(idempotent(scope=an_async_function), name="dispatch")
    class Sync(View):
        def post(self, request: HttpRequest) -> HttpResponse:
            return counted(request)

    serve(Sync.as_view())
    alice.client.raise_request_exception = True
    with pytest.raises(TypeError, match=r"^scope must be .*not async"):
        alice.post("/it")
    assert Ran.count == 0


def test_an_async_function_is_refused_where_a_rule_is_written() -> None:
    for function in ASYNC:
        with pytest.raises((TypeError, ValueError), match=r"^validator must be .*not async"):
            KeyRule(validator=function)
        with pytest.raises((TypeError, ValueError), match=r"^custom must be .*not async"):
            FingerprintRule(custom=function)
        with pytest.raises((TypeError, ValueError), match=r"^reshape must be .*not async"):
            Profile(name="house", reshape=function)


@pytest.mark.parametrize("name", ["SCOPE", "TENANT", "ENQUEUE"])
def test_an_async_function_is_refused_in_the_settings(name: str, settings: Any) -> None:
    for function in (*ASYNC, f"{__name__}.an_async_function"):
        settings.IDEMPOTENCY = {name: function}
        with pytest.raises(ValueError, match=rf"{name}.*not async"):
            getattr(conf, name)


@pytest.fixture
def never_awaited() -> Iterator[None]:
    """Warnings are errors in this suite, also that of a coroutine that nobody awaited."""
    import gc

    yield
    gc.collect()


@pytest.mark.usefixtures("never_awaited")
def test_a_coroutine_is_no_principal(alice: Person, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    serve(idempotent(scope=lambda request: an_async_function(request))(counted))
    assert [alice.post("/it").status_code, Person("bob").post("/it").status_code] == [403, 403]
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


@pytest.mark.usefixtures("never_awaited")
@pytest.mark.parametrize(
    "permission", [lambda *_: an_async_function(), lambda *_: "yes", lambda *_: 1, lambda *_: None]
)
def test_only_true_lets_a_replay_through(alice: Person, serve: Serve, permission: Any) -> None:
    serve(idempotent(authorize=permission)(counted))
    assert [alice.post("/it").status_code for _ in range(2)] == [201, 403]


@pytest.mark.usefixtures("never_awaited")
@pytest.mark.parametrize("proof", [lambda *_: an_async_function(), lambda *_: "yes", lambda *_: 1])
def test_only_true_proves_that_nothing_happened(alice: Person, serve: Serve, proof: Any) -> None:
    def failing(request: HttpRequest) -> HttpResponse:
        Ran.again()
        raise ConnectionError

    serve(idempotent(not_executed=proof)(failing))
    assert [alice.post("/it").status_code for _ in range(2)] == [500, 409]
    assert (Ran.count, IdempotencyKey.objects.get().status) == (1, "unknown")


@pytest.mark.usefixtures("never_awaited")
def test_a_coroutine_never_frees_a_key(alice: Person, serve: Serve) -> None:
    def refusing(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"run": Ran.again()}, status=404)

    serve(idempotent(store=lambda status: an_async_function(status))(refusing))
    assert [alice.post("/it").json() for _ in range(2)] == [{"run": 1}, {"run": 1}]


@pytest.mark.usefixtures("never_awaited")
def test_a_coroutine_accepts_no_key(alice: Person, serve: Serve) -> None:
    rule = KeyRule(validator=lambda key: an_async_function(key))  # type: ignore[arg-type, return-value]
    serve(idempotent(key=rule)(counted))
    assert alice.post("/it").status_code == 400
    assert Ran.count == 0


@pytest.mark.usefixtures("never_awaited")
def test_a_coroutine_makes_no_fingerprint(alice: Person, serve: Serve) -> None:
    rule = FingerprintRule(custom=lambda parts: an_async_function(parts))  # type: ignore[arg-type, return-value]
    serve(idempotent(fingerprint=rule)(counted))
    assert alice.post("/it").status_code == 500
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


@pytest.mark.usefixtures("never_awaited")
def test_a_coroutine_upgrades_no_response(alice: Person, serve: Serve) -> None:
    serve(idempotent(upgrade=lambda reply: an_async_function(reply))(counted))
    first = alice.post("/it")
    IdempotencyKey.objects.update(response_schema_version=7)
    second = alice.post("/it")
    assert (first.status_code, second.status_code) == (201, 500)
    assert Ran.count == 1
