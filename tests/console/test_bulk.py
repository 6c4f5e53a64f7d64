"""Acting on all records of a filter: in batches that continue, with one message, and nothing beyond the filter."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db.models import Q
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from django_idempotency import Status
from django_idempotency.console import bulk, keyset
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from tests.kit.console import LIST, many, record

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

DEAD = "status=dead_letter"
COUNT = 2 * keyset.PAGE + 20


def address(name: str, query: str = DEAD) -> str:
    return f"{reverse('admin:django_idempotency_act_on_all', args=[name])}?{query}"


def choose(client: Client, name: str, query: str = DEAD) -> Any:
    return client.post(f"{LIST}?{query}", {"action": name, "select_across": "on", "index": "0"})


def read_hidden(page: Any) -> dict[str, str]:
    """What the form carries on to the next batch."""
    return dict(re.findall(r'<input type="hidden" name="(cursor|done|skipped)" value="([^"]*)"', page.content.decode()))


def read_messages(client: Client, answer: Any) -> list[str]:
    return [str(each) for each in client.get(answer.headers["Location"]).context["messages"]]


def count(status: Status) -> int:
    return IdempotencyKey.objects.filter(status=status).count()


def test_the_menu_leads_to_all_records_of_the_filter(operator: Client) -> None:
    many(3, Status.DEAD_LETTER)
    assert "All matching records, on every page" in operator.get(f"{LIST}?{DEAD}").content.decode()
    answer = choose(operator, "try-again")
    assert answer.headers["Location"] == address("try-again")
    page = operator.get(answer.headers["Location"]).content.decode()
    assert "3 records match the filter." in page
    assert f'href="{LIST}?{DEAD}"' in page


def test_batches_continue_to_the_end_and_are_summed_up_once(operator: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(bulk, "BATCH_SECONDS", 0.0)
    many(COUNT, Status.DEAD_LETTER)
    record(Status.DEAD_LETTER, key="another's", operation="rides.create")
    query = f"{DEAD}&operation=payments.create"
    carried: dict[str, str] = {}
    for batch in (keyset.PAGE, 2 * keyset.PAGE):
        page = operator.post(address("try-again", query), {"reason": "the provider is back", **carried})
        carried = read_hidden(page)
        assert (page.status_code, carried["done"], count(Status.UNKNOWN)) == (200, str(batch), batch)
        assert f"{COUNT - batch} records match the filter." in page.content.decode()
    end = operator.post(address("try-again", query), {"reason": "the provider is back", **carried})
    assert end.headers["Location"] == f"{LIST}?{query}"
    (message,) = read_messages(operator, end)
    skipped = "Skipped because they could not be changed: 0."
    assert message == f"“Reset and retry reconciliation” changed 120 records. {skipped}"
    assert (count(Status.UNKNOWN), count(Status.DEAD_LETTER)) == (COUNT, 1)
    assert IdempotencyEvent.objects.filter(kind="reset", actor="operator").count() == COUNT
    assert LogEntry.objects.filter(change_message__contains="the provider is back").count() == COUNT


def test_a_batch_that_was_cut_off_is_done_by_beginning_again(operator: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(bulk, "BATCH_SECONDS", 0.0)
    many(keyset.PAGE + 1, Status.DEAD_LETTER)
    operator.post(address("try-again"), {"reason": "back"})
    end = operator.post(address("try-again"), {"reason": "back"})
    assert end.status_code == 302
    assert (count(Status.UNKNOWN), count(Status.DEAD_LETTER)) == (keyset.PAGE + 1, 0)


def test_what_cannot_be_changed_is_skipped_and_counted(operator: Client) -> None:
    now = timezone.now()
    many(keyset.PAGE + 5, Status.UNKNOWN, grace_until=now + timedelta(minutes=5))
    record(Status.UNKNOWN, key="free", grace_until=now - timedelta(minutes=5))
    end = operator.post(address("resolve-not-executed", "status=unknown"), {"reason": "none arrived"})
    (message,) = read_messages(operator, end)
    assert message.endswith("changed 1 record. Skipped because they could not be changed: 55.")
    assert count(Status.FAILED_RETRYABLE) == 1


def test_nothing_is_done_without_a_reason(operator: Client) -> None:
    many(2, Status.DEAD_LETTER)
    page = operator.post(address("try-again"), {"reason": ""})
    assert "Please correct the errors below." in page.content.decode()
    assert count(Status.DEAD_LETTER) == 2


@pytest.mark.parametrize(
    ("name", "query", "words"),
    [
        ("resolve-landed", DEAD, "needs a decision for each record"),
        ("expire-now", "status=completed", "needs a decision for each record"),
        ("try-again", "", "filter by “unknown” or “dead letter” first"),
        ("resolve-not-executed", "operation=rides.create", "filter by “unknown” or “dead letter” first"),
    ],
)
def test_other_actions_and_lists_without_such_a_filter_are_refused(
    operator: Client, name: str, query: str, words: str
) -> None:
    record(Status.DEAD_LETTER)
    answer = choose(operator, name, query)
    assert answer.headers["Location"] == LIST + (query and f"?{query}")
    assert words in read_messages(operator, answer)[0]
    assert operator.get(address(name, query)).status_code == 404


def test_it_takes_the_permission_of_the_action(viewer: Client, client: Client) -> None:
    record(Status.DEAD_LETTER)
    assert viewer.get(address("try-again")).status_code == 403
    assert viewer.post(address("try-again"), {"reason": "x"}).status_code == 403
    assert client.post(address("try-again"), {"reason": "x"}).status_code == 302
    assert count(Status.DEAD_LETTER) == 1


@pytest.mark.parametrize("carried", [{"done": "-1"}, {"done": "many"}, {"cursor": "nonsense"}])
def test_a_changed_form_does_no_harm(operator: Client, carried: dict[str, str]) -> None:
    many(2, Status.DEAD_LETTER)
    answer = operator.post(address("try-again"), {"reason": "back", "done": "0", "skipped": "0", **carried})
    assert answer.status_code in (200, 302)
    assert not IdempotencyKey.objects.filter(~Q(status__in=[Status.UNKNOWN, Status.DEAD_LETTER])).exists()


@pytest.mark.parametrize(
    "query", [DEAD, "needs=person", "status=unknown", "needs=unattended", "status=unknown&error=x"]
)
def test_the_page_is_cheap(operator: Client, query: str, django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    many(300, Status.DEAD_LETTER)
    many(300, Status.UNKNOWN)
    with django_assert_max_num_queries(8):
        assert operator.get(address("resolve-not-executed", query)).status_code == 200
