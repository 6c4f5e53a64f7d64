"""What a client that got a 202 sees: pending, progress, the answer; and what everybody else sees: nothing."""

import json
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import include, path
from rest_framework.authentication import SessionAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.views import APIView

from django_idempotency import maintenance
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import Misplaced
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import perform
from django_idempotency.rest_framework import IdempotentMixin
from testproject.payments.models import LedgerEntry
from tests.kit.databases import nobody_answers
from tests.kit.exports import MESSAGES, STEPS, export
from tests.kit.http import KEY, Person, atomic_requests, stored
from tests.kit.operations import begin_anew
from tests.kit.rides import WORLD, Killed

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls("tests.kit.exports")]
AGO = timedelta(seconds=1)
ABSENT = f"/idempotency/operations/{uuid4()}/"


@pytest.fixture(autouse=True)
def _operations(settings: Any) -> None:
    begin_anew(settings)


def accepted(person: Person, path: str = "/exports", **more: Any) -> str:
    """The address that the 202 names."""
    response = person.post(path, **more)
    assert response.status_code == 202, response.content
    return str(response["Location"])


def change(**columns: Any) -> None:
    assert IdempotencyKey.objects.update(**columns) == 1


def test_the_first_request_and_every_later_one_get_the_same_202(alice: Person) -> None:
    first, second = alice.post("/exports"), alice.post("/exports")
    record = IdempotencyKey.objects.get()
    assert (first.status_code, first["Location"]) == (202, f"/idempotency/operations/{record.id}/")
    assert (first["Retry-After"], first["Cache-Control"]) == ("2", "no-store")
    assert first.json()["operation_ref"] == str(record.id)
    assert (second.status_code, second.content, dict(second.items())) == (202, first.content, dict(first.items()))
    assert [str(record.id)] == MESSAGES
    assert alice.post("/exports", {"another": "request"}).status_code == 422


def test_a_poll_reads_the_record_once(alice: Person) -> None:
    address = accepted(alice)
    with CaptureQueriesContext(connection) as sent:
        assert alice.client.get(address).status_code == 202
    assert len([query["sql"] for query in sent if "idempotency_key" in query["sql"]]) == 1


def test_a_poller_sees_pending_then_how_far_it_is_then_the_answer(alice: Person) -> None:
    address = accepted(alice)
    pending = alice.client.get(address)
    assert (pending.status_code, pending["Retry-After"], pending["Cache-Control"]) == (202, "2", "no-store")
    assert (pending.json()["status"], pending.json()["steps"]) == ("pending", [])

    WORLD.kill_at = "after row_2"
    with pytest.raises(Killed):
        perform(MESSAGES[0])
    running = alice.client.get(address).json()
    assert (running["status"], running["steps"], running["recovery_point"]) == ("in_progress", STEPS[:2], "row_2")
    assert running["progress"] == {"done": 2, "total": 3}

    change(locked_until=F("created_at") - AGO)
    maintenance.sweep()
    assert (alice.client.get(address).status_code, alice.client.get(address).json()["status"]) == (202, "unknown")

    perform(MESSAGES[0])
    done, again = alice.client.get(address), alice.post("/exports")
    entry = LedgerEntry.objects.get(reference="asked for")
    shown = stored(done)
    assert (shown.status_code, json.loads(shown.content)) == (201, {"title": "may", "entry": entry.pk})
    assert (shown["Location"], shown["Content-Type"]) == ("/exports/may", "application/json")
    assert done.json()["status"] == "completed"
    assert "Location" not in done
    assert (again.status_code, again.content) == (201, shown.content), "the same key gets the same answer"


def test_an_async_view_defers_too(alice: Person) -> None:
    accepted(alice, "/async")
    assert perform(MESSAGES[0]) == "landed"


@pytest.mark.parametrize("kind", ["bob", "nobody", "a wrong id", "no id"])
def test_what_is_not_yours_is_not_there(alice: Person, kind: str) -> None:
    address = accepted(alice)
    asking = {"bob": Person("bob"), "nobody": Person()}.get(kind, alice)
    foreign = {"a wrong id": ABSENT, "no id": "/idempotency/operations/none/"}.get(kind, address)
    refused, absent = asking.client.get(foreign), asking.client.get(ABSENT)
    assert refused.status_code == absent.status_code == 404
    assert (refused.content, dict(refused.items())) == (absent.content, dict(absent.items()))
    assert refused.json()["code"] == "idempotency_operation_not_found"


@pytest.mark.parametrize(("request_path", "status"), [("/exports", 409), ("", 404)])
def test_of_what_was_not_deferred_only_requests_have_such_an_address(
    alice: Person, request_path: str, status: int
) -> None:
    address = accepted(alice)
    change(deferred=False, request_path=request_path, status="failed_retryable", locked_until=None)
    assert alice.client.get(address).status_code == status


def test_the_projects_tokens_are_asked_as_well_as_the_session(alice: Person) -> None:
    """A decorator of a plain view may know them; the session's user is asked for as well."""
    address = accepted(alice)
    users = [User.objects.get(username=person.user.username) for person in (alice, Person("bob")) if person.user]
    token, other = (Token.objects.create(user=user).key for user in users)

    def by(key: str, client: Client) -> int:
        return client.get(address, headers={"Authorization": f"Token {key}"}).status_code

    assert [by(key, Client()) for key in (token, other, "wrong")] == [202, 404, 404]
    assert Client().get(ABSENT, headers={"Authorization": "Token wrong"}).status_code == 404
    assert by("wrong", alice.client) == 202


def test_a_project_may_have_no_anonymous_user(alice: Person, settings: Any) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "UNAUTHENTICATED_USER": None}
    address = accepted(alice)
    assert (alice.client.get(address).status_code, Client().get(address).status_code) == (202, 404)


def test_work_of_callers_without_credentials_is_for_whoever_knows_its_address(alice: Person) -> None:
    address = accepted(Person(), "/anonymous")
    assert Person().client.get(address).status_code == 202
    assert alice.client.get(address).status_code == 202


def test_an_address_that_could_be_guessed_is_not_there(alice: Person) -> None:
    address = accepted(Person(), "/anonymous", key="short")
    assert Person().client.get(address).status_code == 404


def test_an_answer_past_its_retention_is_gone(alice: Person) -> None:
    address = accepted(alice)
    perform(MESSAGES[0])
    change(expires_at=F("created_at") - AGO)
    gone = alice.client.get(address)
    assert (gone.status_code, gone.json()["code"]) == (410, "idempotency_key_expired")
    change(audit_seconds=60)
    assert maintenance.reap()["expired"] == 1
    assert alice.client.get(address).content == gone.content
    change(audit_seconds=None, expires_at=F("created_at") - AGO)
    maintenance.reap()
    assert alice.client.get(address).status_code == 404


def test_a_dead_letter_and_a_dismissal_say_what_they_are(alice: Person) -> None:
    address = accepted(alice)
    change(status="dead_letter", locked_until=None, expires_at=None)
    dead, again = alice.client.get(address), alice.post("/exports")
    assert (dead.status_code, dead.json()["code"], dead.json()["safe_new_key"]) == (
        409,
        "idempotency_outcome_unknown",
        False,
    )
    assert (again.status_code, again.json()["code"]) == (409, "idempotency_outcome_unknown")
    change(status="failed_retryable", wrote=False)
    dismissed = alice.client.get(address)
    assert (dismissed.status_code, dismissed.json()["code"]) == (409, "idempotency_not_executed")


def test_the_status_of_work_that_no_worker_took(alice: Person) -> None:
    address = accepted(alice)
    change(expires_at=F("created_at") - AGO, wrote=False)
    maintenance.reap()
    failed = stored(alice.client.get(address))
    assert (failed.status_code, json.loads(failed.content)["code"]) == (408, "idempotency_work_abandoned")


def test_only_reading_is_allowed(alice: Person) -> None:
    address = accepted(alice)
    head, options = alice.client.head(address), alice.client.options(address)
    assert (head.status_code, head.content, head["Retry-After"]) == (202, b"", "2")
    assert (options.status_code, options["Allow"]) == (200, "GET, HEAD, OPTIONS")
    assert {alice.client.generic(method, address).status_code for method in ("POST", "PUT", "DELETE")} == {405}


@pytest.mark.parametrize("accept", ["text/csv", "text/html", "application/xml"])
def test_whatever_is_accepted_the_answer_is_the_stored_one(alice: Person, accept: str) -> None:
    address = accepted(alice)
    perform(MESSAGES[0])
    assert b"may" in stored(alice.client.get(address, headers={"Accept": accept})).content


def test_a_scope_of_the_endpoint_or_of_the_project_tells_whose_work_it_is(alice: Person, settings: Any) -> None:
    assert alice.client.get(accepted(alice, "/tenant")).status_code == 202
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "SCOPE": "tests.kit.exports.tenant"}
    address = accepted(alice, key="under-the-projects-scope")
    assert alice.client.get(address).status_code == 202
    assert IdempotencyKey.objects.filter(principal="tenant:acme").count() == 2


def test_work_that_nobody_can_be_asked_about_has_no_address(alice: Person, caplog: pytest.LogCaptureFixture) -> None:
    """Its developer is told once, and its clients send the request again."""
    assert "Location" not in alice.post("/closed")
    assert "Location" not in alice.post("/closed")
    assert [each.getMessage().count("receipts=True") for each in caplog.records if "Location" in each.getMessage()] == [
        1
    ]


def test_a_handler_in_one_transaction_cannot_hand_over(alice: Person) -> None:
    with pytest.raises(Misplaced, match="defer"):
        raised(alice, "/early")
    assert MESSAGES == []


def test_without_a_key_there_is_nothing_to_hand_over(alice: Person) -> None:
    with pytest.raises(Misplaced, match="needs a key"):
        raised(alice, "/optional", key=None)


def raised(person: Person, path: str, key: str | None = KEY) -> None:
    person.client.raise_request_exception = True
    person.post(path, key=key)


def test_it_is_no_part_of_a_schema_that_it_would_spoil(capsys: pytest.CaptureFixture[str]) -> None:
    generators = pytest.importorskip(
        "drf_spectacular.generators", reason="NOT TESTED: drf-spectacular is not installed"
    )
    schema = generators.SchemaGenerator().get_schema(request=None, public=True)
    assert not [path for path in schema["paths"] if "operations" in path]
    assert "OperationView" not in capsys.readouterr().err


@pytest.mark.parametrize("around", [False, True])
def test_a_store_that_does_not_answer(client: Client, around: bool) -> None:
    """Also where Django would open a transaction before the view."""
    with atomic_requests(around), nobody_answers():
        answer = client.get(ABSENT)
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")


def test_a_session_alone_is_enough_where_there_is_no_rest_framework(alice: Person, rf: Any) -> None:
    from django_idempotency.http.views import OperationView

    reference = accepted(alice).split("/")[-2]
    view = OperationView.as_view()
    mine, other = rf.get("/"), rf.get("/")
    mine.user, other.user = alice.user, Person("bob").user
    assert (view(mine, ref=reference).status_code, view(other, ref=reference).status_code) == (202, 404)
    assert (view(rf.head("/"), ref=reference).status_code, view(rf.post("/"), ref=reference).status_code) == (404, 405)


# `authorize` of the endpoint that took the work

ALLOWED = {"alice": True}


def may_see(request: HttpRequest, record: Any) -> bool:
    assert record.reply is not None
    return ALLOWED.get(request.user.get_username(), False)


@idempotent(transaction="late", authorize=may_see)
def ask_with_permission(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(export, title="may")  # type: ignore[attr-defined,no-any-return]


class AskRest(IdempotentMixin, APIView):
    authentication_classes = (SessionAuthentication,)
    idempotency = {"transaction": "late", "authorize": may_see, "operation": "exports.rest"}

    def post(self, request: Any) -> HttpResponse:
        return request._request.idempotency.defer(export, title="may")  # type: ignore[no-any-return]


class Urls:
    urlpatterns = [
        path("idempotency/", include("django_idempotency.urls")),
        path("plain", ask_with_permission, name="plain"),
        path("rest", AskRest.as_view(), name="rest"),
        path("partial", partial(ask_with_permission)),
    ]


class UrlsWithout:
    urlpatterns = Urls.urlpatterns[:1]


@pytest.mark.parametrize("name", ["plain", "rest", "partial"])
def test_a_withdrawn_permission_hides_the_answer_at_the_address_too(
    alice: Person, settings: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ROOT_URLCONF = Urls
    address = accepted(alice, f"/{name}")
    monkeypatch.setitem(ALLOWED, "alice", False)
    assert alice.client.get(address).status_code == 202, "how far it is holds no answer"
    perform(MESSAGES[0])
    refused, again = alice.client.get(address), alice.post(f"/{name}")
    assert (refused.status_code, again.status_code) == (403, 403)
    assert b"may" not in refused.content
    monkeypatch.setitem(ALLOWED, "alice", True)
    assert b"may" in stored(alice.client.get(address)).content


def test_without_its_endpoint_nobody_can_say_who_may_see_the_answer(alice: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = Urls
    address = accepted(alice, "/plain")
    perform(MESSAGES[0])
    settings.ROOT_URLCONF = UrlsWithout
    assert alice.client.get(address).status_code == 404


def test_a_long_principal_owns_its_work_and_its_beginning_owns_nothing(alice: Person, settings: Any) -> None:
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "SCOPE": lambda request: request.headers.get("X-Who")}
    owner, prefix = "o" * 300, "o" * 255
    address = accepted(alice, headers={"X-Who": owner})
    assert alice.client.get(address, headers={"X-Who": owner}).status_code == 202
    assert alice.client.get(address, headers={"X-Who": prefix}).status_code == 404
