from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction

from django_idempotency import Reply, json_reply, maintenance
from django_idempotency.core.keys import LONGEST, fit_to_column
from django_idempotency.exceptions import (
    AlreadyFinished,
    EndedWithoutResult,
    IdempotencyError,
    InsideTransaction,
    InvalidKey,
    KeyExpired,
    KeyReused,
    LostFence,
    Misplaced,
    NotExecuted,
    OutcomeUnknown,
    StillRunning,
    UnreadableReply,
)
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim, once
from django_idempotency.reconciliation import Landed, NotLanded, resolve
from testproject.payments.models import LedgerEntry
from tests.kit.threads import wait_until
from tests.once.works import SCOPE, Work, finishing

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]
committed = pytest.mark.django_db(transaction=True)
both_modes = pytest.mark.parametrize("mode", ["leased", "atomic"])
RESULT = {"total": 7, "lines": [1, None, "ü"]}


@committed
@both_modes
def test_it_runs_once_and_every_caller_gets_the_result(mode: str) -> None:
    work = Work(RESULT)

    results = [once(**work.arguments, mode=mode, payload={"a": 1, "b": 2}) for _ in range(3)]

    assert results == [RESULT] * 3
    assert (work.bookings, work.record.status, work.record.operation) == (1, "completed", SCOPE)


@both_modes
@pytest.mark.parametrize(
    ("result", "given"),
    [
        (None, None),
        ((1, 2), [1, 2]),
        ({1: date(2026, 11, 30)}, {"1": "2026-11-30"}),
        (Decimal("7.10"), "7.10"),
        ("", ""),
        (False, False),
    ],
)
def test_the_first_caller_gets_what_the_later_ones_get(mode: str, result: Any, given: Any) -> None:
    work = Work(result)
    assert [once(**work.arguments, mode=mode) for _ in range(2)] == [given, given]


def test_scopes_keep_their_keys_apart() -> None:
    work = Work()
    for scope in ("one", "two"):
        once(scope=scope, key=work.key, run=work)
    assert work.bookings == 2


@both_modes
@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"a": 1, "b": 2.0}, {"b": 2, "a": 1}, True),
        ({"day": date(2026, 11, 30)}, {"day": "2026-11-30"}, True),
        (b'{"a": 1}', b'{"a":1}', True),
        (b"\xff", b"\xff", True),
        (b"\xff", b"\xfe", False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, None, False),
        ({"a": 1}, {"a": "1"}, False),
    ],
)
def test_another_payload_under_the_same_key_is_refused(mode: str, first: Any, second: Any, same: bool) -> None:
    work = Work("done")
    once(**work.arguments, mode=mode, payload=first)
    if same:
        assert once(**work.arguments, mode=mode, payload=second) == "done"
    else:
        with pytest.raises(KeyReused, match=str(work.record.id)):
            once(**work.arguments, mode=mode, payload=second)
    assert work.bookings == 1


def test_another_payload_while_the_first_work_runs_warns_against_a_new_key() -> None:
    work = Work()

    def run(_: Claim) -> str:
        with pytest.raises(KeyReused, match="Do not use a new key") as refused:
            once(**{**work.arguments, "run": run}, mode="leased", payload=2)
        assert not refused.value.safe_new_key
        return "done"

    assert once(**{**work.arguments, "run": run}, mode="leased", payload=1) == "done"
    with pytest.raises(KeyReused, match="took effect") as settled:
        once(**work.arguments, payload=2)
    assert (settled.value.effect, settled.value.safe_new_key) == ("done", False)


def test_another_operation_under_the_same_key_is_refused() -> None:
    work = Work()
    once(**work.arguments, operation="invoices.send")
    with pytest.raises(KeyReused):
        once(**work.arguments, operation="invoices.delete")


def test_while_it_runs_nobody_else_does() -> None:
    work = Work()
    errors: list[StillRunning] = []

    def run(claim: Claim) -> None:
        with pytest.raises(StillRunning) as caught:
            once(**work.arguments)
        errors.append(caught.value)

    once(scope=SCOPE, key=work.key, run=run)
    assert (errors[0].retry_after, work.bookings) == (2, 0)


@committed
@pytest.mark.parametrize("error", [RuntimeError("planned"), KeyboardInterrupt(), SystemExit()], ids=repr)
def test_what_fails_in_leased_mode_is_in_doubt_until_it_is_settled(error: BaseException) -> None:
    work = Work(raises=error)
    with pytest.raises(type(error)):
        once(**work.arguments)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match=f"reconciler.*{work.record.id}"):
            once(**work.arguments)
    assert (work.bookings, work.record.status) == (1, "unknown")

    resolve(work.record.id, Landed(json_reply(200, "settled")), by="ops")
    assert once(**work.arguments) == "settled"


@committed
def test_what_fails_in_atomic_mode_leaves_nothing_and_runs_afresh() -> None:
    work = Work("done", raises=RuntimeError("planned"))
    with pytest.raises(RuntimeError, match="planned"):
        once(**work.arguments, mode="atomic")
    assert (work.bookings, IdempotencyKey.objects.count()) == (0, 0)
    work.raises = None
    assert once(**work.arguments, mode="atomic") == "done"
    assert work.bookings == 1


@pytest.mark.parametrize(
    ("error", "arguments"),
    [(NotExecuted(), {}), (ValueError("planned"), {"not_executed": lambda error: isinstance(error, ValueError)})],
    ids=["NotExecuted", "the policy's proof"],
)
def test_proof_that_nothing_happened_sets_the_key_free(error: Exception, arguments: dict[str, Any]) -> None:
    work = Work("done", raises=error)
    with pytest.raises(type(error)):
        once(**work.arguments, **arguments)
    assert work.record.status == "failed_retryable"
    work.raises = None
    assert once(**work.arguments, **arguments) == "done"


def test_a_key_that_was_tried_too_often_ends_without_a_result() -> None:
    work = Work(raises=NotExecuted())
    for _ in range(2):
        with pytest.raises(NotExecuted):
            once(**work.arguments, attempts=2)
    for _ in range(2):
        with pytest.raises(EndedWithoutResult, match=str(work.record.id)):
            once(**work.arguments, attempts=2)
    assert work.bookings == 2


def test_a_lost_lease_is_in_doubt() -> None:
    work = Work()

    def run(claim: Claim) -> None:
        work.age("locked_until")
        once(**work.arguments)

    with pytest.raises(OutcomeUnknown):
        once(scope=SCOPE, key=work.key, run=run)
    assert (work.bookings, work.record.status) == (0, "unknown")


def test_work_that_is_safe_to_restart_is_taken_over_with_the_same_derived_key() -> None:
    work, keys = Work(), []

    def run(claim: Claim) -> str:
        keys.append((claim.derive("charge"), claim.is_repeat))
        if not claim.is_repeat:
            raise RuntimeError("planned")
        return "done"

    with pytest.raises(RuntimeError):
        once(scope=SCOPE, key=work.key, run=run, on_lost_lease="restart")
    assert once(scope=SCOPE, key=work.key, run=run, on_lost_lease="restart") == "done"
    assert keys == [(work.record.derive("charge"), False), (work.record.derive("charge"), True)]


@pytest.mark.parametrize("error", [OutcomeUnknown, LostFence])
def test_what_fails_over_another_keys_doubt_is_in_doubt_itself(error: type[Exception]) -> None:
    """Nobody runs it any more, so nobody waits for its lease."""

    def outer(claim: Claim) -> None:
        raise error("the other key's")

    with pytest.raises(error):
        once(scope="outer", key="k", run=outer)
    assert IdempotencyKey.objects.get(operation="outer").status == "unknown"


def test_a_dead_letter_says_that_a_person_has_to_look() -> None:
    work = Work(raises=RuntimeError("planned"))
    with pytest.raises(RuntimeError):
        once(**work.arguments)
    IdempotencyKey.objects.update(status="dead_letter", reconcile_after=None)
    with pytest.raises(OutcomeUnknown, match=f"An operator has to settle record {work.record.id}"):
        once(**work.arguments)


@both_modes
def test_after_its_retention_it_runs_as_new_or_is_refused(mode: str) -> None:
    work = Work()
    once(**work.arguments, mode=mode, retention=timedelta(hours=1))
    work.age("expires_at")
    with pytest.raises(KeyExpired, match=str(work.record.id)):
        once(**work.arguments, mode=mode, after_expiry="gone", expiry="soft")
    once(**work.arguments, mode=mode)
    assert work.bookings == 2


@committed
def test_finish_makes_the_writes_and_the_completion_together() -> None:
    work = Work()
    inside: list[bool] = []

    def write() -> list[str]:
        inside.append(connection.in_atomic_block)
        work(None)  # type: ignore[arg-type]
        return ["booked"]

    def run(claim: Claim) -> Any:
        inside.append(connection.in_atomic_block)
        return claim.finish(write)

    assert once(scope=SCOPE, key=work.key, run=run) == ["booked"]
    assert once(scope=SCOPE, key=work.key, run=finishing(write)) == ["booked"]
    assert (inside, work.bookings) == ([False, True], 1)


def test_what_finish_wrote_is_the_result_whatever_is_returned() -> None:
    work = Work()
    assert [once(scope=SCOPE, key=work.key, run=finishing(lambda: "kept")) for _ in range(2)] == ["kept", "kept"]


def test_what_fails_after_finish_takes_nothing_back() -> None:
    work = Work()

    def run(claim: Claim) -> None:
        claim.finish(lambda: work.__call__(claim) or "kept")
        raise RuntimeError("planned")

    with pytest.raises(RuntimeError):
        once(scope=SCOPE, key=work.key, run=run)
    assert (once(**work.arguments), work.bookings) == ("kept", 1)


def test_finish_is_called_once() -> None:
    with pytest.raises(AlreadyFinished):
        once(scope=SCOPE, key=Work().key, run=lambda claim: (claim.finish(int), claim.finish(int)))


@committed
def test_a_write_that_fails_rolls_back_and_leaves_doubt() -> None:
    work = Work(raises=RuntimeError("planned"))
    with pytest.raises(RuntimeError):
        once(scope=SCOPE, key=work.key, run=lambda claim: claim.finish(lambda: work(claim)))
    assert (work.bookings, work.record.status) == (0, "unknown")


@pytest.mark.parametrize("call", ["finish", "extend"])
def test_atomic_mode_has_no_line_to_draw(call: str) -> None:
    with pytest.raises(Misplaced, match=rf"{call}\(\) needs mode='leased'"):
        once(scope=SCOPE, key="k", mode="atomic", run=lambda claim: getattr(claim, call)(int))


def test_a_lease_may_be_extended() -> None:
    work = Work()
    ends: list[datetime] = []

    def note() -> None:
        assert work.record.locked_until
        ends.append(work.record.locked_until)

    def run(claim: Claim) -> None:
        note()
        for lease in (timedelta(hours=2), None):
            claim.extend(lease)
            note()
        assert str(work.record.id) == claim.reference

    once(scope=SCOPE, key=work.key, run=run, lease=timedelta(hours=1))
    assert ends[1] - ends[0] > timedelta(minutes=50) < ends[1] - ends[2]


@pytest.mark.slow
@committed
def test_a_heartbeat_extends_the_lease_while_it_runs() -> None:
    work = Work("done")

    def run(claim: Claim) -> str:
        first = work.record.locked_until
        wait_until(lambda: work.record.locked_until != first)
        return "done"

    arguments: Any = {"lease": timedelta(seconds=3), "heartbeat": timedelta(minutes=5)}
    assert once(scope=SCOPE, key=work.key, run=run, **arguments) == "done"


@committed
@both_modes
def test_inside_a_transaction_it_refuses(mode: str) -> None:
    work = Work()
    with transaction.atomic(), pytest.raises(InsideTransaction):
        once(**work.arguments, mode=mode)
    assert work.bookings == 0


@pytest.mark.parametrize(
    "reply",
    [Reply(200, (), b"no JSON"), Reply(200, (), None)],
    ids=["no JSON", "omitted"],
)
def test_what_cannot_be_read_is_withheld(reply: Reply) -> None:
    work = Work(raises=RuntimeError("planned"))
    with pytest.raises(RuntimeError):
        once(**work.arguments)
    resolve(work.record.id, Landed(reply), by="ops")
    with pytest.raises(UnreadableReply, match=str(work.record.id)):
        once(**work.arguments)


def test_what_was_settled_without_a_body_has_no_result() -> None:
    work = Work(raises=RuntimeError("planned"))
    with pytest.raises(RuntimeError):
        once(**work.arguments)
    resolve(work.record.id, Landed(Reply(200, (), b"")), by="ops")
    assert once(**work.arguments) is None


def test_what_is_reconciled_runs_again_or_gives_what_landed() -> None:
    work = Work("done", raises=RuntimeError("planned"))
    with pytest.raises(RuntimeError):
        once(**work.arguments)
    work.age("grace_until")
    resolve(work.record.id, NotLanded(), by="ops", reason="seen", operator=True)
    work.raises = None
    assert once(**work.arguments) == "done"


@pytest.mark.parametrize(
    ("result", "error"), [({1, 2}, TypeError), (float("nan"), ValueError), (object(), TypeError)], ids=str
)
def test_a_result_that_is_not_json_is_an_error_and_in_atomic_mode_rolls_back(result: Any, error: type) -> None:
    work = Work(result)
    with pytest.raises(error):
        once(**work.arguments, mode="atomic")
    assert (work.bookings, IdempotencyKey.objects.count()) == (0, 0)


@pytest.mark.parametrize("payload", [{1, 2}, float("nan")], ids=str)
def test_a_payload_that_is_not_json_is_an_error_before_anything_runs(payload: Any) -> None:
    work = Work()
    with pytest.raises((TypeError, ValueError)):
        once(**work.arguments, payload=payload)
    assert (work.bookings, IdempotencyKey.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"mode": "eventual"}, ValueError, "mode must be one of"),
        ({"lease": timedelta(0)}, ValueError, "lease"),
        ({"required": False}, TypeError, "once takes no required"),
        ({"transaction": "late"}, TypeError, "once takes no transaction"),
        ({"on_lost_lease": "resume"}, ValueError, "is for operations"),
    ],
)
def test_a_wrong_argument_is_an_error_before_anything_runs(arguments: Any, error: type, said: str) -> None:
    work = Work()
    with pytest.raises(error, match=said):
        once(**work.arguments, **arguments)
    assert work.bookings == 0


@pytest.mark.parametrize("name", ["key", "scope"])
@pytest.mark.parametrize(
    ("value", "reason"), [("", "empty"), (None, "not_text"), (7, "not_text"), (UUID(int=7), "not_text")], ids=repr
)
def test_a_key_or_scope_that_is_none_is_refused(name: str, value: Any, reason: str) -> None:
    work = Work()
    with pytest.raises(InvalidKey, match=name) as caught:
        once(**{**work.arguments, name: value})
    assert (caught.value.reason, work.bookings) == (reason, 0)


ODD = [
    "x" * LONGEST,
    "x" * (LONGEST + 1),
    "x" * 5000,
    "ключ",
    "a b",
    "\x00",
    "\n",
    "\ud800",
    '"quoted"',
    fit_to_column("key", "a b"),
]


@both_modes
def test_odd_keys_and_scopes_are_keys_of_their_own(mode: str) -> None:
    works = [Work(number) for number in range(len(ODD) * 2)]
    places = [*(("s", odd) for odd in ODD), *((odd, "k") for odd in ODD)]
    for _ in range(2):
        for (scope, key), work in zip(places, works, strict=True):
            assert once(scope=scope, key=key, run=work, mode=mode) == work.result
    assert {work.bookings for work in works} == {1}


def test_every_error_has_a_stable_code_of_its_own() -> None:
    kinds: list[type[IdempotencyError]] = [StillRunning, KeyReused, OutcomeUnknown, KeyExpired, EndedWithoutResult]
    codes = [kind.code for kind in kinds]
    assert all(code.startswith("idempotency_") for code in codes)
    assert len(set(codes)) == len(codes)


def test_no_error_names_the_key() -> None:
    work = Work(raises=RuntimeError("planned"))
    with pytest.raises(RuntimeError):
        once(**work.arguments)
    with pytest.raises(OutcomeUnknown) as caught:
        once(**work.arguments)
    assert work.key not in str(caught.value)


def test_a_record_of_a_run_looks_like_any_other() -> None:
    work = Work(RESULT)
    once(**work.arguments, operation="invoices.send")
    row = work.record
    assert (row.scope, row.key, row.operation) == (f"once:{SCOPE}", work.key, "invoices.send")
    assert json.loads(bytes(row.response_body or b"")) == RESULT
    work.age("expires_at")
    assert maintenance.reap()["deleted"] == 1
    assert LedgerEntry.objects.count() == 1
