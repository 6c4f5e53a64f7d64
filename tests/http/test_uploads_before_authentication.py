"""Nobody's upload is parsed before the caller is known."""

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.urls import path
from rest_framework.authentication import BasicAuthentication, SessionAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import KEY, Person, Ran, atomic_requests

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]

READ: list[int] = []


class Counting(FileUploadHandler):
    def receive_data_chunk(self, raw_data: bytes, start: int) -> bytes:
        READ.append(len(raw_data))
        return raw_data

    def file_complete(self, file_size: int) -> None:
        return None


class Upload(IdempotentMixin, APIView):
    authentication_classes = (BasicAuthentication, SessionAuthentication)
    permission_classes = (IsAuthenticated,)
    idempotency: Any = {"required": False}

    def post(self, request: Request) -> Response:
        size = sum(file.size for file in request.FILES.values())
        data: Any = request.data
        answer = {"run": Ran.again(), "title": data.get("title"), "size": size}
        return Response({**answer, "protected": request.idempotency.active}, 201)  # type: ignore[attr-defined]


class ByMethod(Upload):
    idempotency = None

    @idempotent(required=False)
    def post(self, request: Request) -> Response:
        return super().post(request)


urlpatterns = [path("upload", Upload.as_view()), path("by-method", ByMethod.as_view())]
PLACES = pytest.mark.parametrize("where", ["/upload", "/by-method"])


@pytest.fixture(autouse=True)
def _handlers(settings: Any) -> None:
    READ.clear()
    settings.FILE_UPLOAD_HANDLERS = [f"{__name__}.Counting", "django.core.files.uploadhandler.MemoryFileUploadHandler"]


def send(who: Person, where: str, **more: Any) -> Any:
    """More than Django keeps in memory, so that nothing has read it before."""
    file = SimpleUploadedFile("a.bin", b"x" * 100_000)
    return who.client.post(where, {"title": "a", "file": file, **more.pop("data", {})}, **more)


@PLACES
@pytest.mark.parametrize("key", [{}, {"Idempotency-Key": KEY}])
def test_an_upload_of_an_anonymous_caller_is_not_parsed(
    anonymous: Person, settings: Any, where: str, key: dict[str, str]
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 50_000
    assert send(anonymous, where, headers=key).status_code == 401
    assert READ == []


@PLACES
@pytest.mark.parametrize("limit", [50_000, 10_000_000])
def test_a_form_without_a_key_runs_unprotected_and_complete(
    alice: Person, settings: Any, where: str, limit: int
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = limit
    answers = [send(alice, where).json() for _ in range(2)]
    assert answers == [{"run": run, "title": "a", "size": 100_000, "protected": False} for run in (1, 2)]
    assert IdempotencyKey.objects.count() == 0


@PLACES
def test_a_key_in_a_field_of_the_form_counts(alice: Person, where: str) -> None:
    answers = [send(alice, where, data={"_idempotency_key": KEY}).json() for _ in range(2)]
    assert answers == [{"run": 1, "title": "a", "size": 100_000, "protected": True}] * 2


@PLACES
def test_a_request_of_json_without_a_key_runs_unprotected(alice: Person, where: str) -> None:
    answers = [alice.post(where, {"title": "a"}, key=None).json() for _ in range(2)]
    assert [each["run"] for each in answers] == [1, 2]
    assert [each["title"] for each in answers] == ["a", "a"]


@PLACES
def test_an_unprotected_form_has_the_transaction_of_atomic_requests(
    alice: Person, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from django.contrib.auth.models import Group

    def failing(request: Any) -> Response:
        Group.objects.create(name="rolled back")
        raise LookupError

    monkeypatch.setattr(Ran, "again", lambda: failing(None))
    with atomic_requests():
        assert send(alice, where).status_code == 500
    assert not Group.objects.filter(name="rolled back").exists()
