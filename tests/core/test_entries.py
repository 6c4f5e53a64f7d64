"""The entries of the replay cache: what they keep of a record, for how long, and that nobody else can make one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from django_idempotency import Policy, Reply, Status
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Record
from django_idempotency.core.entries import CachedRecord, make_name, open_entry, seal_entry
from django_idempotency.core.states import LostLease

SECRET, OTHER = b"a secret of this installation", b"a secret of another one"
NAME = make_name(["default"], UUID(int=7), SECRET)
CALL = Call("scope", "key", "fingerprint", Policy())
RECORD = Record(
    id=CALL.id,
    scope=CALL.scope,
    key=CALL.key,
    status=Status.COMPLETED,
    fingerprint="v1:fingerprint",
    token=uuid4(),
    attempts=3,
    tainted=True,
    derived=True,
    wrote=True,
    steps_done=2,
    deferred=True,
    namespace="9f86d081884c",
    on_lost_lease=LostLease.RESUME,
    grace_left=10.5,
    expires_in=3600.0,
    ran_ago=1.5,
    age=2.5,
    reply=Reply(201, (("Link", "</a>"), ("Link", '</b>; title="ä\n"')), b"\x00\xff\nbody\n", 4),
)
ASKED = 1_000_000.0


def opened(record: Record) -> CachedRecord | None:
    return open_entry(seal_entry(CachedRecord.of(record, ASKED), NAME, SECRET), NAME, SECRET, CALL)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"token": None, "grace_left": None, "expires_in": None, "ran_ago": None, "age": None, "fingerprint": ""},
        {
            "tainted": False,
            "derived": False,
            "wrote": False,
            "steps_done": 0,
            "deferred": False,
            "on_lost_lease": LostLease.UNKNOWN,
            "namespace": "",
        },
        {"reply": Reply(204, (), b"")},
        {"reply": Reply(200, (("Content-Type", "text/html"),), None)},
    ],
)
def test_an_entry_keeps_all_that_a_record_says(changes: dict[str, Any]) -> None:
    record = replace(RECORD, **changes)
    entry = opened(record)
    assert entry is not None
    assert entry.record == record == entry.record_at(ASKED)


def test_times_go_on() -> None:
    later = CachedRecord.of(RECORD, ASKED).record_at(ASKED + 4)
    assert later == replace(RECORD, grace_left=6.5, expires_in=3596.0, ran_ago=5.5, age=6.5)


@pytest.mark.parametrize(("expires_in", "lives"), [(None, 300), (3600.0, 300), (305.0, 300), (65.0, 60), (5.5, 0.5)])
def test_an_entry_ends_before_its_record_expires_and_soon(expires_in: float | None, lives: float) -> None:
    entry = CachedRecord.of(replace(RECORD, expires_in=expires_in), ASKED)
    assert entry.until == ASKED + lives
    assert entry.record_at(entry.until) is None
    assert entry.record_at(entry.until - 0.1) is not None


def test_a_clock_that_is_far_behind_uses_no_entry() -> None:
    entry = CachedRecord.of(RECORD, ASKED)
    assert entry.record_at(ASKED - 5) is not None
    assert entry.record_at(ASKED - 5.1) is None


def test_one_other_byte_anywhere_makes_it_nothing() -> None:
    sealed = seal_entry(CachedRecord.of(RECORD, ASKED), NAME, SECRET)
    for at in range(len(sealed)):
        forged = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        assert open_entry(forged, NAME, SECRET, CALL) is None
        assert open_entry(sealed[:at], NAME, SECRET, CALL) is None


@pytest.mark.parametrize("value", [None, "text", 5, b"", b"x" * 31, b"x" * 32, [b"x"], memoryview(b"x" * 64)])
def test_a_value_that_is_no_entry_is_ignored(value: object) -> None:
    assert open_entry(value, NAME, SECRET, CALL) is None


def test_an_entry_counts_under_its_name_and_with_its_secret_only() -> None:
    sealed = seal_entry(CachedRecord.of(RECORD, ASKED), NAME, SECRET)
    assert open_entry(sealed, NAME, SECRET, CALL) is not None
    assert open_entry(sealed, make_name(["default"], UUID(int=8), SECRET), SECRET, CALL) is None
    assert open_entry(sealed, NAME, OTHER, CALL) is None


def test_names_differ_by_environment_record_and_secret() -> None:
    names = [
        make_name(environment, record, secret)
        for environment in (["a", "b"], ["ab"], ["a", "", "b"])
        for record in (UUID(int=7), UUID(int=8))
        for secret in (SECRET, OTHER)
    ]
    assert len({*names}) == 12
