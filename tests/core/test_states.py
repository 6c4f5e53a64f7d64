"""The states and the table of changes hold together."""

import re

import pytest

from django_idempotency import Status
from django_idempotency.core.transitions import TRANSITIONS, Edge, Event, Guard

CHANGES = [each for each in TRANSITIONS if isinstance(each.target, Status)]


@pytest.mark.parametrize("status", Status)
def test_every_state_has_one_sentence(status: Status) -> None:
    assert re.fullmatch(r"[A-Z][^.]+\.", status.meaning)


def test_every_state_can_be_reached_and_left() -> None:
    assert {each.target for each in CHANGES} == set(Status)
    left = {source for each in TRANSITIONS for source in each.sources if each.target not in (Edge.SAME, source)}
    assert left == set(Status)


def test_every_event_and_every_guard_is_used() -> None:
    assert {each.event for each in TRANSITIONS} == set(Event)
    assert {guard for each in TRANSITIONS for guard in each.guards} == set(Guard)


def test_every_state_answers_a_request() -> None:
    asked = {source for each in TRANSITIONS if each.event is Event.REQUEST for source in each.sources}
    assert asked == set(Status)


def test_what_is_open_or_in_doubt_is_never_deleted() -> None:
    deleted = {source for each in TRANSITIONS if each.target is Edge.DELETED for source in each.sources}
    assert deleted == {Status.COMPLETED, Status.FAILED, Status.FAILED_RETRYABLE, Status.EXPIRED}
    assert not deleted & {*Status.IN_DOUBT, Status.IN_PROGRESS, Status.PENDING}


def test_only_its_owner_ends_a_running_attempt() -> None:
    """Or its lease is over."""
    for each in CHANGES:
        if Status.IN_PROGRESS in each.sources:
            assert each.guards & {Guard.TOKEN_MINE, Guard.LEASE_OVER}, each.cite


def test_nothing_leaves_an_answer_before_its_time() -> None:
    """But for an operator who says so, which is written down."""
    for each in TRANSITIONS:
        if each.sources & Status.TERMINAL and each.target is not Edge.SAME and each.event is not Event.EXPIRE_NOW:
            assert Guard.RETENTION_OVER in each.guards, each.cite


def test_proof_that_nothing_happened_needs_that_nothing_can_happen_any_more() -> None:
    for each in CHANGES:
        if each.target is Status.FAILED_RETRYABLE or (each.target is Status.PENDING and Status.UNKNOWN in each.sources):
            assert each.guards & {Guard.UNTAINTED, Guard.GRACE_OVER}, each.cite


def test_a_verdict_counts_only_for_the_attempt_that_was_asked_about() -> None:
    for each in CHANGES:
        if each.who == "reconciler":
            assert Guard.TOKEN_AS_READ in each.guards, each.cite
