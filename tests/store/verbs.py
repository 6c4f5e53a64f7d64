"""Every function of the store that writes, with the columns that it writes."""

from typing import Final
from uuid import UUID

from django_idempotency import Status
from django_idempotency.core.calls import Call
from django_idempotency.core.refs import Ref
from django_idempotency.core.replies import dump_headers
from django_idempotency.core.states import LostLease
from django_idempotency.core.transitions import Event
from django_idempotency.store import attempts, claims, jobs, operations, verdicts
from tests.kit.rows import GRACE, LEASE, NAMESPACE, REPLY, SCOPE, Row
from tests.store.oracle import UNATTENDED, Facts, Verb, later

ON = "default"
PICK_UP, WAIT = 120, 90.5
WORK: Final[Row] = {"deferred": True, "run_name": "export", "arguments": "[1]", "progress": "[]"}


def at(record: UUID) -> Ref:
    return Ref(SCOPE, record, ON)


def _identity(call: Call, facts: Facts) -> Row:
    policy = call.policy
    return {
        "attempt_token": facts.new_token,
        "fingerprint": call.fingerprint,
        "principal": call.principal,
        "operation": call.operation,
        "request_method": call.method,
        "request_path": call.path,
        "on_lost_lease": policy.on_lost_lease.value,
        "lease_seconds": LEASE,
        "grace_seconds": GRACE,
        "retention_seconds": policy.retention and policy.retention.total_seconds(),
        "audit_seconds": policy.audit.total_seconds() if facts.soft else None,
        "last_run_at": later(0),
        "grace_until": later(LEASE + GRACE),
    }


def _inserted(row: Row, facts: Facts) -> Row:
    call = facts.call
    return {
        "id": call.id,
        "scope": SCOPE,
        "key": call.key,
        "namespace": NAMESPACE,
        "tenant": call.tenant,
        "created_at": later(0),
        **_identity(call, facts),
    }


def _claimed(row: Row, facts: Facts) -> Row:
    return {**_inserted(row, facts), "locked_until": later(LEASE)}


def _answered(row: Row, facts: Facts) -> Row:
    return {
        "response_status": REPLY.status,
        "response_headers": dump_headers(REPLY),
        "response_body": REPLY.body,
        "response_schema_version": REPLY.schema_version,
        "completed_at": later(0),
        "expires_at": later(row["retention_seconds"]),
        "locked_until": None,
        "reconcile_after": None,
    }


def _landed(row: Row, facts: Facts) -> Row:
    return {**_answered(row, facts), "derived": True, "attempt_token": None}


def _finished(row: Row, facts: Facts) -> Row:
    inserted = _inserted(row, facts) | {"last_run_at": None, "grace_until": None}
    return {**inserted, **_answered(inserted, facts), "derived": facts.derives}


def _accepted(row: Row, facts: Facts) -> Row:
    inserted = _inserted(row, facts)
    return {**inserted, **WORK, "locked_until": later(PICK_UP), "expires_at": later(inserted["retention_seconds"])}


def _renewed(row: Row, facts: Facts) -> Row:
    emptied = {"response_status": None, "response_headers": "", "response_body": None, "response_schema_version": None}
    forgotten = {"deferred": False, "run_name": "", "arguments": "", "progress": "", "recovery_point": ""}
    fresh = {"tainted": False, "steps_done": 0, "reconcile_after": None, "reconcile_attempts": 0, "last_error_code": ""}
    fresh |= {"derived": False, "wrote": False}
    times = {"locked_until": later(LEASE), "expires_at": None, "completed_at": None}
    return {**_identity(facts.call, facts), **emptied, **forgotten, **fresh, **times}


def _retried(row: Row, facts: Facts) -> Row:
    """Where steps are done, the operation goes on from them."""
    names = ("run_name", "arguments", "progress", "recovery_point", "steps_done")
    kept = {name: row[name] for name in names} | {"on_lost_lease": "resume"} if row["steps_done"] else {}
    kept |= {"derived": row["derived"], "wrote": row["wrote"]}
    return {**_renewed(row, facts), **kept, "attempts": row["attempts"] + 1}


def _derived(row: Row, facts: Facts) -> Row:
    return {"derived": row["derived"] or facts.derives}


def _freed(row: Row, facts: Facts) -> Row:
    return {"last_error_code": "Oops", "locked_until": None, "expires_at": later(row["retention_seconds"])}


def _disproved(row: Row, facts: Facts) -> Row:
    return {
        "tainted": False,
        "derived": False,
        "reconcile_after": None,
        "reconcile_attempts": 0,
        "expires_at": None if row["steps_done"] else later(row["retention_seconds"]),
    }


def _queued(row: Row, facts: Facts) -> Row:
    return {"locked_until": later(PICK_UP), "expires_at": later(row["retention_seconds"])}


def _deferred(row: Row, facts: Facts) -> Row:
    """What was begun goes on with what stands there."""
    fresh = {name: value if name == "deferred" or not row["run_name"] else row[name] for name, value in WORK.items()}
    done = {"wrote": True, **_derived(row, facts)}
    return {**_queued(row, facts), **fresh, "on_lost_lease": "resume", **done}


def _requeued(row: Row, facts: Facts) -> Row:
    return {**_queued(row, facts), **_derived(row, facts), "last_error_code": "Oops", "attempts": row["attempts"] + 1}


def _doubted(code: str) -> Row:
    return {"last_error_code": code, "locked_until": None, "reconcile_after": later(0)}


def _picked_up(row: Row, facts: Facts) -> Row:
    lease, grace = row["lease_seconds"], row["grace_seconds"]
    times = {"last_run_at": later(0), "locked_until": later(lease), "grace_until": later(lease + grace)}
    return {"attempt_token": facts.new_token, "expires_at": None, **times}


def _taken_over(row: Row, facts: Facts) -> Row:
    lease = {"last_run_at": later(0), "locked_until": later(LEASE), "grace_until": later(LEASE + GRACE)}
    doubt = {"tainted": True, "reconcile_after": None, "reconcile_attempts": 0}
    return {"attempt_token": facts.new_token, "attempts": row["attempts"] + 1, **lease, **doubt}


def _claim(record: UUID, facts: Facts) -> bool:
    found = claims.insert_claim(facts.call, facts.new_token, ON, None, namespace=NAMESPACE)
    assert found is None or found.id == record
    return found is None


def _take_over(record: UUID, facts: Facts) -> bool:
    return claims.take_over(at(record), facts.read_token, facts.new_token, LEASE, GRACE)


RUN = operations.StoredOperation("export", "[1]", "[]", 0)


def _mark(facts: Facts) -> operations.Mark:
    return operations.Mark(facts.steps_done, facts.steps_done + 1, "[8]", "mailed", LostLease.UNKNOWN)


def _go_on(facts: Facts) -> operations.Continuation:
    return operations.Continuation("charged", facts.new_token, "[9]", "charged", facts.steps_done)


def _going_on(row: Row, facts: Facts) -> Row:
    place = {"progress": "[9]", "recovery_point": "charged", "steps_done": row["steps_done"] + 1}
    due = {"on_lost_lease": "resume", "reconcile_after": later(0), "reconcile_attempts": 0}
    return {"attempt_token": facts.new_token, **place, **due}


ALL: Final = (
    # Claims
    Verb("claim", claims.CLAIM, Event.REQUEST, _claim, _claimed),
    Verb(
        "insert_finished",
        claims.INSERT_FINISHED,
        Event.ANSWERED,
        lambda _, facts: claims.insert_finished(
            facts.call, facts.new_token, REPLY, ON, namespace=NAMESPACE, derived=facts.derives
        ),
        _finished,
    ),
    Verb(
        "accept",
        claims.ACCEPT,
        Event.ACCEPT,
        lambda _, facts: claims.accept(facts.call, facts.new_token, RUN, PICK_UP, ON, namespace=NAMESPACE),
        _accepted,
    ),
    Verb(
        "retry",
        claims.RETRY,
        Event.REQUEST,
        lambda _, facts: claims.retry(facts.call, facts.read_token, facts.new_token, ON),
        _retried,
        target=Status.IN_PROGRESS,
    ),
    Verb(
        "renew",
        claims.RENEW,
        Event.REQUEST,
        lambda _, facts: claims.renew(facts.call, facts.new_token, ON),
        lambda row, facts: {**_renewed(row, facts), "attempts": 1, "created_at": later(0)},
    ),
    Verb("take_over", claims.TAKE_OVER, Event.TAKE_OVER, _take_over, _taken_over),
    # The owner of an attempt
    Verb(
        "complete",
        attempts.COMPLETE,
        Event.ANSWERED,
        lambda record, facts: attempts.complete(
            at(record), facts.read_token, REPLY, success=facts.success, derived=facts.derives
        ),
        lambda row, facts: {**_answered(row, facts), **_derived(row, facts), "last_error_code": ""},
    ),
    Verb(
        "release",
        attempts.RELEASE,
        Event.NOT_EXECUTED,
        lambda record, facts: attempts.free_key(
            at(record), facts.read_token, "Oops", derived=facts.derives, counts=facts.success
        ),
        lambda row, facts: {
            **_freed(row, facts),
            **_derived(row, facts),
            "attempts": row["attempts"] if facts.success else 0,
        },
    ),
    Verb(
        "give_back",
        attempts.GIVE_BACK,
        Event.NOT_EXECUTED,
        lambda record, facts: attempts.give_back(at(record), facts.read_token, "Oops"),
        lambda row, facts: {
            **_freed(row, facts),
            "fingerprint": row["fingerprint"] if row["derived"] else "",
            "attempts": 0,
        },
    ),
    Verb(
        "doubt",
        attempts.DOUBT,
        Event.IN_DOUBT,
        lambda record, facts: attempts.mark_doubtful(at(record), facts.read_token, "Oops", derived=facts.derives),
        lambda row, facts: {**_doubted("Oops"), **_derived(row, facts)},
    ),
    Verb(
        "extend",
        attempts.EXTEND,
        Event.EXTEND,
        lambda record, facts: attempts.extend(at(record), facts.read_token, 2 * LEASE, GRACE),
        lambda row, facts: {"locked_until": later(2 * LEASE), "grace_until": later(2 * LEASE + GRACE)},
    ),
    Verb(
        "defer",
        attempts.DEFER,
        Event.DEFER,
        lambda record, facts: attempts.hand_over(
            at(record), facts.read_token, RUN, PICK_UP, wrote=True, derived=facts.derives
        ),
        _deferred,
    ),
    Verb(
        "pick_up",
        attempts.PICK_UP,
        Event.PICK_UP,
        lambda record, facts: attempts.pick_up(at(record), facts.read_token, facts.new_token),
        _picked_up,
    ),
    Verb(
        "requeue",
        attempts.REQUEUE,
        Event.NOT_EXECUTED,
        lambda record, facts: attempts.put_back(
            at(record), facts.read_token, "Oops", facts.cap, PICK_UP, derived=facts.derives
        ),
        _requeued,
    ),
    Verb(
        "begin_run",
        operations.BEGIN,
        Event.BEGIN,
        lambda record, facts: operations.begin_operation(at(record), facts.read_token, RUN),
        lambda row, facts: {"run_name": "export", "arguments": "[1]", "progress": "[]", "on_lost_lease": "resume"},
    ),
    Verb(
        "mark",
        operations.MARK,
        Event.STEP,
        lambda record, facts: operations.mark(at(record), facts.read_token, _mark(facts)),
        lambda row, facts: {
            "progress": "[8]",
            "recovery_point": "mailed",
            "steps_done": row["steps_done"] + 1,
            "on_lost_lease": "unknown",
        },
    ),
    Verb(
        "report",
        operations.REPORT,
        Event.REPORT,
        lambda record, facts: operations.report(at(record), facts.read_token, facts.steps_done, "[8]"),
        lambda row, facts: {"progress": "[8]"},
    ),
    # Reconcilers, webhooks and operators
    Verb(
        "landed",
        verdicts.LANDED,
        Event.LANDED,
        lambda record, facts: verdicts.land(at(record), facts.read_token, REPLY),
        _landed,
    ),
    Verb(
        "not_executed",
        verdicts.NOT_EXECUTED,
        Event.NOT_LANDED,
        lambda record, facts: verdicts.release_key(at(record), facts.read_token),
        _disproved,
        target=Status.FAILED_RETRYABLE,
    ),
    Verb(
        "not_executed_deferred",
        verdicts.NOT_EXECUTED_DEFERRED,
        Event.NOT_LANDED,
        lambda record, facts: verdicts.requeue_deferred(at(record), facts.read_token, PICK_UP),
        lambda row, facts: {**_disproved(row, facts), **_queued(row, facts), "derived": row["derived"]},
        target=Status.PENDING,
    ),
    Verb(
        "inconclusive",
        verdicts.INCONCLUSIVE,
        Event.INCONCLUSIVE,
        lambda record, facts: verdicts.ask_later(at(record), facts.read_token, WAIT, facts.cap),
        lambda row, facts: {"reconcile_attempts": row["reconcile_attempts"] + 1, "reconcile_after": later(WAIT)},
    ),
    Verb(
        "give_up",
        verdicts.GIVE_UP,
        Event.INCONCLUSIVE,
        lambda record, facts: verdicts.give_up(at(record), facts.read_token, facts.cap),
        lambda row, facts: {"reconcile_attempts": row["reconcile_attempts"] + 1, "reconcile_after": None},
    ),
    Verb(
        "win_turn",
        verdicts.WIN_TURN,
        Event.ASK,
        lambda record, facts: verdicts.win_turn(at(record), facts.read_token, WAIT),
        lambda row, facts: {"reconcile_after": later(WAIT)},
    ),
    Verb(
        "give_up_unattended",
        verdicts.UNATTENDED,
        Event.UNATTENDED,
        lambda record, facts: verdicts.give_up_unattended(at(record), facts.read_token, UNATTENDED.total_seconds()),
        lambda row, facts: {"reconcile_after": None},
    ),
    Verb(
        "postpone",
        verdicts.POSTPONE,
        Event.POSTPONE,
        lambda record, facts: verdicts.postpone(at(record), facts.read_token, WAIT),
        lambda row, facts: {"reconcile_after": later(WAIT)},
    ),
    Verb(
        "evidence",
        verdicts.EVIDENCE,
        Event.EVIDENCE,
        lambda record, facts: verdicts.confirm(at(record), REPLY),
        _landed,
    ),
    Verb(
        "denial",
        verdicts.DENIAL,
        Event.DENIAL,
        lambda record, facts: verdicts.deny(at(record)),
        lambda row, facts: {"reconcile_after": later(0)},
    ),
    Verb(
        "dismiss",
        verdicts.DISMISS,
        Event.DISMISS,
        lambda record, facts: verdicts.dismiss(at(record)),
        lambda row, facts: {**_disproved(row, facts), "attempts": 0},
    ),
    Verb(
        "try_again",
        verdicts.TRY_AGAIN,
        Event.TRY_AGAIN,
        lambda record, facts: verdicts.reset(at(record)),
        lambda row, facts: {"reconcile_attempts": 0, "attempts": 0, "reconcile_after": later(0)},
    ),
    # What is found out about one step
    Verb(
        "step_landed",
        operations.STEP_LANDED,
        Event.STEP_LANDED,
        lambda record, facts: operations.land_step(at(record), facts.read_token, _go_on(facts)),
        lambda row, facts: {**_going_on(row, facts), "attempts": 0},
    ),
    Verb(
        "step_not_executed",
        operations.STEP_NOT_EXECUTED,
        Event.STEP_NOT_LANDED,
        lambda record, facts: operations.take_step_back(at(record), facts.read_token, _go_on(facts)),
        _going_on,
    ),
    Verb(
        "step_evidence",
        operations.STEP_EVIDENCE,
        Event.STEP_EVIDENCE,
        lambda record, facts: operations.confirm_step(at(record), _go_on(facts)),
        lambda row, facts: {**_going_on(row, facts), "attempts": 0},
    ),
    Verb(
        "step_dismiss",
        operations.STEP_DISMISS,
        Event.STEP_DISMISS,
        lambda record, facts: operations.dismiss_step(at(record), _go_on(facts)),
        lambda row, facts: {**_going_on(row, facts), "attempts": 0},
    ),
    # Sweeper and reaper
    Verb(
        "lapse",
        jobs.LAPSE,
        Event.LAPSE,
        lambda record, facts: jobs.mark_lapsed(at(record)),
        lambda row, facts: _doubted("lease_over"),
    ),
    Verb(
        "enqueued_again",
        jobs.ENQUEUED_AGAIN,
        Event.ENQUEUE,
        lambda record, facts: jobs.enqueued_again(at(record), PICK_UP),
        lambda row, facts: {"locked_until": later(PICK_UP)},
    ),
    Verb(
        "exhaust",
        jobs.EXHAUST,
        Event.REQUEST,
        lambda record, facts: jobs.exhaust(at(record), facts.cap, REPLY),
        lambda row, facts: {**_answered(row, facts), "last_error_code": "attempts_exhausted"},
        target=Status.FAILED,
    ),
    Verb(
        "give_up_retrying",
        jobs.GIVE_UP_RETRYING,
        Event.REQUEST,
        lambda record, facts: jobs.give_up_retrying(at(record), facts.cap),
        lambda row, facts: {"last_error_code": "attempts_exhausted", "expires_at": None},
        target=Status.DEAD_LETTER,
    ),
    Verb(
        "abandon",
        jobs.ABANDON,
        Event.ABANDON,
        lambda record, facts: jobs.abandon(at(record), REPLY),
        lambda row, facts: {**_answered(row, facts), "last_error_code": "abandoned"},
    ),
    Verb(
        "give_up_waiting",
        jobs.GIVE_UP_WAITING,
        Event.ABANDON,
        lambda record, facts: jobs.give_up_waiting(at(record)),
        lambda row, facts: {"last_error_code": "abandoned", "locked_until": None, "expires_at": None},
        target=Status.DEAD_LETTER,
    ),
    Verb(
        "expire",
        jobs.EXPIRE,
        Event.EXPIRE,
        lambda record, facts: jobs.retire(at(record)),
        lambda row, facts: {"expires_at": later(row["audit_seconds"])},
    ),
    Verb(
        "expire_now",
        jobs.EXPIRE_NOW,
        Event.EXPIRE_NOW,
        lambda record, facts: jobs.expire_now(at(record)),
        lambda row, facts: {"expires_at": later(row["audit_seconds"] or 0)},
    ),
    Verb(
        "delete",
        jobs.DELETE,
        Event.DELETE,
        lambda record, facts: jobs.delete_ended([record], ON) == 1,
        lambda row, facts: {},
    ),
)
BY_NAME: Final = {verb.name: verb for verb in ALL}
