"""What a database must keep for the package to keep its word, each as a function that tries it under a reserved key.

The statements are the package's own. A promise that does not hold raises `Broken` with what was seen, and where.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from time import monotonic, sleep
from typing import Any, Final
from uuid import UUID, uuid4

from django_idempotency.core.audit import Kind
from django_idempotency.core.calls import Call, make_record_id
from django_idempotency.core.decisions import Replay, decide
from django_idempotency.core.fingerprint import FingerprintRule, RequestParts, seal
from django_idempotency.core.policy import Policy
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import LostLease, Status
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.places import NAMESPACE, Broken, Place, race
from django_idempotency.monitoring.rules import CLOCK_SECONDS
from django_idempotency.store import attempts, claims, deletion, events, jobs, operations, verdicts
from django_idempotency.store.dialects import Statement
from django_idempotency.store.limits import may_repeat
from django_idempotency.store.records import reply_values

REPEATS: Final = 50  # of a check that fails only sometimes
_LEASE: Final = timedelta(seconds=30)
_SHORT: Final = timedelta(seconds=1)
_KEY: Final = "idempotency_doctor"
_REPLY: Final = Reply(201, (("Content-Type", "application/octet-stream"),), b"\x00\xff proof")
_FINGERPRINT: Final = seal(RequestParts("POST", "/", "", "", b"proof"), FingerprintRule())
_VALUES: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("arguments", "code", "progress", "recovery_point", "run_name"), ""),
    **dict.fromkeys(("cap", "pick_up", "since", "steps_done", "then", "wait"), 1),
    "read_token": uuid4(),
    **dict.fromkeys(("counts", "derived", "success", "wrote"), True),
}


class _Undo(Exception):
    """Rolls a transaction back."""


def _one_winner(places: Sequence[Place]) -> None:
    """Of the connections that claim a key at the same time one wins, and the others are shown its record."""
    calls = [_call("one_winner", number) for number in range(REPEATS)]
    for call, outcomes in zip(calls, race(places, calls), strict=True):
        winners = [token for token, outcome in outcomes if outcome is None]
        if len(winners) > 1:
            raise Broken(f"{len(winners)} of {len(places)} connections that claimed one key won it.")
        for _token, outcome in outcomes:
            if isinstance(outcome, Broken):
                raise outcome
            if outcome is not None and outcome.token not in winners:
                raise Broken("A connection that lost was shown another record than the winner's.")
        rows = places[0].do(IdempotencyKey.objects.using(places[0].alias).filter(id=call.id).count)
        if rows != 1:
            raise Broken(f"A key that one connection won has {rows} records.")


def _seen_everywhere(places: Sequence[Place]) -> None:
    """What was committed over one connection is seen at once over every other, and all clocks tell one time."""
    for number in range(REPEATS):
        place, call = places[number % len(places)], _call("seen_everywhere", number)
        token, left = _claim(place, call), list[float]()
        for other in places:
            record = other.find(call)
            if record is None or record.token != token or record.lease_left is None:
                raise Broken(f"{other.host} does not see what was committed at {place.host}.")
            left.append(record.lease_left)
        if max(left) - min(left) > CLOCK_SECONDS:
            raise Broken(f"The clocks of the hosts are {max(left) - min(left):.1f} s apart.")


def _transactions(places: Sequence[Place]) -> None:
    """No other connection sees what is not committed, and what is rolled back is gone."""
    one = places[0]
    call = _call("transactions")
    token = _claim(one, call)
    try:
        with one.transaction():
            if not one.do(attempts.complete, call.ref(one.alias), token, _REPLY, success=True):
                raise Broken("An attempt could not store its response.")
            for other in places[1:]:
                _forbid(other, call, Status.COMPLETED, "A response is seen before it is committed.")
            raise _Undo
    except _Undo:
        _forbid(one, call, Status.COMPLETED, "A response is there that was rolled back.")


def _replay(places: Sequence[Place]) -> None:
    """The owner of an attempt stores one response, and every connection reads its bytes."""
    one, call = places[0], _call("replay")
    token = _claim(one, call)

    def complete(token: UUID) -> bool:
        return one.do(attempts.complete, call.ref(one.alias), token, _REPLY, success=True)

    if complete(uuid4()):
        raise Broken("An attempt ended a record that is not its own.")
    if not complete(token):
        raise Broken("An attempt could not store its response.")
    if complete(token):
        raise Broken("An attempt stored two responses.")
    for place in places:
        _require_replay(place, call)


def _lease(places: Sequence[Place]) -> None:
    """A lease ends when its time is over and not before, once; its owner may still store a response that comes late."""
    one, two = places[:2]
    call = _call("lease", lease=_SHORT)
    token, ref = _claim(one, call), call.ref(two.alias)
    if two.do(jobs.mark_lapsed, ref):
        raise Broken("A lease ended before its time.")
    with one.overlapping_transaction():
        one.find(call)  # whatever it sees from now on, its response is stored in the record as it is then
        _wait_for_the_lease(two, call)
        two.do(jobs.find_lost, 1, two.alias)
        two.do(events.audit, partial(jobs.mark_lapsed, ref), ref, Kind.LEASE_EXPIRED)
        _forbid(two, call, Status.IN_PROGRESS, "A lease ran out and its record is still in progress.")
        if not one.do(attempts.complete, call.ref(one.alias), token, _REPLY, success=True):
            raise Broken("An attempt could not store its response after its lease.")
    _require_replay(two, call)


def _fence(places: Sequence[Place]) -> None:
    """An attempt that gave its key up, or whose key was taken over, cannot end the record."""
    one, two = places[:2]
    call = _call("fence", lease=_SHORT, on_lost_lease=LostLease.RESTART)
    first, second, third = _claim(one, call), uuid4(), uuid4()
    here, there = call.ref(one.alias), call.ref(two.alias)
    if not one.do(attempts.free_key, here, first, "proof"):
        raise Broken("An attempt could not free its key.")
    if not two.do(claims.retry, call, first, second, two.alias):
        raise Broken("A key that was freed could not be claimed again.")
    _wait_for_the_lease(one, call)
    if not one.do(claims.take_over, here, second, third, int(_LEASE.total_seconds()), 1):
        raise Broken("An attempt whose lease ran out could not be taken over.")
    for lost in (first, second):
        if two.do(attempts.complete, there, lost, _REPLY, success=True):
            raise Broken("A lost attempt ended the record of the one that followed.")
    if not one.do(attempts.complete, here, third, _REPLY, success=True):
        raise Broken("An attempt that followed a lost one could not store its response.")


def _atomic(places: Sequence[Place]) -> None:
    """Of two transactions that store the finished record of one key, one commits."""
    one, two = places[:2]
    call = _call("atomic")
    try:
        with two.overlapping_transaction():
            two.do(claims.look, call, two.alias)
            with one.transaction():
                if not _insert_finished(one, call):
                    raise Broken("A key without a record could not be claimed in a transaction.")
            if _insert_finished(two, call):
                raise Broken("Two transactions stored the finished record of one key.")
    except Broken as broken:
        if broken.__cause__ is None or not may_repeat(broken.__cause__):  # else the whole transaction runs again
            raise
    _require_replay(two, call)


def _reaping(places: Sequence[Place]) -> None:
    """A response is kept until its time is over, then deleted everywhere, and the key is new."""
    one, two = places[:2]
    call = _call("reaping")
    token = _claim(one, call)
    delete = partial(two.do, deletion.delete, [call.ref(two.alias)], two.alias)
    one.do(attempts.complete, call.ref(one.alias), token, _REPLY, success=True)
    if delete():
        raise Broken("A response was deleted before its time.")
    if not one.do(jobs.expire_now, call.ref(one.alias)):
        raise Broken("A stored response could not expire.")
    two.do(jobs.find_past, 1, two.alias)
    delete()  # nothing is left to delete where the reaper was quicker
    for place in places:
        if place.find(call) is not None:
            raise Broken(f"{place.host} still sees a record that was deleted.")
    _claim(two, call)


def _statements(places: Sequence[Place]) -> None:
    """The database takes every statement that changes a record. Here there is no record to change."""
    one, call = places[0], _call("statements")
    values = {**claims.identity(call, uuid4()), **reply_values(_REPLY), **_VALUES}
    for module in (claims, attempts, operations, verdicts, jobs):
        for statement in vars(module).values():
            if isinstance(statement, Statement) and statement.text(one.template.vendor).startswith("UPDATE"):
                one.do(statement.run, one.alias, **values)


PROMISES: Final[Mapping[str, Callable[[Sequence[Place]], None]]] = {
    "one_winner": _one_winner,
    "seen_everywhere": _seen_everywhere,
    "transactions": _transactions,
    "replay": _replay,
    "lease": _lease,
    "fence": _fence,
    "atomic": _atomic,
    "reaping": _reaping,
    "statements": _statements,
}


def _call(promise: str, number: int = 0, *, lease: timedelta = _LEASE, **policy: Any) -> Call:
    """Return the call of a reserved key. Each is in a scope of its own, so that a distributed table uses all nodes."""
    made = Policy(lease=lease, grace=_SHORT, retention=timedelta(hours=1), **policy)
    return Call(_scope(promise, number), _KEY, _FINGERPRINT, made, operation=_KEY)


def _scope(promise: str, number: int) -> str:
    return f"doctor:{promise}:{number}"  # no request has it: its scopes begin with a number


def _claim(place: Place, call: Call) -> UUID:
    token = uuid4()
    if place.claim(call, token) is not None:
        raise Broken(f"{place.host}: a key without a record could not be claimed.")
    return token


def _insert_finished(place: Place, call: Call) -> bool:
    return place.do(claims.insert_finished, call, uuid4(), _REPLY, place.alias, namespace=NAMESPACE)


def _forbid(place: Place, call: Call, status: Status, otherwise: str) -> None:
    record = place.find(call)
    if record is not None and record.status is status:
        raise Broken(f"{place.host}: {otherwise}")


def _require_replay(place: Place, call: Call) -> None:
    decision = decide(place.find(call), call)
    if not isinstance(decision, Replay) or decision.reply != _REPLY:
        raise Broken(f"{place.host}: a repeat is not given the stored response.")


def _wait_for_the_lease(place: Place, call: Call) -> None:
    deadline = monotonic() + 5 * _SHORT.total_seconds()
    while (record := place.find(call)) is None or not record.lease_over:
        if monotonic() > deadline:
            raise Broken(f"{place.host}: a lease does not run out.")
        sleep(0.05)


def reserved_records() -> list[UUID]:
    """Return the ids of all records that a proof may write."""
    return [make_record_id(_scope(promise, number), _KEY) for promise in PROMISES for number in range(REPEATS)]
