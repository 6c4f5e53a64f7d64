"""At most once without a request: management commands, consumers, webhooks.

    def bill(claim):
        charge = gateway.charge(customer, key=claim.derive("charge"))
        return claim.finish(lambda: book(charge))

    once(scope="invoices", key="2026-11/ada", payload={"amount": 700}, run=bill)

The result is JSON, and every later call with the key gets it. With mode="atomic" `run` is one transaction with its
completion, for work whose effects are all in this database; otherwise none is open until `claim.finish(write)`.
"""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder

from django_idempotency import conf
from django_idempotency.core.decisions import Accepted, Answer, Call, Gone, InDoubt, InFlight, Mismatch, Replay
from django_idempotency.core.fingerprint import RequestParts
from django_idempotency.core.keys import fit_to_column
from django_idempotency.core.policy import LostLease, Mode, Policy, Transaction
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import (
    EndedWithoutResult,
    KeyExpired,
    KeyReused,
    OutcomeUnknown,
    StillRunning,
    UnreadableReply,
)
from django_idempotency.flow.attempt import Attempt, KeyHandle
from django_idempotency.flow.finish import finish
from django_idempotency.flow.run import run as run_flow

__all__ = [
    "Claim",
    "once",
    "once_per",
]

P = ParamSpec("P")

JSON: Final = "application/json"
# What a policy may say where there is neither a request nor a response.
ARGUMENTS: Final = frozenset(
    {
        "after_expiry", "attempts", "audit", "claim_limit", "expiry", "grace", "heartbeat", "lease", "mode",
        "not_executed", "on_lost_lease", "operation", "retention",
    }
)  # fmt: skip


class Claim(KeyHandle):
    """The right to run, once."""

    _needs = "mode='leased'"
    reply: Reply | None = None  # once it is stored

    def finish(self, write: Callable[[], Any]) -> Any:
        """Function `write`, which makes the domain writes and returns the result, and complete the key with them.

        `write` may run a second time after a deadlock, so it does nothing outside the database.
        """
        self._require_late("finish")
        self.reply = finish(self._attempt, lambda: _twice(_as_reply(write())), rerun=True)
        return _result(self.reply)


Function = Callable[[Claim], Any]


def once(*, scope: str, key: str, run: Function, payload: Any = None, **arguments: Any) -> Any:
    """Function `run` at most once for this key of this scope; its result, now or from the record.

    `scope` names whose keys these are, `payload` what has to be the same under one key: JSON, or bytes. The other
    arguments are a policy's: `mode`, `operation` (the scope when it is left out), `lease`, `retention` and so on.

    StillRunning, KeyReused, OutcomeUnknown, KeyExpired, StoreUnavailable: `run` did not run here. What `run` raises
    is raised; NotExecuted says that nothing happened and sets the key free.
    """
    return _once(scope, key, payload, run, conf.policy(**_checked(arguments)))


def once_per(
    scope: str, *, key: Callable[..., str], payload: Callable[..., Any] | None = None, **arguments: Any
) -> Callable[[Callable[Concatenate[Claim, P], Any]], Callable[P, Any]]:
    """Make a handler of events run at most once for each: `once` as a decorator.

    `key` and `payload` get what the handler is called with; the handler gets the Claim before it.
    """
    made = conf.Arguments(_checked(arguments))

    def decorate(handler: Callable[Concatenate[Claim, P], Any]) -> Callable[P, Any]:
        @wraps(handler)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
            said = None if payload is None else payload(*args, **kwargs)
            run: Function = lambda claim: handler(claim, *args, **kwargs)  # noqa: E731 - two lines would say no more
            return _once(scope, key(*args, **kwargs), said, run, made.policy())

        return guarded

    return decorate


def _checked(arguments: dict[str, Any]) -> dict[str, Any]:
    """The policy's arguments; a wrong one is an error before anything is claimed."""
    unknown = sorted(set(arguments) - ARGUMENTS)
    if unknown:
        raise TypeError(f"once takes no {', '.join(unknown)}; of a policy it takes {', '.join(sorted(ARGUMENTS))}.")
    if arguments.get("on_lost_lease") == LostLease.RESUME:
        raise ValueError("on_lost_lease='resume' is for operations, which know where they stopped; use 'restart'.")
    late = arguments.get("mode") != Mode.ATOMIC
    return {**arguments, "transaction": Transaction.LATE if late else Transaction.WHOLE}


def _once(scope: str, key: str, payload: Any, run: Function, policy: Policy) -> Any:
    late = policy.transaction is Transaction.LATE

    def work(attempt: Attempt) -> tuple[Reply, Reply]:
        claim = Claim(attempt, late=late)
        returned = run(claim)
        return _twice(claim.reply or _as_reply(returned))

    outcome = run_flow(_call(scope, key, payload, policy), work)
    return _result(outcome) if isinstance(outcome, Reply) else _given(outcome)


def _call(scope: str, key: str, payload: Any, policy: Policy) -> Call:
    operation = policy.operation or fit_to_column("scope", scope)
    body = payload if isinstance(payload, bytes) else _dump(payload, sort_keys=True)
    return Call.outside_http("once", scope, key, operation, RequestParts("", operation, "", JSON, body), policy)


def _dump(value: Any, *, sort_keys: bool = False) -> bytes:
    return json.dumps(value, cls=DjangoJSONEncoder, sort_keys=sort_keys, allow_nan=False).encode()


def _as_reply(result: Any) -> Reply:
    return Reply(200, (("Content-Type", JSON),), _dump(result))


def _twice(reply: Reply) -> tuple[Reply, Reply]:
    """What the flow gives back and what it stores are the same: the first caller gets what every later one gets."""
    return reply, reply


def _result(reply: Reply) -> Any:
    return json.loads(reply.body) if reply.body else None


def _given(answer: Answer) -> Any:
    """The stored result, or why there is none."""
    match answer:
        case Replay(record, reply):
            return _stored(record.id, reply)
        case InFlight(_, seconds) | Accepted(_, seconds):
            raise StillRunning(retry_after=seconds)
        case Mismatch(record):
            raise KeyReused(f"{KeyReused.__doc__} It belongs to record {record.id}.")
        case Gone(record):
            raise KeyExpired(f"{KeyExpired.__doc__} It belonged to record {record.id}.")
        case InDoubt(record, dead):
            who = "An operator" if dead else "A reconciler, a webhook or an operator"
            raise OutcomeUnknown(
                f"It is not known whether the first run took effect, and it is not repeated. {who} has to settle "
                f"record {record.id}."
            )


def _stored(record: UUID, reply: Reply) -> Any:
    if reply.status >= 400:
        raise EndedWithoutResult(f"{EndedWithoutResult.__doc__} It is record {record}.")
    try:
        if not reply.omitted:
            return _result(reply)
    except ValueError:
        pass
    raise UnreadableReply(f"What record {record} holds is not a result in JSON; nothing runs again.")
