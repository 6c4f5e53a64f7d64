"""Header values, charsets and principals that some part of the way cannot carry: never a bare 500."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import Client
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.parsers import JSONParser, MultiPartParser
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import KEY, Person, Ran

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__), pytest.mark.vendor]

FOLDED = {
    "form feed": "☃\x0c☃",
    "line separator": "☃\u2028☃",
    "next line": "☃\x85☃",
    "paragraph": "a\u2029☃",
    "plain": "a\x0cb\x00c",
}
UNSTORABLE = {"half a character": "\ud800", "NUL": "7\0"}


class Token:
    """What a JWT without a user row is: its subject is the primary key."""

    is_authenticated = True
    pk: Any = None


class ByToken(BaseAuthentication):
    def authenticate(self, request: Any) -> Any:
        return Token(), None


@idempotent(streaming="buffer")
def titled(request: HttpRequest) -> Any:
    Ran.again()
    kind = StreamingHttpResponse if "streamed" in request.GET else HttpResponse
    value = FOLDED[request.GET["kind"]]
    return kind(b"done", headers={"Location": "/things/1", "Content-Disposition": value})


@idempotent
def plain(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done", status=201)


@idempotent(required=False)
def optional(request: HttpRequest) -> HttpResponse:
    return HttpResponse("done", status=201)


def by_token(request: HttpRequest) -> HttpResponse:
    request.user = Token()  # type: ignore[assignment]
    return plain(request)


class Rest(IdempotentMixin, APIView):
    authentication_classes = (ByToken,)
    permission_classes = ()
    parser_classes = (MultiPartParser, JSONParser)

    def post(self, request: Any) -> HttpResponse:
        return HttpResponse("done", status=201)


urlpatterns = [
    path("titled", titled, name="titled"),
    path("plain", plain, name="plain"),
    path("plain/<path:rest>", lambda request, rest: plain(request), name="deep"),
    path("optional", optional, name="optional"),
    path("by-token", by_token, name="by-token"),
    path("rest", Rest.as_view(), name="rest"),
]


@pytest.mark.parametrize("streamed", ["", "&streamed"])
@pytest.mark.parametrize("kind", list(FOLDED))
def test_a_header_that_django_folds_is_replayed(alice: Person, kind: str, streamed: str) -> None:
    first, second = (alice.post(f"/titled?kind={kind}{streamed}") for _ in range(2))
    assert (first.status_code, second.status_code, Ran.count) == (200, 200, 1)
    assert second["Idempotency-Replayed"] == "true"
    assert first["Content-Disposition"] == second["Content-Disposition"]
    assert not set("\r\n\f\0") & set(second["Content-Disposition"])
    assert second["Location"] == "/things/1"


@pytest.mark.parametrize(
    "headers", ['[["X-Note","a\\nb"]]', '[["X-Note","a\\fb"]]', '[["Bad N\\u00e4me","c"]]', '[["X-Note","\\ud800"]]']
)
def test_a_stored_header_that_cannot_be_sent_is_dropped(alice: Person, headers: str) -> None:
    alice.post("/plain")
    stored = '[["Location","/things/1"],' + headers[1:]
    IdempotencyKey.objects.update(response_headers=stored)
    replay = alice.post("/plain")
    assert (replay.status_code, replay.content) == (201, b"done")
    assert replay["Location"] == "/things/1"
    assert "X-Note" not in replay


@pytest.mark.parametrize("charset", ["base64", "zlib", "idna", "undefined", "hex"])
@pytest.mark.parametrize("key", [KEY, None])
@pytest.mark.parametrize("name", ["plain", "optional", "rest"])
def test_a_form_in_no_text_encoding_is_a_bad_request(alice: Person, name: str, charset: str, key: Any) -> None:
    Token.pk = "7"
    body = b'--b\r\nContent-Disposition: form-data; name="caf\xc3\xa9"\r\n\r\n\xc3\xa9\r\n--b--\r\n'
    content_type = f"multipart/form-data; boundary=b; charset={charset}"
    refused = alice.send(f"/{name}", body, content_type, key=key)
    assert 400 <= refused.status_code < 500, refused.content
    assert IdempotencyKey.objects.count() == 0


@pytest.mark.parametrize("kind", list(UNSTORABLE))
@pytest.mark.parametrize("name", ["by-token", "rest"])
def test_a_principal_that_no_database_stores_is_refused(db: None, name: str, kind: str) -> None:
    Token.pk = UNSTORABLE[kind]
    client = Client(raise_request_exception=False)
    refused = client.post(f"/{name}", "{}", "application/json", headers={"Idempotency-Key": KEY})
    assert (refused.status_code, refused.json()["code"]) == (403, "idempotency_principal_missing")


@pytest.mark.parametrize("rest", ["%00", "%ff", "%ed%a0%80"])
def test_a_path_that_no_database_stores_does_not_matter(alice: Person, rest: str) -> None:
    first, second = (alice.post(f"/plain/{rest}") for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 201)
    assert second["Idempotency-Replayed"] == "true"
