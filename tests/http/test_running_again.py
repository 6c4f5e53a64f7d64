"""A view in atomic mode that a deadlock rolled back runs again, on the request as it was."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test.client import encode_multipart
from django.urls import path
from rest_framework import serializers
from rest_framework.parsers import FileUploadParser, FormParser, JSONParser, MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from django_idempotency.decorators import idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.http.rest_views import Authenticated
from tests.kit.http import Person, Ran, same_answer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db, pytest.mark.vendor]

DEADLOCK = 1213  # MariaDB's number, known on every database


def store(what: str) -> str:
    """The domain write; the first one is the victim of a deadlock."""
    Group.objects.create(name=what)
    if Ran.again() == 1:
        raise OperationalError(DEADLOCK, "planned")
    return what


@idempotent(mode="atomic")
def upload(request: HttpRequest) -> HttpResponse:
    uploaded: Any = request.FILES["file"]
    return JsonResponse({"got": store(uploaded.read().decode())}, status=201)


@idempotent(mode="atomic")
def stream(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"got": store(json.load(request)["name"])}, status=201)


class Taking(IdempotentMixin, Authenticated):
    """Takes the parsed data apart."""

    idempotency = {"mode": "atomic"}
    parser_classes = [JSONParser, FormParser, MultiPartParser, FileUploadParser]

    def post(self, request: Request, filename: str = "") -> Response:
        taken: Any = request.data
        if hasattr(taken, "_mutable"):
            taken = request.data.copy() if not request.FILES else request.data
        given = taken.pop("file" if request.FILES else "name")
        given = given[0] if isinstance(given, list) else given
        return Response({"got": store(given if isinstance(given, str) else given.read().decode())}, 201)


urlpatterns = [
    path("upload", upload, name="upload"),
    path("stream", stream, name="stream"),
    path("taking", Taking.as_view(), name="taking"),
    path("taking/<str:filename>", Taking.as_view(), name="taking-file"),
]


def bodies() -> Iterator[tuple[str, bytes, str]]:
    file = SimpleUploadedFile("a.txt", b"money", "text/plain")
    form, of_form = encode_multipart("one", {"file": file, "line": "1"}), "multipart/form-data; boundary=one"
    yield "/upload", form, of_form
    yield "/stream", b'{"name": "money"}', "application/json"
    yield "/taking", b'{"name": "money"}', "application/json"
    yield "/taking", b"name=money", "application/x-www-form-urlencoded"
    yield "/taking", form, of_form
    yield "/taking/a.txt", b"money", "text/plain"


@pytest.mark.parametrize(("url", "body", "content_type"), list(bodies()))
def test_the_second_run_finds_what_the_first_one_found(alice: Person, url: str, body: bytes, content_type: str) -> None:
    first = alice.send(url, body, content_type)
    assert (first.status_code, Ran.count) == (201, 2), first.content
    assert first.json() == {"got": "money"}
    assert list(Group.objects.values_list("name", flat=True)) == ["money"]
    assert same_answer(first, alice.send(url, body, content_type))


class GroupSerializer(serializers.ModelSerializer[Group]):
    class Meta:
        model = Group
        fields = ("name",)


@pytest.mark.django_db(transaction=True)
def test_writes_that_cannot_run_again_leave_an_unknown_outcome(
    alice: Person, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A serializer is saved once: when `write` runs again, it refuses."""

    class Late(IdempotentMixin, Authenticated):
        idempotency = {"transaction": "late"}

        def post(self, request: Request) -> Response:
            serializer = GroupSerializer(data=request.data)
            serializer.is_valid(raise_exception=True)

            def write() -> Response:
                serializer.save()
                return Response({"got": store(serializer.data["name"] + " again")}, status=201)

            return request.idempotency.finish(write)  # type: ignore[attr-defined, no-any-return]

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Late.as_view(), name="it")]})
    told = [alice.post("/it", {"name": "money"}) for _ in range(2)]
    assert [(each.status_code, each.json()["code"]) for each in told] == [(409, "idempotency_outcome_unknown")] * 2
    assert not Group.objects.exists()
    assert "You cannot call `.save()` after accessing `serializer.data`" in caplog.text


def test_a_file_that_the_view_closed_stays_closed(alice: Person, settings: Any) -> None:
    @idempotent(mode="atomic")
    def closing(request: HttpRequest) -> HttpResponse:
        uploaded: Any = request.FILES["file"]
        with uploaded:
            return JsonResponse({"got": store(uploaded.read().decode())}, status=201)

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", closing, name="it")]})
    _url, body, content_type = next(bodies())
    assert alice.send("/it", body, content_type).status_code == 500
    assert not Group.objects.exists()
