"""One span for each protected request and each run of a maintenance job, with what was decided and the record."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.http import HttpRequest, JsonResponse
from django.test import Client
from django.urls import path
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from django_idempotency import maintenance
from django_idempotency.contrib import opentelemetry
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from tests.kit.records import age, claimed

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]
KEPT_SECRET = "the account is 4242"
downstream: list[Any] = []


def answer(request: HttpRequest) -> JsonResponse:
    downstream.append(trace.get_current_span())
    if request.GET.get("fail"):
        raise ConnectionError(KEPT_SECRET)
    return JsonResponse({"paid": True}, status=201)


@idempotent(mode="leased", operation="tests.spans", share_anonymous=True)
def leased(request: HttpRequest) -> JsonResponse:
    return answer(request)


@idempotent(mode="atomic", operation="tests.spans", share_anonymous=True)
def atomic(request: HttpRequest) -> JsonResponse:
    return answer(request)


@idempotent(mode="leased", operation="tests.spans", share_anonymous=True)
async def in_async(request: HttpRequest) -> JsonResponse:
    return answer(request)


urlpatterns = [path("leased/", leased), path("atomic/", atomic), path("async/", in_async)]
each_mode = pytest.mark.parametrize("mode", ["leased", "atomic"])


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    made = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(made))
    opentelemetry.install_spans(provider)
    downstream.clear()
    yield made
    opentelemetry.remove_spans()


def post(url: str, key: str, body: Any = None) -> int:
    client = Client(raise_request_exception=False)
    headers = {"Idempotency-Key": key}
    return client.post(url, body or {}, content_type="application/json", headers=headers).status_code


def told(span: ReadableSpan) -> dict[str, Any]:
    return {name.removeprefix("idempotency."): value for name, value in (span.attributes or {}).items()}


@each_mode
def test_a_request_its_replay_and_a_mismatch(exporter: InMemorySpanExporter, mode: str) -> None:
    key = str(uuid4())
    assert [post(f"/{mode}/", key), post(f"/{mode}/", key), post(f"/{mode}/", key, {"a": 1})] == [201, 201, 422]
    record = {"operation": "tests.spans", "mode": mode, "record": str(IdempotencyKey.objects.get().id)}
    first, replay, mismatch = exporter.get_finished_spans()
    assert {span.name for span in (first, replay, mismatch)} == {"idempotency tests.spans"}
    assert told(first) == {**record, "decision": "execute", "state": "completed"}
    assert told(replay) == {**record, "decision": "replay", "state": "completed"}
    assert told(mismatch) == {**record, "decision": "mismatch"}


@pytest.mark.parametrize("mode", ["leased", "atomic", "async"])
def test_what_the_view_calls_is_inside_the_span(exporter: InMemorySpanExporter, mode: str) -> None:
    assert post(f"/{mode}/", str(uuid4())) == 201
    (span,) = exporter.get_finished_spans()
    assert [each.get_span_context() for each in downstream] == [span.get_span_context()]
    assert told(span)["state"] == "completed"


def test_an_exception_is_named_by_its_class_alone(exporter: InMemorySpanExporter) -> None:
    key = str(uuid4())
    assert [post("/leased/?fail=1", key), post("/leased/?fail=1", key)] == [500, 409]
    failed, refused = exporter.get_finished_spans()
    assert told(failed)["state"] == "unknown"
    assert failed.status.description == "ConnectionError"
    assert told(refused)["decision"] == "outcome_unknown"
    assert not any(KEPT_SECRET in span.to_json() or key in span.to_json() for span in (failed, refused))


def test_a_request_without_a_key_has_no_span(exporter: InMemorySpanExporter) -> None:
    assert Client().post("/leased/", {}).status_code == 400
    assert exporter.get_finished_spans() == ()


def test_a_run_of_a_job_has_its_counts(exporter: InMemorySpanExporter) -> None:
    age(claimed(), "locked_until")
    maintenance.sweep()
    (span,) = exporter.get_finished_spans()
    assert span.name == "idempotency sweep"
    assert told(span) == {"job": "sweep", "unknown": 1}
