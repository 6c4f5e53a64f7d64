"""A key that is sent with a different request: what the client is told, and what operators find."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency import STRIPE, FingerprintRule, Profile
from django_idempotency.core.audit import Kind
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import KeyReused
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.once import once
from django_idempotency.store.events import MISMATCH_PAUSE, MOST_MISMATCHES, list_mismatches
from tests.kit.http import KEY, Person, Ran

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

METHODS = ("POST", "PATCH")
PLAIN = "application/json"
BODY = '{"amount": 1}'


def answer(request: HttpRequest, **arguments: Any) -> HttpResponse:
    Ran.again()
    return HttpResponse(b"done", status=201)


def view(name: str, **policy: Any) -> Any:
    return path(f"{name}/<text>", idempotent(methods=METHODS, **policy)(answer), name=name)


urlpatterns = [
    view("atomic", mode="atomic"),
    view("leased", mode="leased"),
    view("headers", mode="atomic", fingerprint=FingerprintRule(headers=("x-currency",))),
    view("bodiless", mode="atomic", fingerprint=FingerprintRule(body=False)),
    view("custom", mode="atomic", fingerprint=FingerprintRule(custom=lambda parts: parts.body)),
    view("stripe", mode="atomic", profile=STRIPE),
    view("open", mode="atomic", share_anonymous=True),
    view("reshaped", mode="atomic", profile=Profile(name="own", reshape=lambda problem: {"why": problem["detail"]})),
]


def send(person: Person, where: str = "/leased/1", body: str = BODY, kind: str = PLAIN, **more: Any) -> Any:
    return person.send(where, body, kind, **more)


def events() -> list[IdempotencyEvent]:
    return list(list_mismatches(IdempotencyKey.objects.get().ref))


DIFFERENT = {
    "body": ({"body": '{"amount": 2}'}, ["body"]),
    "query": ({"where": "/{}/1?page=2"}, ["query"]),
    "path": ({"where": "/{}/2"}, ["path"]),
    "method": ({"method": "PATCH"}, ["method"]),
    "content type": ({"kind": "application/vnd.api+json"}, ["content_type"]),
    "several, of which the body is not known": (
        {"where": "/{}/2?page=2", "method": "PATCH", "body": "{}"},
        ["method", "path", "query"],
    ),
}


@pytest.mark.parametrize("mode", ["atomic", "leased"])
@pytest.mark.parametrize("different", DIFFERENT)
def test_the_client_learns_which_parts_differ_and_of_which_record(alice: Person, mode: str, different: str) -> None:
    changed, parts = DIFFERENT[different]
    changed = {"where": f"/{mode}/1", **changed}
    changed["where"] = changed["where"].format(mode)
    assert send(alice, f"/{mode}/1").status_code == 201
    refused = send(alice, **changed)
    told = refused.json()
    assert (refused.status_code, told["differs_in"], Ran.count) == (422, parts, 1)
    assert told["operation_ref"] == str(IdempotencyKey.objects.get().id)
    assert told["detail"].endswith(f"The requests differ in: {', '.join(parts).replace('_', ' ')}.")


def test_a_compared_header_is_a_part(alice: Person) -> None:
    send(alice, "/headers/1", headers={"X-Currency": "EUR"})
    assert send(alice, "/headers/1", headers={"X-Currency": "USD"}).json()["differs_in"] == ["headers"]
    assert send(alice, "/headers/1").json()["differs_in"] == ["headers"]
    assert send(alice, "/headers/1", "{}", headers={"X-Currency": "EUR"}).json()["differs_in"] == ["body"]


def test_a_body_that_is_not_compared_does_not_differ(alice: Person) -> None:
    send(alice, "/bodiless/1")
    assert send(alice, "/bodiless/1?page=2", "{}", "text/plain").json()["differs_in"] == ["query"]


def test_what_a_function_of_the_project_compares_has_no_name(alice: Person) -> None:
    send(alice, "/custom/1")
    assert "differs_in" not in send(alice, "/custom/1", "{}").json()
    assert send(alice, "/custom/2").json()["differs_in"] == ["path"]


def test_beyond_the_stored_length_of_a_path_no_part_is_guessed(alice: Person) -> None:
    long = f"/atomic/{'a' * 300}"
    send(alice, f"{long}1")
    assert "differs_in" not in send(alice, f"{long}2").json()


def test_the_other_shapes_say_it_in_words(alice: Person) -> None:
    send(alice, "/stripe/1")
    assert send(alice, "/stripe/1", "{}").json()["error"]["message"].endswith("The requests differ in: body.")
    send(alice, "/reshaped/1")
    assert send(alice, "/reshaped/1", "{}").json()["why"].endswith("The requests differ in: body.")


def test_callers_who_share_a_scope_learn_nothing_of_each_other(anonymous: Person) -> None:
    send(anonymous, "/open/1")
    told = send(anonymous, "/open/1?page=2").json()
    assert "differs_in" not in told
    assert "differ in" not in told["detail"]
    assert [event.reason for event in events()] == ["query"]


class TestSecrets:
    OLD, NEW = {"old": b"0123456789abcdef"}, {"new": b"fedcba9876543210"}

    def test_a_request_that_was_claimed_with_an_older_secret(self, alice: Person, settings: Any) -> None:
        settings.IDEMPOTENCY = {"SECRETS": self.OLD}
        send(alice)
        settings.IDEMPOTENCY = {"SECRETS": {**self.NEW, **self.OLD}}
        assert send(alice, "/leased/1?page=2").json()["differs_in"] == ["query"]
        assert send(alice, body="{}").json()["differs_in"] == ["body"]

    def test_the_digests_of_parts_depend_on_the_secret(self, alice: Person, settings: Any) -> None:
        send(alice)
        without = IdempotencyKey.objects.get().fingerprint[-4:]
        settings.IDEMPOTENCY = {"SECRETS": self.NEW}
        send(alice, key="another-key")
        assert IdempotencyKey.objects.get(key="another-key").fingerprint[-4:] != without


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_record_of_an_older_version_names_what_its_columns_tell(alice: Person, version: str) -> None:
    send(alice)
    stored = IdempotencyKey.objects.get().fingerprint
    rest = "x" * 21 if version == "v1" else ""
    older = f"{version}::{stored[4:26]}{rest}:{stored[26:48]}{rest}"
    IdempotencyKey.objects.update(fingerprint=older)
    assert send(alice).status_code == 201
    assert "differs_in" not in send(alice, body="{}").json()
    assert send(alice, "/leased/2").json()["differs_in"] == ["path"]


class TestTrace:
    def test_an_event_has_the_time_the_principal_and_the_parts(self, alice: Person) -> None:
        send(alice)
        before = IdempotencyKey.objects.values().get()
        send(alice, body="{}")
        (event,) = events()
        assert alice.user is not None
        assert (event.kind, event.actor, event.reason) == (Kind.MISMATCH, f"user:{alice.user.pk}", "body")
        assert IdempotencyKey.objects.values().get() == before, "the record itself does not change"

    def test_of_work_without_a_request_too(self) -> None:
        once(scope="bills", key="a", payload=1, run=lambda claim: claim.finish(lambda: 1))
        with pytest.raises(KeyReused):
            once(scope="bills", key="a", payload=2, run=lambda claim: claim.finish(lambda: 1))
        assert [event.reason for event in events()] == ["body"]

    def test_a_flood_leaves_five_events(self, alice: Person) -> None:
        send(alice)
        for number in range(MOST_MISMATCHES + 3):
            assert send(alice, body=str(number)).status_code == 422
        assert len(events()) == MOST_MISMATCHES

    def test_later_the_newest_replaces_the_oldest(self, alice: Person) -> None:
        send(alice)
        for number in range(MOST_MISMATCHES):
            send(alice, body=str(number))
        oldest = events()[-1]
        IdempotencyEvent.objects.update(at=F("at") - MISMATCH_PAUSE)
        send(alice, "/leased/1?page=2")
        assert events()[0].reason == "query"
        assert len(events()) == MOST_MISMATCHES
        assert oldest not in events()

    @pytest.fixture
    def _no_events(self) -> Iterator[None]:
        with connection.schema_editor() as editor:
            editor.alter_db_table(IdempotencyEvent, "idempotency_event", "elsewhere")
        yield
        with connection.schema_editor() as editor:
            editor.alter_db_table(IdempotencyEvent, "elsewhere", "idempotency_event")

    @pytest.mark.usefixtures("_no_events")
    def test_a_trace_that_cannot_be_left_changes_no_response(
        self, alice: Person, caplog: pytest.LogCaptureFixture
    ) -> None:
        send(alice)
        refused = send(alice, body="{}")
        assert (refused.status_code, refused.json()["differs_in"]) == (422, ["body"])
        assert "could not be noted" in caplog.text
        assert KEY not in caplog.text

    def test_the_security_log_names_the_parts(self, alice: Person, caplog: pytest.LogCaptureFixture) -> None:
        send(alice)
        send(alice, body="{}")
        (line,) = [each for each in caplog.records if each.name == "django_idempotency.security"]
        assert line.getMessage().endswith("differs in body.")
