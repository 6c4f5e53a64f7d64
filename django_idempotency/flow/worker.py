"""Running operations without their request: deferred work, and operations whose process is gone."""

from collections.abc import Callable
from functools import partial
from typing import Final
from uuid import UUID, uuid4

from django.db import Error

from django_idempotency import signals
from django_idempotency.conf import conf, default_policy
from django_idempotency.core.audit import Kind
from django_idempotency.core.calls import Call
from django_idempotency.core.refs import parse_record_id
from django_idempotency.core.states import LostLease, Status
from django_idempotency.exceptions import LostFence, NotExecuted, OutcomeUnknown, StoreUnavailable
from django_idempotency.flow.attempt import Attempt, Lease
from django_idempotency.flow.finish import doubt, finish, proves_nothing_happened
from django_idempotency.flow.heartbeat import beating
from django_idempotency.flow.messages import pick_up_seconds, send
from django_idempotency.flow.registry import get_operation, knows
from django_idempotency.flow.schemas import enter_schema_of
from django_idempotency.flow.settle import Doubt, Outcome, backoff, make_dead_letter
from django_idempotency.flow.steps import resume_steps
from django_idempotency.flow.unattended import postpone_unattended
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import announce, logger
from django_idempotency.store import attempts, claims, events, jobs, limits, records, verdicts
from django_idempotency.store.operations import StoredOperation
from django_idempotency.store.records import alias

ELSEWHERE_SECONDS: Final = 300.0  # until work is offered again that this process has no code for


def perform(record: UUID | str, using: str | None = None) -> Outcome:
    """Do the deferred work that a message names, unless it is done or another worker has it.

    StoreUnavailable if the database failed before anything ran: the sweeper sends another message.
    """
    using = using or alias()
    try:
        return perform_one(record, using)
    except Error as error:
        limits.drop_broken(using)
        raise StoreUnavailable from error


def perform_one(record: UUID | str, using: str) -> Outcome:
    """Do what `perform` does, for the jobs: a database that fails ends their run."""
    named = parse_record_id(record)
    row = None if named is None else records.load(named, using)
    if row is None:  # what the message says may be a client's key
        logger.warning("A message names no record, or one that was deleted; the message is dropped.")
        return Outcome.ABSENT
    if not row.deferred:
        logger.warning("A message names record %s, which is not deferred work; the message is dropped.", row.id)
        return Outcome.ABSENT
    if not _is_open_to_workers(row):
        return Outcome.OVERTAKEN
    if not knows(row.run_name, row.progress):
        return _leave_to_another_worker(row)
    if row.status == Status.PENDING:
        return _run(_pick_up(row), row, not_executed=_requeue)
    return _continue(row, actor="worker", not_executed=_requeue)


def resume_one(record: UUID, using: str) -> Outcome:
    """Continue one operation whose process is gone, unless another process has it or this one lacks its code."""
    row = records.load(record, using)
    if row is None or row.attempt_token is None or row.status != Status.UNKNOWN or not row.is_resumable:
        return Outcome.OVERTAKEN
    if row.deferred:
        return _send_again(row, row.attempt_token)
    if not knows(row.run_name, row.progress):
        return _leave_unknown(row, row.attempt_token, "resumer")
    return _continue(row, actor="resumer", not_executed=None)


def _is_open_to_workers(row: IdempotencyKey) -> bool:
    """True unless the work has ended, or waits for a verdict about one of its steps."""
    if row.status in Status.OWNED:
        return row.on_lost_lease == LostLease.RESUME
    return row.status == Status.PENDING


def _leave_to_another_worker(row: IdempotencyKey) -> Outcome:
    """This process has no such code, or older code: offer the work again later."""
    if row.status == Status.UNKNOWN and row.attempt_token is not None:
        return _leave_unknown(row, row.attempt_token, "worker")
    jobs.enqueued_again(row.ref, int(ELSEWHERE_SECONDS))
    return Outcome.POSTPONED


def _leave_unknown(row: IdempotencyKey, token: UUID, actor: str) -> Outcome:
    """Offer the operation again later, and give it up once no process with its code has come for too long."""
    return postpone_unattended(Doubt(row, token), ELSEWHERE_SECONDS, actor, f"no code for {row.run_name!r}")


def _send_again(row: IdempotencyKey, token: UUID) -> Outcome:
    """Deferred work is a worker's: send it another message."""
    if not verdicts.win_turn(row.ref, token, pick_up_seconds()):
        return Outcome.OVERTAKEN
    send(row.id)
    return Outcome.SENT


def _pick_up(row: IdempotencyKey) -> Attempt | None:
    """Claim waiting work (D2): of two workers with one message one wins."""
    token = uuid4()
    if row.attempt_token is None or not attempts.pick_up(row.ref, row.attempt_token, token):
        return None
    return _attempt_at(row, token, row.attempts)


def _continue(row: IdempotencyKey, *, actor: str, not_executed: "Release | None") -> Outcome:
    """Take over from a process that is gone or that failed, as often as the settings allow.

    If the attempts are used up before their span is over, as by quick retries of a client, one more follows after it.
    """
    if row.attempt_token is not None and row.attempts >= conf.ATTEMPTS:
        end = row.created_at + conf.ATTEMPTS_SPAN
        if row.read_at < end:
            done = verdicts.postpone(row.ref, row.attempt_token, (end - row.read_at).total_seconds())
            return Outcome.POSTPONED if done else Outcome.OVERTAKEN
        if row.last_run_at is not None and row.last_run_at < end:
            return _run(_take_over(row, actor), row, not_executed=not_executed)
        return make_dead_letter(row.ref, row.attempt_token, 1, actor="resumer", reason="attempts used up")
    return _run(_take_over(row, actor), row, not_executed=not_executed)


def _take_over(row: IdempotencyKey, actor: str) -> Attempt | None:
    """Start a new attempt (T7); None if another process was quicker."""
    token, using = uuid4(), row.ref.using
    change = partial(claims.take_over, row.ref, row.attempt_token, token, row.lease_seconds, row.grace_seconds)
    number = row.attempts + 1
    if not events.audit(change, row.ref, Kind.TAKEN_OVER, actor=actor, details={"attempt": number}):
        return None
    attempt = _attempt_at(row, token, number, repeat=True)
    announce(signals.taken_over, call=attempt.call, using=using)
    return attempt


def _attempt_at(row: IdempotencyKey, token: UUID, number: int, *, repeat: bool = False) -> Attempt:
    """Return the attempt that a worker makes of a record."""
    return Attempt(
        _call_of(row),
        token,
        row.ref.using,
        row.namespace,
        repeat=repeat or number > 1,
        number=number,
        age=row.age,
        stored_lease=_lease_of(row),
    )


def _call_of(row: IdempotencyKey) -> Call:
    """Return the call that the record was made for."""
    policy = default_policy()
    return Call(row.scope, row.key, row.fingerprint, policy, row.tenant, row.principal, row.operation)


def _lease_of(row: IdempotencyKey) -> Lease:
    """Return the record's lease, which is extended for as long as its operation allows."""
    return Lease(row.lease_seconds, row.grace_seconds, get_operation(row.run_name).longest)


Release = Callable[[Attempt, NotExecuted, int], Outcome | None]


def _run(attempt: Attempt | None, row: IdempotencyKey, *, not_executed: Release | None) -> Outcome:
    """Run the operation from the step after its last one, and store its response."""
    if attempt is None:
        return Outcome.OVERTAKEN
    try:
        with enter_schema_of(row):
            with beating(attempt):
                reply = resume_steps(attempt, StoredOperation.of(row))
            finish(attempt, lambda: (reply, reply), rerun=True)
    except (LostFence, OutcomeUnknown) as error:
        return _stop(attempt, error, row.attempts)
    except NotExecuted as error:
        proven = proves_nothing_happened(error, attempt)
        released = not_executed(attempt, error, row.attempts) if not_executed and proven else None
        return released or _fail(attempt, error, row.attempts)
    except Exception as error:  # noqa: BLE001 - whatever it failed with, the work is continued later
        return _fail(attempt, error, row.attempts)
    if attempt.repeat:
        announce(signals.resolved, record=attempt.call.id, outcome=Outcome.LANDED, using=attempt.using)
    return Outcome.LANDED


def _requeue(attempt: Attempt, error: NotExecuted, tries: int) -> Outcome | None:
    """Nothing happened: wait once more, each time longer (D5). None if a step is in doubt, or no attempts are left."""
    code = type(error).__name__
    if attempt.in_doubt:
        return None
    if not attempts.put_back(
        attempt.ref, attempt.token, code, conf.ATTEMPTS, int(backoff(tries)), derived=bool(attempt.derived)
    ):
        return None
    announce(signals.released, call=attempt.call, code=code, using=attempt.using)
    return Outcome.NOT_EXECUTED


def _stop(attempt: Attempt, error: Exception, tries: int) -> Outcome:
    """Find out whose failure it is: the record was lost to another attempt, or the error is about another key."""
    still_ours = doubt(attempt, type(error).__name__, error)
    return _fail(attempt, error, tries) if still_ours else Outcome.OVERTAKEN


def _fail(attempt: Attempt, error: Exception, tries: int) -> Outcome:
    """Leave the outcome unknown (T5), and let some time pass before the next try."""
    call = attempt.call
    logger.error("The operation %s failed. Idempotency record %s.", call.title, call.id, exc_info=error)
    doubt(attempt, type(error).__name__, error)
    try:
        with limits.limited(attempt.using, attempt.limit):
            verdicts.postpone(attempt.ref, attempt.token, backoff(tries))
    except StoreUnavailable:  # then it is due at once, or when its lease has expired
        limits.drop_broken(attempt.using)
    announce(signals.resume_failed, record=attempt.call.id, reason=type(error).__name__, using=attempt.using)
    return Outcome.INCONCLUSIVE
