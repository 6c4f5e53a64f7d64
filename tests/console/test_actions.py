"""What an operator may do: rights, confirmation, the change, its audit, and races that somebody else won."""

from __future__ import annotations

import html
import json
import re
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from django_idempotency import Reply, Status
from django_idempotency.console.actions import ACTIONS, BY_NAME, OUTCOMES, Action
from django_idempotency.console.timeline import KINDS
from django_idempotency.core.audit import Kind
from django_idempotency.core.progress import Moment, Progress
from django_idempotency.core.refs import Ref
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.reconciliation import Inconclusive, Landed, NotLanded, Outcome, reconciler, try_again
from django_idempotency.store import events, records
from tests.kit.console import (
    LIST,
    RIGHTS,
    act,
    client_of,
    confirm,
    levels,
    many,
    page_of,
    person,
    record,
    said,
    send,
)
from tests.kit.databases import backend, is_waiting
from tests.kit.records import CREATED, status_of
from tests.kit.threads import actors, wait_until

PAST = timedelta(hours=-1)
OPERATION: Final = "tests.console"

# A state from which it can be done, and the state in which the record ends.
CASES: Final = {
    "ask-reconciler": (Status.UNKNOWN, Status.COMPLETED),
    "resolve-landed": (Status.DEAD_LETTER, Status.COMPLETED),
    "resolve-not-executed": (Status.UNKNOWN, Status.FAILED_RETRYABLE),
    "try-again": (Status.DEAD_LETTER, Status.UNKNOWN),
    "enqueue": (Status.PENDING, Status.PENDING),
    "expire-now": (Status.COMPLETED, Status.EXPIRED),
}
CITES: Final = {
    "ask-reconciler": ["", "T9"],
    "resolve-landed": ["T13"],
    "resolve-not-executed": ["T14"],
    "try-again": ["T14'"],
    "enqueue": ["D3"],
    "expire-now": ["T18"],
}


@pytest.fixture
def verdicts(registrations: None) -> list[Any]:
    """What the reconciler answers, one after the other."""
    answers: list[Any] = [Landed(CREATED)]
    reconciler(OPERATION)(lambda _row: answers.pop(0))
    return answers


def ready(name: str, key: str = "key", **columns: Any) -> UUID:
    """A record with which it can be done now."""
    now = timezone.now()
    status = CASES[name][0]
    if status is Status.PENDING:
        columns = {"locked_until": now + PAST, **columns}
    return record(status, key=key, **{"operation": OPERATION, "grace_until": now + PAST, **columns})


def trail(found: UUID) -> list[IdempotencyEvent]:
    return list(IdempotencyEvent.objects.filter(record_id=found).exclude(kind="dead letter").order_by("id"))


@pytest.mark.django_db
@pytest.mark.parametrize("name", CASES)
def test_it_is_done_and_it_is_written_down(operator: Client, verdicts: list[Any], name: str) -> None:
    found = ready(name)
    page = confirm(operator, act(name, found))
    assert page.redirect_chain[-1][0] == page_of(found)
    assert status_of(found) == CASES[name][1]
    written = trail(found)
    assert [event.transition for event in written] == CITES[name]
    assert (written[0].actor, written[0].reason) == ("operator", "asked the bank")
    entry = LogEntry.objects.get()
    assert (entry.object_id, str(entry.user)) == (str(found), "operator")
    assert "asked the bank" in entry.change_message
    assert said(page).startswith("“key”: ")


@pytest.mark.django_db
@pytest.mark.parametrize("name", CASES)
def test_without_its_own_right_there_is_no_button_and_no_way(verdicts: list[Any], name: str) -> None:
    found = ready(name)
    right = name.replace("-", "_")
    without = client_of(person("without", *(each for each in RIGHTS if each != right)))
    only = client_of(person("only", right))
    before = IdempotencyKey.objects.values().get()
    assert act(name, found) not in without.get(page_of(found)).content.decode()
    assert act(name, found) in only.get(page_of(found)).content.decode()
    menu = {choice for choice, _label in only.get(LIST).context["action_form"].fields["action"].choices}
    assert menu == {"", name}
    for response in (without.get(act(name, found)), without.post(act(name, found), {"reason": "because"})):
        assert response.status_code == 403
    assert IdempotencyKey.objects.values().get() == before
    assert trail(found) == []


@pytest.mark.django_db
def test_an_operator_who_may_not_look_may_not_act(verdicts: list[Any]) -> None:
    user = person("blind", "expire_now")
    user.user_permissions.remove(*user.user_permissions.filter(codename="view_idempotencykey"))
    assert client_of(user).get(act("expire-now", ready("expire-now"))).status_code == 403


@pytest.mark.django_db
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_done_without_a_reason(operator: Client, verdicts: list[Any], name: str) -> None:
    found = ready(name)
    before = IdempotencyKey.objects.values().get()
    page = confirm(operator, act(name, found), reason="   ")
    assert page.context["form"].errors["reason"]
    assert IdempotencyKey.objects.values().get() == before
    assert not LogEntry.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("name", CASES)
def test_looking_at_the_question_changes_nothing(operator: Client, verdicts: list[Any], name: str) -> None:
    found = ready(name)
    before = IdempotencyKey.objects.values().get()
    page = operator.get(act(name, found)).content.decode()
    assert str(BY_NAME[name].sentence).replace("'", "&#x27;") in page
    assert str(BY_NAME[name].risk).replace("'", "&#x27;") in page
    assert IdempotencyKey.objects.values().get() == before


@pytest.mark.django_db
def test_a_form_from_elsewhere_is_refused() -> None:
    client = client_of(person("operator", *RIGHTS), enforce_csrf_checks=True)
    found = ready("expire-now")
    assert client.post(act("expire-now", found), {"reason": "because"}).status_code == 403
    assert status_of(found) == "completed"


@pytest.mark.django_db
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("status", Status)
def test_it_is_offered_in_the_states_of_the_table(operator: Client, name: str, status: Status) -> None:
    found = record(status, grace_until=timezone.now() + PAST)
    fits = status in BY_NAME[name].statuses
    assert (act(name, found) in operator.get(page_of(found)).content.decode()) is fits
    asked = operator.get(act(name, found))
    assert asked.context["ready"] is fits
    if not fits:
        before = IdempotencyKey.objects.values().get()
        send(operator, act(name, found), asked)
        after = IdempotencyKey.objects.values().get()
        assert {**after, "reconcile_after": None} == {**before, "reconcile_after": None}


def test_the_states_are_those_of_the_table() -> None:
    assert {action.name: set(action.statuses) for action in ACTIONS} == {
        "ask-reconciler": {Status.UNKNOWN},
        "resolve-landed": {Status.UNKNOWN, Status.FAILED_RETRYABLE, Status.DEAD_LETTER, Status.PENDING},
        "resolve-not-executed": {Status.UNKNOWN, Status.DEAD_LETTER},
        "try-again": {Status.DEAD_LETTER},
        "enqueue": {Status.PENDING},
        "expire-now": {Status.COMPLETED, Status.FAILED},
    }


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_every_outcome_of_an_action_has_its_words(action: Action) -> None:
    assert set(action.done) <= {*OUTCOMES, Outcome.POSTPONED}, "how long to wait is computed"
    assert action.trace is None or KINDS[action.trace.kind] == (action.trace.title, action.trace.tone)


@pytest.mark.django_db
def test_several_at_once_from_the_list(operator: Client) -> None:
    found = many(3, Status.DEAD_LETTER)
    other = record(Status.COMPLETED)
    ticked = [str(each) for each in (*found, other)]
    asked = operator.post(LIST, {"action": "try-again", "_selected_action": ticked, "index": "0"}, follow=True)
    assert asked.status_code == 200
    assert [choice.fits for choice in asked.context["choices"]].count(True) == 3
    address = asked.redirect_chain[-1][0]
    page = send(operator, address, asked)
    assert page.redirect_chain[-1][0] == LIST
    assert {status_of(each) for each in found} == {"unknown"}
    assert status_of(other) == "completed"
    assert LogEntry.objects.count() == 3
    (message,) = page.context["messages"]
    assert "3 records" in str(message)
    assert str(message).count("at its next run") == 1
    assert "changed to “completed”" in str(message)
    assert message.level_tag == "warning"


@pytest.mark.django_db
def test_a_bulk_action_keeps_the_filter_of_the_list(operator: Client) -> None:
    found = many(2, Status.DEAD_LETTER)
    ticked = [str(each) for each in found]
    form = {"action": "try-again", "_selected_action": ticked, "index": "0"}
    asked = operator.post(f"{LIST}?needs=person&created=day", form, follow=True)
    address = asked.redirect_chain[-1][0]
    assert asked.context["back"] == f"{LIST}?needs=person&created=day", "where Cancel leads"
    page = send(operator, address, asked)
    assert page.redirect_chain[-1][0] == f"{LIST}?needs=person&created=day"
    (message,) = page.context["messages"]
    assert str(message).startswith("2 records (“")


@pytest.mark.django_db
def test_a_refusal_says_the_state_it_found_and_what_is_possible(operator: Client) -> None:
    page = operator.get(act("try-again", record(Status.COMPLETED)))
    assert page.context["choices"][0].refusal == (
        "Its status is “completed”, and this needs “dead letter”. It will be skipped. Possible now: “Expire now”."
    )
    viewer = client_of(person("may try", "try_again"))
    assert (
        "Nothing can be done to it"
        in viewer.get(act("try-again", record(Status.COMPLETED, key="other"))).content.decode()
    )


@pytest.mark.django_db
def test_the_page_shows_what_happened_and_what_was_sent(operator: Client) -> None:
    progress = Progress().mark_started("charge", Moment(1, 1)).dump()
    found = ready("resolve-not-executed", run_name="rides.create", progress=progress)
    events.write(Ref("scope", found, "default"), Kind.IN_DOUBT, reason="GatewayUnanswered")
    page = operator.get(act("resolve-not-executed", found))
    assert [str(each.title) for each in page.context["story"].entries][
        -1
    ] == "The attempt ended without a known outcome"
    content = page.content.decode()
    assert "GatewayUnanswered" in content
    assert f'data-copy="{IdempotencyKey.objects.get().derive("charge")}"' in content
    assert f'href="{page_of(found)}"' in content.split("</ol>")[0], "the way back to the record"


@pytest.mark.django_db
def test_the_whole_table_is_never_meant(operator: Client) -> None:
    one, two = record(Status.DEAD_LETTER), record(Status.DEAD_LETTER, key="other")
    form = {"action": "try-again", "_selected_action": [str(one)], "index": "0", "select_across": "1"}
    asked = operator.post(LIST, form, follow=True)
    assert "To act on all matching records, filter by" in asked.content.decode()
    assert [status_of(one), status_of(two)] == ["dead_letter", "dead_letter"]


@pytest.mark.django_db
@pytest.mark.parametrize("records", ["", "nonsense", UUID(int=1).hex, "," * 3])
def test_records_that_are_not_there(operator: Client, records: str) -> None:
    assert operator.get(act("expire-now") + records).status_code == 404


@pytest.mark.django_db
def test_an_action_that_is_none(operator: Client) -> None:
    assert operator.get(act("expire-now", record(Status.COMPLETED)).replace("expire-now", "explode")).status_code == 404


# The answer that is stored


@pytest.mark.django_db
def test_the_answer_of_a_landed_record_is_the_one_that_was_entered(operator: Client) -> None:
    found = ready("resolve-landed")
    confirm(operator, act("resolve-landed", found), status="201", content_type="application/json", body='{"id": 7}')
    reply = records.find(Ref("scope", found, "default"))
    assert reply is not None
    assert reply.reply is not None
    assert (reply.reply.status, reply.reply.body) == (201, b'{"id": 7}')
    assert reply.reply.headers == (("Content-Type", "application/json"),)


def completed(key: str = "earlier", **columns: Any) -> UUID:
    """What the same operation answered before."""
    headers = json.dumps([["Content-Type", "application/json"], ["Location", "/payments/17/"]])
    body = json.dumps({"id": 17, "card": {"last4": "4242"}, "paid": True, "lines": [{"sku": "a"}, {"sku": "b"}]})
    row = {"operation": OPERATION, "response_status": 201, "response_headers": headers, "response_body": body.encode()}
    return record(Status.COMPLETED, key=key, **{**row, **columns})


@pytest.mark.django_db
def test_the_form_starts_from_the_last_success_of_the_operation(operator: Client) -> None:
    completed("refused", response_status=402)
    completed("other", operation="rides.create")
    completed()
    page = operator.get(act("resolve-landed", ready("resolve-landed")))
    initial = page.context["form"].initial
    assert (initial["status"], initial["content_type"]) == (201, "application/json")
    assert initial["headers"] == "Location: FILL-IN"
    assert json.loads(initial["body"]) == {
        "id": "FILL-IN",
        "card": {"last4": "FILL-IN"},
        "paid": True,
        "lines": [{"sku": "FILL-IN"}],
    }


@pytest.mark.django_db
def test_who_may_not_see_content_starts_from_the_status_alone() -> None:
    completed()
    page = client_of(person("blind", "resolve_landed")).get(act("resolve-landed", ready("resolve-landed")))
    assert page.context["form"].initial == {"status": 201, "content_type": "application/json"}
    assert b"4242" not in page.content


@pytest.mark.django_db
def test_what_was_not_filled_in_is_refused(operator: Client) -> None:
    found = ready("resolve-landed")
    page = confirm(operator, act("resolve-landed", found), status="201", headers="Location: FILL-IN", body='"FILL-IN"')
    assert set(page.context["form"].errors) == {"headers", "body"}
    assert status_of(found) == "dead_letter"


@pytest.mark.django_db
def test_nothing_is_stored_before_the_operator_has_seen_what_the_client_will_get(operator: Client) -> None:
    found = ready("resolve-landed")
    address = act("resolve-landed", found)
    asked = operator.get(address)
    seen = {f"seen-{found}": asked.context["choices"][0].seen}
    entered = {
        **seen,
        "status": "201",
        "content_type": "application/json",
        "headers": "Location: /payments/17/\r\n\r\nLink: </a>; rel=next",
        "body": '{"id": 17}',
        "reason": "asked the bank",
    }
    shown = operator.post(address, entered)
    assert status_of(found) == "dead_letter"
    assert shown.context["preview"].status_line == "201 Created"
    page = shown.content.decode()
    assert "Every retry will get this response" in page
    assert "&quot;id&quot;: 17" in page
    again = operator.post(address, {**entered, "confirmed": "1", "change": "Change the response"})
    assert again.context["form"].data["body"] == '{"id": 17}'
    assert status_of(found) == "dead_letter"
    # What the hidden fields of the page hold is what is stored.
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page))
    hidden = {name: html.unescape(value) for name, value in hidden.items() if name != "csrfmiddlewaretoken"}
    operator.post(address, hidden)
    stored = records.find(Ref("scope", found, "default"))
    assert stored is not None
    assert stored.reply == Reply(
        201,
        (("Content-Type", "application/json"), ("Location", "/payments/17/"), ("Link", "</a>; rel=next")),
        b'{"id": 17}',
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    "headers",
    ["nonsense", "a b: c", ": c", "Location:", "Set-Cookie: a=b", "X-CSRFToken: a", "Content-Type: text/html", "X: ä"],
)
def test_a_header_that_cannot_be_one_is_refused(operator: Client, headers: str) -> None:
    found = ready("resolve-landed")
    page = confirm(operator, act("resolve-landed", found), headers=headers)
    assert page.context["form"].errors["headers"]
    assert status_of(found) == "dead_letter"


@pytest.mark.django_db
def test_an_empty_answer_is_never_stored_by_accident(operator: Client) -> None:
    found = ready("resolve-landed")
    page = confirm(operator, act("resolve-landed", found), status="200", body="")
    assert "every retry would get none" in str(page.context["form"].errors["body"])
    page = confirm(operator, act("resolve-landed", found), status="200", body="{}", no_body="on")
    assert page.context["form"].errors["no_body"]
    assert status_of(found) == "dead_letter"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("body", "{"),
        ("status", "199"),
        ("status", "600"),
        ("status", ""),
        ("content_type", "a\nb: c"),
        ("content_type", "ä"),
    ],
)
def test_an_answer_that_cannot_be_one_is_refused(operator: Client, field: str, value: str) -> None:
    found = ready("resolve-landed")
    page = confirm(operator, act("resolve-landed", found), **{field: value})
    assert page.context["form"].errors[field]
    assert status_of(found) == "dead_letter"


@pytest.mark.django_db
def test_an_answer_that_has_no_body_gets_none(operator: Client) -> None:
    found = ready("resolve-landed")
    page = confirm(operator, act("resolve-landed", found), status="204", body="{}")
    assert "has no body" in str(page.context["form"].errors["body"])
    confirm(operator, act("resolve-landed", found), status="204")
    assert IdempotencyKey.objects.get().response_status == 204


@pytest.mark.django_db
@pytest.mark.parametrize("status", ["200", "599"])
def test_both_ends_of_what_a_status_may_be(operator: Client, status: str) -> None:
    found = ready("resolve-landed")
    confirm(operator, act("resolve-landed", found), status=status)
    assert IdempotencyKey.objects.get().response_status == int(status)


def test_landed_warns_that_it_makes_no_domain_writes() -> None:
    assert "makes no domain writes" in str(BY_NAME["resolve-landed"].risk)


# Not yet


@pytest.mark.django_db
def test_not_executed_before_grace_says_how_long_to_wait(operator: Client) -> None:
    found = ready("resolve-not-executed", grace_until=timezone.now() + timedelta(minutes=10))
    asked = operator.get(act("resolve-not-executed", found))
    assert "The grace period has not passed" in asked.content.decode()
    assert not asked.context["ready"]
    page = send(operator, act("resolve-not-executed", found), asked)
    assert "it can be done in 9 min" in said(page) or "it can be done in 10 min" in said(page)
    assert status_of(found) == "unknown"
    assert not LogEntry.objects.exists()


@pytest.mark.django_db
def test_a_message_that_may_be_on_its_way_is_not_sent_again(operator: Client) -> None:
    found = ready("enqueue", locked_until=timezone.now() + timedelta(minutes=10))
    page = confirm(operator, act("enqueue", found))
    assert "it can be done in" in said(page)
    assert trail(found) == []


# The reconciler's answers


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("verdict", "status", "level", "words"),
    [
        (NotLanded(), "failed_retryable", "success", "the next request with this key runs"),
        (Inconclusive(), "unknown", "warning", "could not tell; it asks again"),
    ],
)
def test_what_the_reconciler_says_is_said(
    operator: Client, verdicts: list[Any], verdict: Any, status: str, level: str, words: str
) -> None:
    verdicts[:] = [verdict]
    found = ready("ask-reconciler")
    page = confirm(operator, act("ask-reconciler", found))
    assert words in said(page)
    assert levels(page) == [level]
    assert status_of(found) == status


@pytest.mark.django_db
def test_the_last_try_makes_it_a_dead_letter(operator: Client, verdicts: list[Any]) -> None:
    verdicts[:] = [Inconclusive()]
    found = ready("ask-reconciler", reconcile_attempts=9)
    page = confirm(operator, act("ask-reconciler", found))
    assert "it is a dead letter now" in said(page)
    assert status_of(found) == "dead_letter"


@pytest.mark.django_db
def test_an_operation_without_a_reconciler_has_nobody_to_ask(operator: Client) -> None:
    page = confirm(operator, act("ask-reconciler", ready("ask-reconciler", operation="nobody.knows")))
    assert "There is no reconciler" in said(page)
    assert levels(page) == ["warning"]


@pytest.mark.django_db
def test_what_can_be_gone_on_with_is_not_asked_about(operator: Client) -> None:
    found = ready("ask-reconciler", run_name="rides.create", on_lost_lease="resume")
    assert "the resumer continues" in said(confirm(operator, act("ask-reconciler", found)))


# Somebody was quicker


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", CASES)
def test_a_record_that_moved_on_since_it_was_looked_at(operator: Client, verdicts: list[Any], name: str) -> None:
    """Another connection settles it between the question and the answer."""
    found = ready(name)
    asked = operator.get(act(name, found))
    moved = {
        "status": "in_progress",
        "attempt_token": uuid4(),
        "locked_until": timezone.now() + timedelta(hours=1),
        "expires_at": None,
        "reconcile_after": None,
        "response_status": None,
    }
    with actors(1) as (other,):
        other.do(IdempotencyKey.objects.filter(pk=found).update, **moved)
    page = send(operator, act(name, found), asked)
    assert "This record changed to “in progress” after you opened it" in said(page)
    assert status_of(found) == "in_progress"
    assert trail(found) == []
    assert not LogEntry.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_new_attempt_in_the_same_state_is_another_one(operator: Client) -> None:
    """What the operator knows is about the attempt that was looked at."""
    found = ready("resolve-not-executed")
    asked = operator.get(act("resolve-not-executed", found))
    with actors(1) as (other,):
        other.do(IdempotencyKey.objects.filter(pk=found).update, attempt_token=uuid4())
    assert "This record changed to" in said(send(operator, act("resolve-not-executed", found), asked))
    assert status_of(found) == "unknown"


@pytest.mark.django_db(transaction=True)
def test_a_record_that_is_gone(operator: Client) -> None:
    one, two = ready("expire-now"), ready("expire-now", key="other")
    asked = operator.get(act("expire-now", one, two))
    with actors(1) as (other,):
        other.do(IdempotencyKey.objects.filter(pk=one).delete)
    send(operator, act("expire-now", one, two), asked)
    assert status_of(two) == "expired"


@pytest.mark.vendor
@pytest.mark.django_db(transaction=True)
def test_the_guard_decides_when_both_press_at_once(operator: Client, vendor: str) -> None:
    """The other one has changed the row and not committed: this one waits, and then finds that it lost."""
    if vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    found = ready("try-again")
    asked = operator.get(act("try-again", found))

    with actors(1) as (press,):
        number = press.do(backend)
        with transaction.atomic():
            IdempotencyKey.objects.filter(pk=found).update(status="unknown", reconcile_after=timezone.now())
            pressed = press.start(send, operator, act("try-again", found), asked)
            wait_until(lambda: pressed.done() or is_waiting(number))
        page = pressed.result(60)
    assert "This record changed to “unknown” after you opened it" in said(page)
    assert trail(found) == []
    assert not LogEntry.objects.exists()


@pytest.mark.django_db
def test_pressing_twice_does_it_once(operator: Client) -> None:
    found = ready("try-again")
    asked = operator.get(act("try-again", found))
    send(operator, act("try-again", found), asked)
    page = send(operator, act("try-again", found), asked)
    assert "This record changed to" in said(page)
    assert len(trail(found)) == 1


@pytest.mark.django_db
def test_the_command_and_the_console_leave_the_same_trail(operator: Client) -> None:
    one, two = ready("try-again"), ready("try-again", key="other")
    confirm(operator, act("try-again", one))
    try_again(two, by="operator", reason="asked the bank")
    (pressed,), (typed,) = trail(one), trail(two)
    assert (pressed.kind, pressed.transition) == (typed.kind, typed.transition)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("registrations")
def test_no_transaction_is_open_while_the_reconciler_asks(operator: Client, settings: Any) -> None:
    """Even where the project wraps every request in one."""
    seen: list[bool] = []
    reconciler(OPERATION)(lambda _row: seen.append(connection.in_atomic_block) or Landed(CREATED))  # type: ignore[func-returns-value]
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        confirm(operator, act("ask-reconciler", ready("ask-reconciler")))
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert seen == [False]


@pytest.mark.django_db
@pytest.mark.parametrize("name", CASES)
def test_a_question_about_many_is_cheap(operator: Client, django_assert_max_num_queries: Any, name: str) -> None:
    found = many(30, Status.DEAD_LETTER)
    with django_assert_max_num_queries(8):
        assert operator.get(act(name, *found)).status_code == 200
