"""The middleware protects plain views, and leaves alone what decides for itself."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.template import engines
from django.template.response import TemplateResponse
from django.test.client import encode_multipart
from django.urls import path
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.decorators import exempt, idempotent
from django_idempotency.models import IdempotencyKey
from tests.kit.http import MIDDLEWARE, Person, Ran, atomic_requests, bare_wrapper, same_answer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


def plain(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


def page(request: HttpRequest) -> HttpResponse:
    return TemplateResponse(request, engines["django"].from_string("run {{ run }}"), {"run": Ran.again()})


class Methods(View):
    """One method decides for itself, one is exempt, one is neither."""

    http_method_names = ["post", "patch", "put"]

    @idempotent(operation="its own")
    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)

    @exempt
    def patch(self, request: HttpRequest) -> HttpResponse:
        return plain(request)


class Undecided(View):
    def post(self, request: HttpRequest) -> HttpResponse:
        return plain(request)

    def get(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse({"active": request.idempotency.active})  # type: ignore[attr-defined]


class Rest(APIView):
    permission_classes = [IsAuthenticated]

    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()})


@exempt
def reading(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"bytes": len(request.read())})


def broken(request: HttpRequest) -> HttpResponse:
    raise LookupError("planned")


VIEWS: dict[str, Any] = {
    "plain": plain,
    "page": page,
    "undecided": Undecided.as_view(),
    "methods": Methods.as_view(),
    "exempt": csrf_exempt(bare_wrapper(exempt(bare_wrapper(plain)))),
    "rest": csrf_exempt(bare_wrapper(Rest.as_view())),
    "twice": idempotent(operation="outer")(csrf_exempt(idempotent(operation="inner")(bare_wrapper(plain)))),
    "broken": broken,
    "reading": reading,
}
urlpatterns = [path(name, view, name=name) for name, view in VIEWS.items()]


@pytest.fixture(autouse=True)
def _installed(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]


@pytest.mark.parametrize("around", [False, True], ids=["plain", "atomic requests"])
@pytest.mark.parametrize("route", ["/plain", "/page", "/undecided"])
def test_undecided_views_are_protected(alice: Person, route: str, around: bool) -> None:
    with atomic_requests(around):
        first, second = (alice.post(route) for _ in range(2))
    assert same_answer(first, second)
    assert (Ran.count, IdempotencyKey.objects.get().operation) == (1, route[1:])


def test_a_key_is_required_unless_the_settings_say_otherwise(alice: Person, settings: Any) -> None:
    assert alice.post("/plain", key=None).status_code == 400
    settings.IDEMPOTENCY = {"REQUIRED": False}
    assert alice.post("/plain", key=None).status_code == 201


def test_other_methods_go_their_usual_way(alice: Person) -> None:
    assert alice.client.get("/undecided").json() == {"active": False}
    assert alice.post("/plain", method="PUT").status_code == 201
    assert not IdempotencyKey.objects.exists()


def test_a_decorated_method_keeps_its_policy_and_an_exempt_one_is_left_alone(alice: Person) -> None:
    first, second = (alice.post("/methods") for _ in range(2))
    assert same_answer(first, second)
    assert [alice.post("/methods", method="PATCH").json() for _ in range(2)] == [{"run": 2}, {"run": 3}]
    assert [record.operation for record in IdempotencyKey.objects.all()] == ["its own"]


def test_an_exempt_view_is_left_alone_behind_any_wrapper(alice: Person) -> None:
    assert [alice.post("/exempt").json() for _ in range(2)] == [{"run": 1}, {"run": 2}]


def test_the_upload_of_an_exempt_view_is_left_alone_too(alice: Person, settings: Any) -> None:
    """To look for a key in a form would read it."""
    settings.IDEMPOTENCY = {"REQUIRED": False}
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    body = encode_multipart("one", {"file": SimpleUploadedFile("a.txt", b"x" * 1000)})
    found = alice.send("/reading", body, "multipart/form-data; boundary=one", key=None)
    assert found.json() == {"bytes": len(body)}


def test_a_rest_view_is_left_alone_behind_any_wrapper(anonymous: Person) -> None:
    """Around it a repeat would be answered before its authentication."""
    refused = anonymous.post("/rest")
    assert (refused.status_code, refused["Content-Type"], Ran.count) == (401, "application/json", 0)


def test_what_is_protected_twice_is_claimed_once(alice: Person) -> None:
    first, second = (alice.post("/twice") for _ in range(2))
    assert (first.status_code, Ran.count) == (201, 1)
    assert same_answer(first, second)
    assert IdempotencyKey.objects.get().operation == "outer"


def test_an_error_is_doubt_and_goes_on_to_the_project(alice: Person) -> None:
    alice.client.raise_request_exception = True
    with pytest.raises(LookupError, match="planned"):
        alice.post("/broken")
    assert IdempotencyKey.objects.get().status == "unknown"


@dataclass
class Bound:
    """Equal by its fields, and therefore without a hash."""

    status: int

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return JsonResponse({"run": Ran.again()}, status=self.status)


def test_a_view_without_a_hash_is_protected_too(alice: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Bound(201), name="it")]})
    first, second = alice.post("/it"), alice.post("/it")
    assert (first.status_code, Ran.count) == (201, 1)
    assert same_answer(first, second)


def test_routes_that_bind_arguments_have_operations_of_their_own(alice: Person, settings: Any) -> None:
    def one(request: HttpRequest, status: int) -> HttpResponse:
        return JsonResponse({"run": Ran.again()}, status=status)

    def other(request: HttpRequest, status: int) -> HttpResponse:
        return one(request, status)

    routes = [path("one", partial(partial(one), status=201)), path("other", partial(other, status=201))]
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": routes})
    assert [alice.post(route).status_code for route in ("/one", "/other")] == [201, 201]
    operations = set(IdempotencyKey.objects.values_list("operation", flat=True))
    assert operations == {f"{each.__module__}.{each.__qualname__}" for each in (one, other)}


def test_a_redirect_that_is_replayed_can_be_followed(alice: Person, settings: Any) -> None:
    def moved(request: HttpRequest) -> HttpResponse:
        return redirect("/elsewhere")

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", moved, name="it")]})
    assert [alice.post("/it").url for _ in range(2)] == ["/elsewhere"] * 2
