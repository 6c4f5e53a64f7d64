"""What to do with a request: every path of `decide` in one table, and the same said by the transition table."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import product
from typing import Any
from uuid import UUID, uuid5

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_idempotency import FingerprintRule, Policy, Reply, Status
from django_idempotency.core.calls import Call, digest_namespace, make_record_id
from django_idempotency.core.decisions import (
    Accepted,
    Decision,
    Execute,
    Exhaust,
    Gone,
    InDoubt,
    InFlight,
    Lapse,
    Mismatch,
    Record,
    Replay,
    Restart,
    TakeOver,
    decide,
)
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.core.policy import AfterExpiry, Expiry
from django_idempotency.core.refs import derive_key, parse_record_id
from django_idempotency.core.states import LostLease
from django_idempotency.core.transitions import TRANSITIONS, Edge, Event, Guard

OURS = RequestParts("POST", "/pay", "", "application/json", b'{"amount": 1}')
THEIRS = replace(OURS, body=b'{"amount": 2}')
OLD = FingerprintRule(secrets={"old": b"o" * 16}, secret_id="old")
NEW = FingerprintRule(secrets={"new": b"n" * 16, "old": b"o" * 16}, secret_id="new")
REPLY = Reply(201, (), b"done")
GONE = Policy(after_expiry=AfterExpiry.GONE, expiry=Expiry.SOFT)
CAP = Policy().attempts

SEALED = seal(OURS, FingerprintRule())
OTHER = {"fingerprint": seal(THEIRS, FingerprintRule())}
OVER = {"expires_in": -1.0}
LIVE, LOST = {"lease_left": 9.5}, {"lease_left": 0.0}
RESTART, RESUME = {"on_lost_lease": LostLease.RESTART}, {"on_lost_lease": LostLease.RESUME}
BY_WORKER = {"deferred": True}
ANSWER = {"reply": REPLY}
S = Status


def record(status: Status, **columns: Any) -> Record:
    columns = {"fingerprint": SEALED, "expires_in": 60.0, **columns}
    return Record(id=make_record_id("scope", "key"), scope="scope", key="key", status=status, **columns)


def call(policy: Policy | None = None, parts: RequestParts = OURS) -> Call:
    policy = policy or Policy()
    return Call("scope", "key", seal(parts, policy.fingerprint), policy, parts=parts)


# The record (its state and what matters of it), the endpoint's policy where it matters, what to do.
PATHS: list[tuple[Record | None, Policy | None, Decision]] = [
    (None, None, Execute()),
    # Retention over: whatever the request says, the past does not count
    *((each := record(status, **OVER, **ANSWER), None, Restart(each)) for status in (S.COMPLETED, S.FAILED)),
    (each := record(S.FAILED_RETRYABLE, **OVER), None, Restart(each)),
    (each := record(S.EXPIRED), None, Restart(each)),
    (each := record(S.EXPIRED, **OTHER), None, Restart(each)),
    (each := record(S.COMPLETED, **OVER, **ANSWER), GONE, Gone(each)),
    (each := record(S.FAILED_RETRYABLE, **OVER), GONE, Gone(each)),
    (each := record(S.EXPIRED, **OTHER), GONE, Gone(each)),
    # Another request under the same key: refused in every other state
    (each := record(S.PENDING, **OTHER, **BY_WORKER), None, Mismatch(each)),
    (each := record(S.IN_PROGRESS, **OTHER, **LIVE), None, Mismatch(each)),
    (each := record(S.IN_PROGRESS, **OTHER, **LOST, **RESTART), None, Mismatch(each)),
    (each := record(S.UNKNOWN, **OTHER), None, Mismatch(each)),
    (each := record(S.DEAD_LETTER, **OTHER), None, Mismatch(each)),
    (each := record(S.FAILED_RETRYABLE, **OTHER), None, Mismatch(each)),
    (each := record(S.COMPLETED, **OTHER, **ANSWER), None, Mismatch(each)),
    (each := record(S.FAILED, **OTHER, **ANSWER), None, Mismatch(each)),
    # A fingerprint that nobody here can compare: telling the client to take a new key would be dangerous
    (each := record(S.COMPLETED, fingerprint="v9:?", **ANSWER), None, InDoubt(each, dead=False)),
    (each := record(S.COMPLETED, fingerprint=seal(OURS, OLD), **ANSWER), None, InDoubt(each, dead=False)),
    # A fingerprint sealed with an older secret that is still known
    (each := record(S.COMPLETED, fingerprint=seal(OURS, OLD), **ANSWER), Policy(fingerprint=NEW), Replay(each, REPLY)),
    (each := record(S.COMPLETED, fingerprint=seal(THEIRS, OLD), **ANSWER), Policy(fingerprint=NEW), Mismatch(each)),
    # Given back: the client may correct its request
    (each := record(S.FAILED_RETRYABLE, fingerprint="", attempts=0), None, Restart(each)),
    # Running
    (each := record(S.IN_PROGRESS, **LIVE), None, InFlight(each, 2)),
    (each := record(S.IN_PROGRESS, **LIVE, **RESTART), None, InFlight(each, 2)),
    (each := record(S.IN_PROGRESS, lease_left=0.2), None, InFlight(each, 1)),
    (each := record(S.IN_PROGRESS, lease_left=1.2), None, InFlight(each, 2)),
    (each := record(S.IN_PROGRESS, **LIVE), Policy(retry_hint=timedelta(seconds=30)), InFlight(each, 10)),
    # Lost
    (each := record(S.IN_PROGRESS, **LOST), None, Lapse(each)),
    (each := record(S.IN_PROGRESS, **LOST, **RESTART), None, TakeOver(each)),
    (each := record(S.IN_PROGRESS, **LOST, **RESUME), None, TakeOver(each)),
    # In doubt
    (each := record(S.UNKNOWN), None, InDoubt(each, dead=False)),
    (each := record(S.UNKNOWN, **RESTART), None, TakeOver(each)),
    (each := record(S.DEAD_LETTER), None, InDoubt(each, dead=True)),
    (each := record(S.DEAD_LETTER, **RESTART), None, InDoubt(each, dead=True)),
    (each := record(S.DEAD_LETTER, **BY_WORKER), None, InDoubt(each, dead=True)),
    # Proven not executed
    (each := record(S.FAILED_RETRYABLE, attempts=CAP - 1), None, Restart(each)),
    (each := record(S.FAILED_RETRYABLE, attempts=CAP), None, Exhaust(each)),
    (each := record(S.FAILED_RETRYABLE, attempts=CAP, expires_in=None), None, Exhaust(each)),
    # A worker does the work
    (each := record(S.PENDING, **BY_WORKER, **LIVE), None, Accepted(each, 2)),
    (each := record(S.PENDING, **BY_WORKER, **LOST, **OVER), None, Accepted(each, 1)),
    (each := record(S.IN_PROGRESS, **BY_WORKER, **LIVE), None, Accepted(each, 2)),
    (each := record(S.IN_PROGRESS, **BY_WORKER, **LOST), None, Lapse(each)),
    (each := record(S.IN_PROGRESS, **BY_WORKER, **LOST, **RESUME), None, Lapse(each)),
    (each := record(S.UNKNOWN, **BY_WORKER), None, Accepted(each, 2)),
    (each := record(S.UNKNOWN, **BY_WORKER, **RESUME), None, Accepted(each, 2)),
    # Ended
    (each := record(S.COMPLETED, **ANSWER), None, Replay(each, REPLY)),
    (each := record(S.COMPLETED, expires_in=None, **ANSWER), GONE, Replay(each, REPLY)),
    (each := record(S.FAILED, **ANSWER), None, Replay(each, REPLY)),
]


def test_every_path() -> None:
    decided = ((decide(found, call(policy)), decision) for found, policy, decision in PATHS)
    wrong = [f"{decision}, and not {expected}" for decision, expected in decided if decision != expected]
    assert not wrong, "\n".join(wrong)


def test_the_same_text_needs_no_parts() -> None:
    """Parts are only for fingerprints that were sealed in another way."""
    found = record(S.COMPLETED, **ANSWER)
    assert decide(found, replace(call(), parts=None)) == Replay(found, REPLY)
    assert decide(found, replace(call(parts=THEIRS), parts=None)) == Mismatch(found)


@pytest.mark.parametrize("stored", [seal(OURS, OLD), SEALED.replace("v3:", "v4:")])
@pytest.mark.parametrize("parts", [OURS, None])
def test_a_fingerprint_that_cannot_be_read_is_not_another_request(stored: str, parts: RequestParts | None) -> None:
    """A process with another release or other secrets wrote it, as during a deployment."""
    found = record(S.COMPLETED, fingerprint=stored, **ANSWER)
    assert decide(found, replace(call(), parts=parts)) == InDoubt(found, dead=False)


# The table says the same

CHANGES = {
    Restart: {("T15", S.IN_PROGRESS), ("T16'", S.IN_PROGRESS)},
    Exhaust: {("T15", S.FAILED), ("T15d", S.DEAD_LETTER)},
    TakeOver: {("T7", S.IN_PROGRESS)},
    Lapse: {("T6", S.UNKNOWN)},
}
UNCHANGED = {Replay: "T16", InFlight: "T2", Accepted: "D4"}


def every_record() -> Iterator[Record]:
    for status, lease, expiry, resumable, deferred, attempts in product(
        Status, (-1.0, 1.0), (-1.0, 1.0), LostLease, (False, True), (1, CAP)
    ):
        if status is S.PENDING and not deferred:
            continue
        yield record(
            status,
            lease_left=lease if status in (S.PENDING, S.IN_PROGRESS) else None,
            expires_in=expiry,
            on_lost_lease=resumable,
            deferred=deferred,
            attempts=attempts,
            reply=REPLY if status in (S.COMPLETED, S.FAILED) else None,
        )


def guards_that_hold(found: Record) -> set[Guard]:
    """What the table may ask about a record when a request comes."""
    return {
        Guard.TOKEN_AS_READ,
        Guard.LEASE_OVER if found.lease_over else Guard.LEASE_LIVE,
        Guard.RESUMABLE if found.resumable else Guard.NOT_RESUMABLE,
        Guard.DEFERRED if found.deferred else Guard.NOT_DEFERRED,
        Guard.RETENTION_OVER if found.retention_over else Guard.RETAINED,
        Guard.TRACE if found.traced else Guard.NO_TRACE,
        Guard.ATTEMPTS_LEFT if found.attempts < CAP else Guard.NO_ATTEMPTS_LEFT,
    }


def rows_of(decision: Decision) -> set[tuple[str, Any]]:
    """The rows of the table that say so, each with the state that it leads to."""
    if isinstance(decision, InDoubt):
        return {("T17" if decision.dead else "T8", Edge.SAME)}
    if type(decision) in UNCHANGED:
        return {(UNCHANGED[type(decision)], Edge.SAME)}
    return CHANGES[type(decision)]


def test_each_decision_is_a_row_of_the_table_that_holds() -> None:
    for found in every_record():
        possible = {
            (each.cite, each.target)
            for each in TRANSITIONS
            if each.event in (Event.REQUEST, Event.TAKE_OVER, Event.LAPSE)
            and found.status in each.sources
            and each.guards <= guards_that_hold(found)
        }
        assert possible & rows_of(decide(found, call())), found


# Identity


def test_the_id_of_a_record_never_changes() -> None:
    """Every deployment and every version must find the records of the others."""
    assert make_record_id("scope", "key") == UUID("89d8b90f-1487-564d-a89f-0b9861fad0c8")
    assert call().id == make_record_id("scope", "key")


@pytest.mark.slow
@given(st.text(), st.text(), st.text(), st.text())
def test_ids_are_told_apart_by_scope_and_key(scope: str, key: str, other_scope: str, other_key: str) -> None:
    same = (scope, key) == (other_scope, other_key)
    assert (make_record_id(scope, key) == make_record_id(other_scope, other_key)) is same
    assert make_record_id(scope, key).version == 5


def test_where_scope_ends_and_key_begins_counts() -> None:
    assert make_record_id("ab", "c") != make_record_id("a", "bc")


def test_derived_keys_differ_by_step_and_lead_back_to_the_record() -> None:
    found = make_record_id("scope", "key")
    keys = {derive_key(found, namespace, step) for namespace in ("here", "there") for step in ("charge", "mail")}
    assert len(keys) == 4
    assert {parse_record_id(key) for key in keys} == {found}
    assert derive_key(uuid5(found, "other"), "here", "charge") not in keys


def test_a_derived_key_never_changes() -> None:
    """A later version has to find the charge that an earlier one asked for."""
    found, namespace = make_record_id("scope", "key"), digest_namespace("production")
    assert namespace == "ab8e18ef4ebe"
    assert derive_key(found, namespace, "charge") == "89d8b90f-1487-564d-a89f-0b9861fad0c8-ab8e18ef4ebe-charge"


@given(st.text(), st.text(st.characters(), min_size=1), st.text())
@example("", "production", "x" * 205)
@example("", "production", "x" * 206)
@example("", "production", 'charge "twice"')
def test_every_derived_key_fits_into_a_header(key: str, namespace: str, step: str) -> None:
    derived = derive_key(make_record_id("scope", key), digest_namespace(namespace), step)
    assert len(derived) <= 255
    assert re.fullmatch(r"[!-~]+", derived)
    assert not set(derived) & {'"', "\\"}


@given(st.text(), st.text())
def test_no_two_steps_share_a_derived_key(step: str, other: str) -> None:
    record = make_record_id("scope", "key")
    assert (derive_key(record, "here", step) == derive_key(record, "here", other)) is (step == other)
