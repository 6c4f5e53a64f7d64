"""Bodies in and out of DRF's views: forms, files, compression, the browsable API, and answers without one."""

import gzip
import json
import re
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import FileResponse, HttpResponse
from django.test.client import encode_multipart
from django.urls import path
from rest_framework.parsers import BaseParser, FileUploadParser, JSONParser, MultiPartParser
from rest_framework.permissions import BasePermission
from rest_framework.renderers import AdminRenderer, BaseRenderer, BrowsableAPIRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.http.rest_views import Authenticated, Groups, Thing, given
from tests.kit.http import KEY, Person, Ran, same_answer

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


class Upload(Thing):
    """Tells what it found in the form."""

    parser_classes = [MultiPartParser]

    def post(self, request: Request) -> Response:
        Ran.again()
        return Response({"fields": sorted(request.POST), "bytes": sum(len(f.read()) for f in request.FILES.values())})


class OptionalUpload(Upload):
    idempotency = {"required": False}


class Nested(BaseParser):
    """A parser of the project's own: a form of nested objects."""

    media_type = "multipart/form-data"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        parsed = MultiPartParser().parse(stream, media_type, parser_context)
        return {**parsed.data.dict(), "order": {"lines": [parsed.data["line"], parsed.files.get("file")]}}


class NestedUpload(Upload):
    parser_classes = [Nested]

    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again(), "line": given(request)["order"]["lines"][0]})


class Gzipped(JSONParser):
    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        return json.loads(gzip.decompress(stream.read()))


class Compressed(Thing):
    parser_classes = [Gzipped]

    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again(), "got": request.data})


class Raw(IdempotentMixin, Authenticated):
    parser_classes = [FileUploadParser]

    def post(self, request: Request, filename: str) -> Response:
        return Response({"run": Ran.again(), "bytes": given(request)["file"].size})


class Looks(BasePermission):
    """Reads the body before the view does."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return bool(given(request))


class LookedAt(Raw):
    permission_classes: Any = [Looks]


class Pipes(BaseRenderer):
    media_type = "text/pipes"
    format = "pipes"

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        return "|".join(f"{name}={value}" for name, value in sorted(data.items())).encode()


class Pages(Groups):
    renderer_classes = [JSONRenderer, BrowsableAPIRenderer, Pipes]


class AdminPages(Groups):
    renderer_classes = [AdminRenderer, JSONRenderer]


class Empty(Thing):
    def post(self, request: Request) -> Response:
        Ran.again()
        return Response(status=204)


class Plain(Thing):
    """Answers that are not DRF's own."""

    answers: dict[str, Callable[[], Any]] = {
        "bytes": lambda: HttpResponse(b"\x00\xff\r\n", content_type="application/octet-stream", status=202),
        "file": lambda: FileResponse(BytesIO(b"a file")),
        "secret": lambda: HttpResponse("1234", headers={"Cache-Control": "no-store"}),
    }

    def post(self, request: Request) -> Any:
        Ran.again()
        return self.answers[given(request)["kind"]]()


urlpatterns = [
    path("upload", Upload.as_view(), name="upload"),
    path("optional-upload", OptionalUpload.as_view(), name="optional-upload"),
    path("nested", NestedUpload.as_view(), name="nested"),
    path("compressed", Compressed.as_view(), name="compressed"),
    path("raw/<str:filename>", Raw.as_view(), name="raw"),
    path("looked-at/<str:filename>", LookedAt.as_view(), name="looked-at"),
    path("pages", Pages.as_view(), name="pages"),
    path("admin-pages", AdminPages.as_view(), name="admin-pages"),
    path("empty", Empty.as_view(), name="empty"),
    path("plain", Plain.as_view(), name="plain"),
]


def form(boundary: str = "one", size: int = 3, name: str = "a.txt", **fields: Any) -> tuple[bytes, str]:
    file = SimpleUploadedFile(name, b"x" * size, "text/plain")
    return encode_multipart(
        boundary, {"line": "1", "file": file, **fields}
    ), f"multipart/form-data; boundary={boundary}"


# Answers


def test_no_content_is_replayed_as_it_was(alice: Person) -> None:
    first, second = (alice.post("/empty") for _ in range(2))
    assert (first.status_code, first.content, "Content-Type" in second) == (204, b"", "Content-Type" in first)
    assert same_answer(first, second)


def test_bytes_are_replayed_as_they_were(alice: Person) -> None:
    first, second = (alice.post("/plain", {"kind": "bytes"}) for _ in range(2))
    assert first.content == b"\x00\xff\r\n"
    assert same_answer(first, second)


@pytest.mark.parametrize(("kind", "stored"), [("file", b"a file"), ("secret", None)])
def test_what_cannot_be_stored_is_not_replayed(alice: Person, kind: str, stored: bytes | None) -> None:
    first, second = (alice.post("/plain", {"kind": kind}) for _ in range(2))
    assert first.getvalue() in (b"a file", b"1234")
    assert (first.status_code, second.status_code) == (200, 409 if stored is None else 200)
    assert IdempotencyKey.objects.get().response_body == stored


# The browsable API


HTML = {"Accept": "text/html"}
TOKENS: list[str] = []


def page_form(alice: Person, name: str, **fields: str) -> Any:
    """As a browser sends it: each page has another mask around the secret of its CSRF token."""
    page = alice.client.get("/pages", headers=HTML).content.decode()
    (token,) = set(re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page))
    assert token not in TOKENS
    TOKENS.append(token)
    body = f"csrfmiddlewaretoken={token}&name={name}" + "".join(f"&{each}={value}" for each, value in fields.items())
    return alice.send("/pages", body, "application/x-www-form-urlencoded", key=None, headers=HTML)


def test_the_browsable_api_takes_the_key_from_a_form_and_stays_html(alice: Person) -> None:
    alice.client.handler.enforce_csrf_checks = True
    first = page_form(alice, "from a form", _idempotency_key=KEY)
    assert (first.status_code, first["Content-Type"]) == (201, "text/html; charset=utf-8")
    assert b"csrf" in first.content
    record = IdempotencyKey.objects.get()
    assert record.key == KEY
    assert record.response_body is None, "a page carries its reader's CSRF token"
    assert "csrf" not in record.response_headers.lower()
    again = page_form(alice, "from a form", _idempotency_key=KEY)
    assert (again.status_code, b"Done, response not stored" in again.content) == (409, True)
    assert page_form(alice, "from another form", _idempotency_key=KEY).status_code == 422
    assert Group.objects.count() == 1


def test_a_refusal_in_the_browsable_api_is_a_page(alice: Person) -> None:
    for refused in (page_form(alice, "no key"), page_form(alice, "x", _idempotency_key="")):
        assert (refused.status_code, refused["Content-Type"]) == (400, "text/html; charset=utf-8")
        assert b"idempotency_key_" in refused.content


def test_the_pages_of_the_admin_renderer_are_not_stored_either(alice: Person) -> None:
    response = alice.post("/admin-pages", {"name": "x"}, headers=HTML)
    assert response.status_code in (201, 303)
    assert IdempotencyKey.objects.get().response_body is None


def test_refusals_and_answers_use_the_projects_renderers(alice: Person) -> None:
    picky = {"Accept": "text/pipes"}
    first = alice.post("/pages", {"name": "x"}, headers=picky)
    assert first["Content-Type"] == "text/pipes; charset=utf-8"
    assert same_answer(first, alice.post("/pages", {"name": "x"}, headers=picky))
    refused = alice.post("/pages", {"name": "y"}, headers=picky)
    assert (refused.status_code, refused["Content-Type"]) == (422, "text/pipes; charset=utf-8")
    assert b"code=idempotency_key_reused" in refused.content


# Forms and files


@pytest.mark.parametrize("route", ["/upload", "/optional-upload", "/nested"])
def test_a_form_is_compared_by_its_parts_and_not_by_its_boundary(alice: Person, route: str) -> None:
    first = alice.send(route, *form("one"))
    assert first.status_code == 200, first.content
    assert same_answer(first, alice.send(route, *form("another")))
    for changed in (form(size=4), form(line="2"), form(name="b.txt")):
        assert alice.send(route, *changed).status_code == 422
    assert Ran.count == 1


@pytest.mark.parametrize("route", ["/upload", "/optional-upload"])
@pytest.mark.parametrize("header", [True, False], ids=["header", "field"])
def test_a_large_form_is_compared_as_well_and_reaches_the_view(
    alice: Person, settings: Any, header: bool, route: str
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = settings.FILE_UPLOAD_MAX_MEMORY_SIZE = 1000
    key, fields = (KEY, {}) if header else (None, {"_idempotency_key": KEY})
    first = alice.send(route, *form("one", size=100_000, **fields), key=key)
    assert (first.status_code, first.json()["bytes"]) == (200, 100_000)
    assert same_answer(first, alice.send(route, *form("two", size=100_000, **fields), key=key))
    assert alice.send(route, *form("two", size=100_001, **fields), key=key).status_code == 422


def test_the_key_of_a_form_is_not_part_of_what_it_means(alice: Person) -> None:
    first = alice.send("/upload", *form(_idempotency_key=KEY), key=None)
    assert first.status_code == 200
    assert alice.send("/upload", *form())["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("route", ["/upload", "/optional-upload", "/nested"])
def test_a_csrf_token_is_not_part_of_what_a_form_means(alice: Person, route: str) -> None:
    first = alice.send(route, *form(csrfmiddlewaretoken="one"))
    assert first.status_code == 200
    for again in (form(csrfmiddlewaretoken="another"), form()):
        assert same_answer(first, alice.send(route, *again))
    assert alice.send(route, *form(csrfmiddlewaretoken="one", other="field")).status_code == 422


@pytest.mark.parametrize("route", ["/upload", "/optional-upload", "/nested"])
def test_a_form_that_cannot_be_read_leaves_no_row(alice: Person, route: str) -> None:
    assert alice.send(route, b"not a form", "multipart/form-data").status_code == 400
    assert not IdempotencyKey.objects.exists()


def test_a_media_type_that_the_view_does_not_read_is_refused(alice: Person) -> None:
    assert alice.send("/compressed", *form()).status_code == 415
    assert not IdempotencyKey.objects.exists()


def test_compressed_bodies_are_compared_byte_for_byte(alice: Person) -> None:
    body, coded = gzip.compress(b'{"a": 1}', mtime=0), {"Content-Encoding": "gzip"}
    first = alice.send("/compressed", body, "application/json", headers=coded)
    assert first.json() == {"run": 1, "got": {"a": 1}}
    assert same_answer(first, alice.send("/compressed", body, "application/json", headers=coded))
    for other, headers in ((gzip.compress(b'{"a": 2}', mtime=0), coded), (body, {})):
        assert alice.send("/compressed", other, "application/json", headers=headers).status_code == 422


def test_a_raw_body_that_is_too_large_is_refused_and_leaves_no_row(alice: Person, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert alice.send("/raw/a.bin", b"x" * 1001, "application/octet-stream").status_code == 400
    assert not IdempotencyKey.objects.exists()
    first = alice.send("/raw/a.bin", b"x" * 1000, "application/octet-stream")
    assert first.json() == {"run": 1, "bytes": 1000}
    assert same_answer(first, alice.send("/raw/a.bin", b"x" * 1000, "application/octet-stream"))


def test_a_permission_may_read_the_body_first(alice: Person) -> None:
    first, second = (alice.send("/looked-at/a.bin", b"xxx", "application/octet-stream") for _ in range(2))
    assert first.json() == {"run": 1, "bytes": 3}
    assert same_answer(first, second)
