"""@idempotent on plain views, through Django's own request handling."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.models import IdempotencyKey
from tests.kit.http import Person, Ran, same_answer

pytestmark = pytest.mark.urls(__name__)


def answer(request: HttpRequest, **more: Any) -> JsonResponse:
    return JsonResponse({"run": Ran.again(), **more}, status=201, headers={"Location": "/things/1"})


@idempotent
def bare(request: HttpRequest) -> HttpResponse:
    return answer(request)


@idempotent(mode="atomic")
def atomic(request: HttpRequest) -> HttpResponse:
    User.objects.create(username=str(uuid4()))
    return answer(request)


@idempotent(required=False)
def optional(request: HttpRequest) -> HttpResponse:
    return answer(request, active=request.idempotency.active)  # type: ignore[attr-defined]


@idempotent(transaction="late")
def late(request: HttpRequest) -> HttpResponse:
    derived = request.idempotency.derive("charge")  # type: ignore[attr-defined]
    open_now = connection.in_atomic_block and not connection.atomic_blocks[-1]._from_testcase  # type: ignore[attr-defined]

    def write() -> HttpResponse:
        User.objects.create(username=str(uuid4()))
        return answer(request, derived=derived, open=open_now)

    return request.idempotency.finish(write)  # type: ignore[attr-defined, no-any-return]


@idempotent
def failing(request: HttpRequest) -> HttpResponse:
    Ran.again()
    User.objects.create(username=str(uuid4()))
    kind = json.loads(request.body)["raise"]
    raise {"404": Http404, "403": PermissionDenied, "nothing": NotExecuted, "crash": RuntimeError}[kind]("planned")


@idempotent
async def asynchronous(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)

    def write() -> HttpResponse:
        User.objects.create(username=str(uuid4()))
        return answer(request)

    return await request.idempotency.afinish(write)  # type: ignore[attr-defined, no-any-return]


@method_decorator(idempotent, name="dispatch")
class Dispatched(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


@method_decorator(idempotent(operation="asynchronous class"), name="dispatch")
class AsyncDispatched(View):
    async def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


class Method(View):
    @idempotent
    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


@idempotent
def streamed(request: HttpRequest) -> StreamingHttpResponse:
    Ran.again()
    return StreamingHttpResponse([b"a", b"b"], content_type="text/csv")


@idempotent(streaming="omit")
def omitted(request: HttpRequest) -> StreamingHttpResponse:
    Ran.again()
    return StreamingHttpResponse([b"a", b"b"], content_type="text/csv")


@idempotent
def file(request: HttpRequest) -> FileResponse:
    Ran.again()
    return FileResponse(open(__file__, "rb"))


@idempotent
def empty(request: HttpRequest) -> HttpResponse:
    Ran.again()
    return HttpResponse(status=204)


@exempt
def left_alone(request: HttpRequest) -> HttpResponse:
    return answer(request)


VIEWS: dict[str, Any] = {
    "bare": bare,
    "atomic": atomic,
    "optional": optional,
    "late": late,
    "failing": failing,
    "async": asynchronous,
    "dispatched": Dispatched.as_view(),
    "async-dispatched": AsyncDispatched.as_view(),
    "method": Method.as_view(),
    "streamed": streamed,
    "omitted": omitted,
    "file": file,
    "empty": empty,
    "left-alone": left_alone,
}
urlpatterns = [path(name, view, name=name) for name, view in VIEWS.items()]

Post = Callable[..., Any]


@pytest.fixture
def post(alice: Person) -> Post:
    def send(name: str, data: Any = None, key: str | None = "k1", **headers: str) -> Any:
        return alice.post(f"/{name}", data, key, headers=headers)

    return send


@pytest.mark.parametrize("atomic_requests", [False, True])
@pytest.mark.parametrize(
    "name", ["bare", "atomic", "late", "async", "dispatched", "async-dispatched", "optional", "method"]
)
@pytest.mark.django_db
def test_a_repeat_gets_the_first_answer(post: Post, name: str, atomic_requests: bool) -> None:
    if atomic_requests and name == "method":
        pytest.skip("a decorated method cannot opt out: tested on its own")
    connection.settings_dict["ATOMIC_REQUESTS"] = atomic_requests
    try:
        first, second = post(name), post(name)
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert (first.status_code, second.status_code) == (201, 201), first.content
    assert first.content == second.content
    assert second["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert second["Location"] == first["Location"] == "/things/1"
    assert second["Content-Type"] == first["Content-Type"]
    assert Ran.count == 1


@pytest.mark.django_db
def test_reordered_json_is_the_same_request(post: Post) -> None:
    post("bare", {"a": 1, "b": 2})
    assert post("bare", {"b": 2, "a": 1})["Idempotency-Replayed"] == "true"


@pytest.mark.django_db
def test_without_a_key(post: Post) -> None:
    assert post("bare", key=None).status_code == 400
    assert post("bare", key=None).json()["code"] == "idempotency_key_missing"
    unprotected = post("optional", key=None)
    assert (unprotected.status_code, unprotected.json()["active"]) == (201, False)
    assert IdempotencyKey.objects.count() == 0


@pytest.mark.django_db
def test_late_handlers_have_no_transaction_and_a_stable_derived_key(post: Post) -> None:
    body = post("late").json()
    record = IdempotencyKey.objects.get()
    assert body["derived"] == f"{record.id}-{record.namespace}-charge"
    assert body["open"] is False


@pytest.mark.parametrize(
    ("kind", "status", "then", "ran"),
    [("404", 404, 404, 1), ("403", 403, 403, 1), ("nothing", 503, 503, 2), ("crash", 500, 409, 1)],
)
@pytest.mark.django_db
def test_what_an_exception_means(post: Post, kind: str, status: int, then: int, ran: int) -> None:
    assert post("failing", {"raise": kind}).status_code == status
    assert User.objects.count() == 1, "the view's writes roll back"
    assert post("failing", {"raise": kind}).status_code == then
    assert Ran.count == ran


@pytest.mark.parametrize(("name", "stored"), [("streamed", True), ("file", True), ("omitted", False)])
@pytest.mark.django_db
def test_streams(post: Post, name: str, stored: bool) -> None:
    first = b"".join(post(name).streaming_content)
    again = post(name)
    assert (again.status_code, again.content == first) == ((200, True) if stored else (409, False))
    assert Ran.count == 1


@pytest.mark.django_db
def test_no_content_is_replayed_without_a_content_type(post: Post) -> None:
    first, second = post("empty"), post("empty")
    assert same_answer(first, second)


@pytest.mark.django_db(transaction=True)
def test_a_decorated_method_under_atomic_requests_says_what_is_wrong(post: Post) -> None:
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        response = post("method")
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert response.status_code == 500
    assert Ran.count == 0


@pytest.mark.django_db
def test_middleware_protects_what_is_not_decorated(post: Post, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django_idempotency.middleware.IdempotencyMiddleware"]
    with override_settings(MIDDLEWARE=settings.MIDDLEWARE):
        assert post("left-alone", key=None).status_code == 201
        assert post("bare").status_code == 201
        assert post("bare")["Idempotency-Replayed"] == "true"
