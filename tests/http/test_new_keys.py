"""May the client use a new key? Each error response, in each profile, against each state of the record."""

import re
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_idempotency import IETF, STRIPE, Profile, Status
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.store.records import read_effect
from tests.kit.http import Person, Ran
from tests.kit.rows import FUTURE, PAST, a_row

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

HOUSE = Profile(name="house", reshape=lambda full: {"message": full["detail"], "safe": full.get("safe_new_key")})
PROFILES = {"ietf": IETF, "stripe": STRIPE, "house": HOUSE}
FORBIDS = re.compile("do not send (it|the operation) with (a new|another) key", re.IGNORECASE)
ALLOWS = re.compile("use a new key", re.IGNORECASE)


def view(profile: Profile) -> Any:
    @idempotent(profile=profile, after_expiry="gone", expiry="soft", operation=profile.name)
    def pay(request: HttpRequest) -> HttpResponse:
        return JsonResponse({"run": Ran.again()}, status=201)

    return pay


@idempotent(transaction="late")
def busy(request: HttpRequest) -> HttpResponse:
    """While it runs, its client sends another request with the same key."""
    Ran.again()
    alice = Person("alice")
    Ran.meanwhile = alice.post("/busy", {"amount": 1, "sent_at": "later"})  # type: ignore[attr-defined]
    return HttpResponse("paid")


@idempotent(transaction="late")
def cut_off(request: HttpRequest) -> HttpResponse:
    request.idempotency.derive("charge")  # type: ignore[attr-defined]
    Ran.again()
    raise ConnectionResetError("planned")


urlpatterns = [
    *(path(name, view(profile), name=name) for name, profile in PROFILES.items()),
    path("busy", busy, name="busy"),
    path("cut-off", cut_off, name="cut-off"),
]


def said(profile: str, response: Any) -> tuple[str, Any]:
    """The sentence, and the member `safe_new_key`: Stripe's shape has none."""
    members = response.json()
    if profile == "stripe":
        return members["error"]["message"], None
    return (members["detail"], members.get("safe_new_key")) if profile == "ietf" else tuple(members.values())


@pytest.mark.parametrize("status", list(Status))
@pytest.mark.parametrize("profile", list(PROFILES))
def test_the_sentence_and_the_member_say_the_same_of_a_new_key(alice: Person, profile: str, status: Status) -> None:
    alice.post(f"/{profile}", {"amount": 1})
    fingerprint, ran = IdempotencyKey.objects.get().fingerprint, Ran.count
    blank = {"response_status": None, "response_headers": "", "response_body": None, "completed_at": None}
    for grace_over, expired, more in product((False, True), (False, True), ({}, {"sent_at": "later"})):
        row = {**blank, **a_row(status), "fingerprint": fingerprint}
        now = row["created_at"] - PAST
        row["grace_until"] = now + (PAST if grace_over else FUTURE)
        if expired and row["expires_at"] is not None:
            row["expires_at"] = now - timedelta(seconds=1)
        IdempotencyKey.objects.update(**row)
        effect = read_effect(IdempotencyKey.objects.with_time().get())
        response = alice.post(f"/{profile}", {"amount": 1, **more})
        if response.status_code < 400:  # a replay, a 202 for deferred work, or proven not executed and run again
            assert not more
            ran = Ran.count
            continue
        sentence, safe = said(profile, response)
        assert safe is (None if profile == "stripe" else effect == "none"), response.content
        assert bool(ALLOWS.search(sentence)) is (effect == "none"), sentence
        assert bool(FORBIDS.search(sentence)) is (effect != "none"), sentence
        assert Ran.count == ran


def test_another_body_while_the_first_request_runs(alice: Person) -> None:
    assert alice.post("/busy", {"amount": 1}).content == b"paid"
    refused = Ran.meanwhile  # type: ignore[attr-defined]
    assert (refused.status_code, refused.json()["safe_new_key"], Ran.count) == (422, False, 1)
    assert FORBIDS.search(refused.json()["detail"])
    assert refused.json()["operation_ref"] == str(IdempotencyKey.objects.get().id)
    settled = alice.post("/busy", {"amount": 2})
    assert (settled.status_code, settled.json()["effect"]) == (422, "done")


def test_another_body_after_a_view_was_cut_off(alice: Person) -> None:
    assert alice.post("/cut-off", {"amount": 1}).status_code == 500
    refused = alice.post("/cut-off", {"amount": 1, "sent_at": "later"})
    assert (refused.status_code, refused.json()["safe_new_key"], Ran.count) == (422, False, 1)
    assert FORBIDS.search(refused.json()["detail"])
