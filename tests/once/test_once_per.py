from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from django_idempotency.exceptions import InvalidKey, KeyReused
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once, once_per
from testproject.payments.models import LedgerEntry

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]


@once_per("provider", key=lambda event, **_: event["id"], mode="atomic")
def receive(claim: Claim, event: dict[str, Any], *, account: str = "events") -> str:
    """Books an event."""
    LedgerEntry.objects.create(reference=event["id"], account=account, amount=1)
    return claim.reference


def an_event(**content: Any) -> dict[str, Any]:
    return {"id": f"evt_{uuid4().hex}", **content}


def accounts(event: dict[str, Any]) -> list[str]:
    return list(LedgerEntry.objects.filter(reference=event["id"]).values_list("account", flat=True))


def test_a_handler_runs_once_for_each_event() -> None:
    events = [an_event(), an_event()]

    references = [receive(event, account="other") for event in events * 3]

    assert [accounts(event) for event in events] == [["other"], ["other"]]
    assert references[:2] == references[2:4] == references[4:]
    assert set(references) == {str(record) for record in IdempotencyKey.objects.values_list("id", flat=True)}


def test_it_is_still_the_handler_that_it_was() -> None:
    assert (receive.__name__, receive.__doc__) == ("receive", "Books an event.")


def test_the_provider_may_send_the_same_event_in_other_words() -> None:
    event = an_event(attempt=1)
    receive(event)
    receive({**event, "attempt": 2})
    assert accounts(event) == ["events"]


def test_with_a_payload_another_content_under_the_same_id_is_refused() -> None:
    @once_per("strict", key=lambda event: event["id"], payload=lambda event: event["amount"])
    def strict(claim: Claim, event: dict[str, Any]) -> str:
        return "done"

    event = an_event(amount=5, attempt=1)
    assert [strict(event), strict({**event, "attempt": 2})] == ["done", "done"]
    with pytest.raises(KeyReused):
        strict({**event, "amount": 6})


def test_it_shares_its_records_with_once() -> None:
    event = an_event()
    reference = receive(event)
    assert once(scope="provider", key=event["id"], run=lambda claim: "again") == reference


def test_the_settings_of_the_moment_count(settings: Any) -> None:
    for seconds in (60, 120):
        settings.IDEMPOTENCY = {"RETENTION": seconds}
        event = an_event()
        receive(event)
        assert IdempotencyKey.objects.get(key=event["id"]).retention_seconds == seconds


def test_the_setting_mode_is_about_views(settings: Any) -> None:
    """What a handler may do with its claim is written in its code, so no setting changes it."""

    @once_per("tests.leased", key=lambda event: event["id"])
    def book(claim: Claim, event: dict[str, Any]) -> Any:
        return claim.finish(lambda: "booked")

    settings.IDEMPOTENCY = {"MODE": "atomic"}
    assert book(an_event()) == "booked"
    assert once(scope="tests.leased", key="1", run=lambda claim: claim.finish(lambda: "booked")) == "booked"


def test_an_event_without_an_id_is_refused() -> None:
    with pytest.raises(InvalidKey):
        receive({"id": None})


@pytest.mark.parametrize("arguments", [{"mode": "eventual"}, {"lease": "long"}, {"on_lost_lease": "resume"}], ids=str)
def test_a_wrong_argument_is_an_error_where_it_is_written(arguments: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        once_per("provider", key=str, **arguments)
