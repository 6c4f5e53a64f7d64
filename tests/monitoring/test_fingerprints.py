"""A record whose fingerprint this process cannot read: what a person is told, and what is not offered."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import include, path

from django_idempotency import FingerprintRule, Status
from django_idempotency.core.calls import Call
from django_idempotency.core.comparison import LONGEST_MAKER, read_secret_id
from django_idempotency.core.decisions import InDoubt
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.decorators import idempotent
from django_idempotency.flow.claim import begin
from django_idempotency.management import base
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring import fingerprints
from django_idempotency.monitoring.fingerprints import find_missing_secrets
from tests.kit.console import RIGHTS, act, client_of, confirm, page_of, person, said
from tests.kit.records import change, status_of
from tests.kit.rows import a_call, put
from tests.management.terminals import said as printed

pytestmark = pytest.mark.django_db

OLD, NEW = {"2026-05": b"o" * 32}, {"2026-11": b"n" * 32}
PARTS = RequestParts("POST", "/pay", "", "text/plain", b"1")
BY_OLD = seal(PARTS, FingerprintRule(secrets=OLD, secret_id="2026-05"))
BY_LATER_RELEASE = "v9:anything"


@idempotent(operation="tests.own", fingerprint=FingerprintRule(secrets=OLD, secret_id="2026-05"))
def view_with_its_own_secret(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [path("pay/", view_with_its_own_secret), path("", include("testproject.urls"))]


@pytest.fixture(autouse=True)
def _rotated(settings: Any) -> None:
    settings.IDEMPOTENCY = {"SECRETS": NEW}


@pytest.fixture
def operator() -> Client:
    return client_of(person("operator", *RIGHTS))


def kept(status: Status = Status.COMPLETED, fingerprint: str = BY_OLD, **columns: Any) -> UUID:
    return put(status, fingerprint=fingerprint, **columns)


@pytest.mark.parametrize(
    ("fingerprint", "words"),
    [(BY_OLD, ("it lacks the secret “2026-05”", "IDEMPOTENCY['SECRETS']")), (BY_LATER_RELEASE, ("a newer release",))],
)
def test_a_person_is_told_what_to_do_and_not_offered_to_run_it_again(
    operator: Client, fingerprint: str, words: tuple[str, ...]
) -> None:
    found = kept(fingerprint=fingerprint)
    answer = operator.get(page_of(found))
    story = printed("idempotency_inspect", str(found))
    for text in (answer.content.decode().replace("&#x27;", "'"), story):
        assert "answers every request with this key with 409" in text
        for word in words:
            assert word in text
    assert answer.context["actions"] == []
    assert "--expire" not in story


def test_it_is_true_of_requests() -> None:
    kept()
    call: Call = a_call(fingerprint=seal(PARTS, FingerprintRule(secrets=NEW, secret_id="2026-11")))
    assert isinstance(begin(call), InDoubt)


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]])
def test_the_command_does_not_expire_it(dry_run: list[str]) -> None:
    found = kept()
    with pytest.raises(CommandError, match=r"it lacks the secret “2026-05”.*a retry would run again") as refusal:
        printed("idempotency_resolve", str(found), "--expire", "--by=ada", "--reason=wrong", *dry_run)
    assert status_of(found) == "completed"
    assert isinstance(refusal.value, base.CommandError)
    assert refusal.value.code == "refused"
    with pytest.raises(CommandError, match="Possible now: nothing by hand"):
        printed("idempotency_resolve", str(found), "--try-again", "--by=ada", "--reason=wrong")


def test_the_admin_does_not_expire_it(operator: Client) -> None:
    found = kept()
    asked = operator.get(act("expire-now", found))
    assert asked.context["ready"] is False
    assert "it lacks the secret “2026-05”" in asked.content.decode()
    assert "a retry would run again" in said(confirm(operator, act("expire-now", found)))
    assert status_of(found) == "completed"
    refused = confirm(operator, act("try-again", found))
    assert "Nothing can be done to it in this state." in said(refused)


@pytest.mark.parametrize("status", [Status.UNKNOWN, Status.DEAD_LETTER, Status.FAILED_RETRYABLE])
def test_what_settles_a_record_needs_no_fingerprint(operator: Client, status: Status) -> None:
    found = kept(status)
    page = operator.get(page_of(found))
    assert "it lacks the secret" in page.content.decode()
    assert "resolve-landed" in [action.name for action in page.context["actions"]]
    assert "--landed" in printed("idempotency_inspect", str(found))


def test_with_the_old_secret_it_may_expire(operator: Client, settings: Any) -> None:
    settings.IDEMPOTENCY = {"SECRETS": {**NEW, **OLD}}
    found = kept()
    assert "Warning" not in operator.get(page_of(found)).content.decode()
    assert "--expire" in printed("idempotency_inspect", str(found))
    confirm(operator, act("expire-now", found))
    assert status_of(found) == "expired"


@pytest.mark.parametrize("fingerprint", ["", seal(PARTS, FingerprintRule())], ids=["given back", "without a secret"])
def test_a_fingerprint_that_needs_no_secret(fingerprint: str) -> None:
    assert "409" not in printed("idempotency_inspect", str(kept(fingerprint=fingerprint)))


@pytest.mark.urls(__name__)
def test_the_secret_of_an_endpoints_own_rule_counts() -> None:
    assert "--expire" in printed("idempotency_inspect", str(kept()))
    assert find_missing_secrets("default") == []


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.EXPIRED])
def test_after_its_retention_it_is_not_compared(operator: Client, status: Status) -> None:
    found = kept(status)
    change(found, expires_at=F("created_at") - timedelta(hours=1))
    assert "it lacks the secret" not in operator.get(page_of(found)).content.decode()
    assert find_missing_secrets("default") == []


def doctor(*arguments: str) -> list[dict[str, Any]]:
    output = StringIO()
    call_command("idempotency_doctor", "--json", "--fail-on=never", *arguments, stdout=output)
    return [each for each in json.loads(output.getvalue())["findings"] if each["code"] == "fingerprint-unreadable"]


def test_the_doctor_names_the_secret(settings: Any) -> None:
    kept()
    put(Status.UNKNOWN, "another", fingerprint=BY_OLD)
    put(Status.COMPLETED, "plain")
    (finding,) = doctor()
    assert (finding["secret"], finding["severity"]) == ("2026-05", "warning")
    assert "the secret 2026-05, which this process lacks" in finding["text"]
    assert finding["url"].endswith("reference/findings.html#fingerprint-unreadable")
    settings.IDEMPOTENCY = {"SECRETS": {**NEW, **OLD}}
    assert doctor() == []


def test_the_doctor_reads_a_bounded_number_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest ones, and a sample of all: old ones are found after many new ones."""
    monkeypatch.setattr(fingerprints, "SAMPLE", 2)
    for number in range(6):
        found = put(Status.COMPLETED, str(number))
        change(found, created_at=F("created_at") + timedelta(minutes=number))
    change(
        IdempotencyKey.objects.order_by("pk")[0].pk, fingerprint=BY_OLD, created_at=F("created_at") - timedelta(hours=1)
    )
    with CaptureQueriesContext(connection) as captured:
        assert find_missing_secrets("default") == ["2026-05"]
    assert len(captured) == 2
    for query in captured:
        assert "LIMIT 2" in query["sql"]
        assert '"response_body"' not in query["sql"].replace("`", '"')


@pytest.mark.parametrize(
    ("stored", "secret"),
    [
        (BY_OLD, "2026-05"),
        (BY_OLD[:LONGEST_MAKER], "2026-05"),
        (seal(PARTS, FingerprintRule(secrets={"a" * 16: b"x" * 16}, secret_id="a" * 16))[:20], "a" * 16),
        (seal(PARTS, FingerprintRule()), ""),
        ("v1:old:" + "x" * 43 + ":", "old"),
        (BY_LATER_RELEASE, None),
        ("", None),
    ],
)
def test_the_maker_of_a_fingerprint(stored: str, secret: str | None) -> None:
    assert read_secret_id(stored) == secret
