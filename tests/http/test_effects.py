"""What clients are told about the effect of a request is true, so that nobody who follows it pays twice."""

from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import include, path

from django_idempotency import STRIPE, maintenance
from django_idempotency.core.replies import Reply
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from django_idempotency.reconciliation import NotLanded, resolve
from django_idempotency.testing import retention_over
from tests.kit.http import KEY, Person, Ran

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__), pytest.mark.vendor]
NOW = timedelta(0)


def pay(request: HttpRequest) -> HttpResponse:
    status = int(request.GET.get("status", 201))
    return JsonResponse({"id": Ran.again()}, status=status, headers={"Location": f"/payments/{Ran.count}"})


def charge(request: HttpRequest) -> HttpResponse:
    """Charge, and lose the provider's answer."""
    request.idempotency.derive("charge")  # type: ignore[attr-defined]
    Ran.again()
    raise ConnectionResetError("planned")


def be_down(request: HttpRequest) -> HttpResponse:
    raise NotExecuted("planned")


@operation(name="effects-export")
def export(op: Op) -> Reply:
    raise NotImplementedError


def accept(request: HttpRequest) -> HttpResponse:
    """Accept work, after a charge, with writes, or with neither."""
    mine: Any = request.idempotency  # type: ignore[attr-defined]
    trace = request.GET["trace"]
    if trace == "derived":
        mine.derive("charge")
    return mine.defer(export, write=dict if trace == "wrote" else None)  # type: ignore[no-any-return]


@operation(name="effects-booking")
def book(op: Op) -> Reply:
    """Book, and lose the process between two steps."""
    op.phase("booked", dict)
    raise ConnectionResetError("planned")


def run_booking(request: HttpRequest) -> HttpResponse:
    return request.idempotency.run(book)  # type: ignore[attr-defined, no-any-return]


def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse([f"{Ran.again()};", "rest"])


def secret(request: HttpRequest) -> HttpResponse:
    headers = {"Cache-Control": "no-store", "Location": "/cards/7"}
    return JsonResponse({"secret": Ran.again()}, status=201, headers=headers)


SOON: dict[str, Any] = {"attempts_span": NOW, "attempts": 2}
keyed = partial(idempotent, receipts=True)
urlpatterns = [
    path("pay", keyed(operation="pay", after_expiry="gone", expiry="soft")(pay)),
    path("charge", keyed(operation="charge", transaction="late", on_error="release", **SOON)(charge)),
    path("down", keyed(operation="down", **SOON)(be_down)),
    path("accept", keyed(operation="accept", transaction="late")(accept)),
    path("book", keyed(operation="book", transaction="late")(run_booking)),
    path("refuse", keyed(operation="refuse", store=())(pay)),
    path("atomic", keyed(operation="atomic", mode="atomic")(pay)),
    path("shared", keyed(operation="shared", share_anonymous=True)(pay)),
    path("stream", keyed(operation="stream")(stream)),
    path("secret", keyed(operation="secret")(secret)),
    path("stripe-secret", keyed(operation="stripe-secret", profile=STRIPE)(secret)),
    path("idempotency/", include("django_idempotency.urls")),
]


def ask(person: Person, where: str) -> Any:
    return person.client.get("/idempotency/keys/", {"path": where}, headers={"Idempotency-Key": KEY})


def told(response: Any) -> tuple[int, str, str, bool]:
    body = response.json()
    return response.status_code, body["code"].removeprefix("idempotency_"), body["effect"], body["safe_new_key"]


def record() -> IdempotencyKey:
    return IdempotencyKey.objects.with_time().get()


@pytest.mark.parametrize(("status", "effect"), [(201, "done"), (402, "none"), (500, "possible")])
def test_a_changed_request_is_told_what_became_of_the_first(alice: Person, status: int, effect: str) -> None:
    """An update of an app may add a member between a try and its retry."""
    first = alice.post(f"/pay?status={status}")
    refused = alice.post(f"/pay?status={status}", {"sent_at": "later"})
    safe = effect == "none"
    assert told(refused) == (422, "key_reused_with_different_payload", effect, safe)
    assert refused.json().get("first_status") == (201 if effect == "done" else None)
    assert Ran.count == 1
    if effect == "done":
        link = refused["Link"].partition(">")[0].removeprefix("<")
        assert alice.client.get(urlsplit(link).path).json()["response"]["body"] == first.content.decode()


@pytest.mark.parametrize("by", ["receipt", "retry"])
def test_an_expired_success_is_no_reason_for_a_new_key(alice: Person, by: str) -> None:
    alice.post("/pay")
    retention_over(record())
    gone = ask(alice, "/pay") if by == "receipt" else alice.post("/pay")
    assert told(gone) == (410, "key_expired", "done", False)
    assert gone.json()["first_status"] == 201


def test_released_attempts_that_derived_a_key_end_as_a_dead_letter(alice: Person) -> None:
    """`on_error='release'` says that running again is harmless; a new key has another downstream key."""
    for _ in range(2):
        assert alice.post("/charge").status_code == 500
    told_then = told(alice.post("/charge"))
    assert (told_then, Ran.count) == ((409, "outcome_unknown", "possible", False), 2)
    assert (record().status, record().last_error_code) == ("dead_letter", "attempts_exhausted")
    assert told(ask(alice, "/charge")) == (409, "outcome_unknown", "possible", False)


def test_attempts_that_were_proven_not_executed_end_with_a_safe_new_key(alice: Person) -> None:
    for _ in range(2):
        assert alice.post("/down").status_code == 503
    assert told(alice.post("/down")) == (500, "attempts_exhausted", "none", True)


@pytest.mark.parametrize("trace", ["derived", "wrote", "neither"])
def test_only_work_without_any_trace_is_abandoned(alice: Person, trace: str) -> None:
    assert alice.post(f"/accept?trace={trace}").status_code == 202
    retention_over(record())
    maintenance.reap()
    IdempotencyKey.objects.filter(status="failed").update(expires_at=None)
    again, receipt = alice.post(f"/accept?trace={trace}"), ask(alice, "/accept")
    if trace == "neither":
        assert told(again) == (408, "work_abandoned", "none", True)
        assert (receipt.json()["effect"], receipt.json()["response"]["status"]) == ("none", 408)
    else:
        assert told(again) == told(receipt) == (409, "outcome_unknown", "possible", False)


def test_work_whose_acceptance_wrote_is_not_dismissed_because_the_view_would_write_again(alice: Person) -> None:
    alice.post("/accept?trace=wrote")
    past = record().created_at - timedelta(hours=1)
    IdempotencyKey.objects.update(status="dead_letter", locked_until=None, expires_at=None, grace_until=past)
    assert resolve(record().id, NotLanded(), by="ops", reason="seen", operator=True) == "overtaken"
    assert record().status == "dead_letter"


def test_a_dismissed_operation_that_has_begun_is_continued_with_its_key(alice: Person) -> None:
    assert alice.post("/book").status_code == 500
    past = record().created_at - timedelta(hours=1)
    IdempotencyKey.objects.update(grace_until=past)
    assert resolve(record().id, NotLanded(), by="ops", reason="no trace", operator=True) == "not_executed"
    answers = [ask(alice, "/book"), alice.post("/book", {"sent_at": "later"})]
    assert [each.json()["effect"] for each in answers] == ["possible", "possible"]
    assert not any(each.json()["safe_new_key"] or "no effect" in each.json()["detail"] for each in answers)
    assert "Send the same request again" in answers[0].json()["detail"]


@pytest.mark.parametrize("where", ["pay", "atomic"])
def test_where_no_record_is_found_a_request_may_still_be_on_its_way(alice: Person, where: str) -> None:
    """In atomic mode there is no record before the COMMIT."""
    absent = ask(alice, f"/{where}")
    assert told(absent) == (404, "operation_not_found", "possible", False)
    assert "on its way" in absent.json()["detail"]


@pytest.mark.parametrize("path", ["/secret", "/stripe-secret"])
def test_a_success_that_cannot_be_stored_is_never_replayed_as_an_empty_one(
    alice: Person, path: str, caplog: Any
) -> None:
    first = alice.post(path)
    assert first.json() == {"secret": 1}
    assert len([each for each in caplog.messages if "cannot be replayed" in each]) == 1
    again, receipt = alice.post(path), ask(alice, path)
    assert (again.status_code, again["Location"], Ran.count) == (409, "/cards/7", 1)
    assert again.headers.get("Idempotency-Replayed") is None
    if path == "/secret":
        assert told(again) == (409, "response_not_stored", "done", False)
        assert again.json()["first_status"] == 201
    else:
        assert again.json()["error"]["code"] == "idempotency_response_not_stored"
    assert (receipt.json()["effect"], receipt.json()["response"]["body"]) == ("done", None)
    alice.post(path, key="another-key-of-the-same-operation")
    assert len([each for each in caplog.messages if "cannot be replayed" in each]) == 1, "once per operation"


def test_a_stream_is_stored_unless_it_is_too_long(alice: Person) -> None:
    first, again = alice.post("/stream"), alice.post("/stream")
    assert b"".join(first.streaming_content) == again.content == b"1;rest"


def test_a_refusal_that_is_not_stored_uses_up_no_attempt(alice: Person) -> None:
    """The view's own 422 comes each time, however often the request is sent."""
    statuses = [alice.post("/refuse?status=422").status_code for _ in range(4)]
    assert statuses == [422] * 4


def test_credentials_that_name_no_caller_are_said_to_be_the_reason(anonymous: Person) -> None:
    refused = anonymous.post("/shared", headers={"Authorization": "Bearer expired"})
    assert (refused.status_code, refused.json()["code"]) == (403, "idempotency_principal_missing")
    assert "Send valid credentials, or none." in refused.json()["detail"]


def test_a_503_says_what_to_do(alice: Person) -> None:
    assert "with the same key, after the seconds in Retry-After" in alice.post("/down").json()["detail"]
