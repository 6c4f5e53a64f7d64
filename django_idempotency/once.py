"""Run work at most once without a request: in management commands, message consumers and webhooks::

    def bill(claim):
        charge = gateway.charge(customer, key=claim.derive("charge"))
        return claim.finish(lambda: book(charge))

    once(scope="invoices", key="2026-11/ada", payload={"amount": 700}, run=bill)

The result is JSON, and every later call with the same key gets it. With mode="atomic", for work whose effects are all
in this database, `run` and the storing of its result are one transaction. In leased mode, no transaction is open until
`claim.finish(write)`; this is the default, even if the setting MODE is "atomic".
"""

import json
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec
from uuid import UUID

from django.core.serializers.json import DjangoJSONEncoder

from django_idempotency import conf
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Accepted, Answer, Gone, InDoubt, InFlight, Mismatch, Replay, TooEarly
from django_idempotency.core.fingerprint import RequestParts
from django_idempotency.core.keys import fit_to_column
from django_idempotency.core.policy import Mode, Policy, Transaction
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import LostLease
from django_idempotency.core.validation import dump_json, suggest
from django_idempotency.exceptions import (
    EndedWithoutResult,
    KeyExpired,
    KeyReused,
    NotExecuted,
    OutcomeUnknown,
    StillRunning,
    UnreadableReply,
)
from django_idempotency.flow.attempt import Attempt, KeyHandle
from django_idempotency.flow.failures import naming
from django_idempotency.flow.finish import finish
from django_idempotency.flow.run import run_call as run_flow

__all__ = [
    "Claim",
    "once",
    "once_per",
]

P = ParamSpec("P")

_JSON: Final = "application/json"
# The policy arguments that need neither a request nor a response.
_ARGUMENTS: Final = frozenset(
    {
        "after_expiry", "attempts", "audit", "claim_limit", "expiry", "grace", "heartbeat", "lease", "mode",
        "not_executed", "on_lost_lease", "operation", "other_writes", "retention", "attempts_span",
    }
)  # fmt: skip


class Claim(KeyHandle):
    """The right to run the work of one key."""

    _needs = "mode='leased'"
    reply: Reply | None = None  # set when the result is stored

    def finish(self, write: Callable[[], Any]) -> Any:
        """Call `write` and store its result, in one transaction.

        `write` makes your own writes and returns the result. It may run again after a deadlock or a lost connection, so
        it must do nothing outside the database.
        """
        self._require_late("finish")
        self.reply = finish(self._attempt, lambda: _pair(_to_reply(write())), rerun=True)
        return _read_result(self.reply)


_Run = Callable[[Claim], Any]


def once(*, scope: str, key: str, run: _Run, payload: Any = None, **arguments: Any) -> Any:
    """Call `run` at most once for this key of this scope, and return its result, from this call or an earlier one.

    `scope` says who owns the key. `payload`, JSON or bytes, must be equal in every call with the key. The other
    arguments are those of a policy: `mode`, `operation` (default: the scope), `lease`, `retention` and so on.

    Raise StillRunning, KeyReused, OutcomeUnknown, KeyExpired or StoreUnavailable if `run` was not called. Exceptions
    of `run` propagate. If it raises NotExecuted before it calls `derive`, nothing happened and the key is free again.
    """
    return _once(scope, key, payload, run, conf.policy(**_check_arguments(arguments)))


def once_per(
    scope: str, *, key: Callable[..., str], payload: Callable[..., Any] | None = None, **arguments: Any
) -> Callable[[Callable[Concatenate[Claim, P], Any]], Callable[P, Any]]:
    """Decorate an event handler so that it runs at most once per event.

    `key` and `payload` are called with the arguments of the handler. The handler gets a Claim as its first argument.
    """
    made = conf.Arguments(_check_arguments(arguments))

    def decorate(handler: Callable[Concatenate[Claim, P], Any]) -> Callable[P, Any]:
        @wraps(handler)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
            compared = None if payload is None else payload(*args, **kwargs)

            def run(claim: Claim) -> Any:
                return handler(claim, *args, **kwargs)

            return _once(scope, key(*args, **kwargs), compared, run, made.policy())

        return guarded

    return decorate


def _check_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the policy; raise before anything is claimed if one is wrong."""
    for name in sorted(set(arguments) - _ARGUMENTS):
        raise TypeError(f"once takes no {name}; {suggest(name, sorted(_ARGUMENTS))}")
    if arguments.get("on_lost_lease") == LostLease.RESUME:
        raise ValueError(
            "on_lost_lease='resume' is for operations, which have recovery points; use on_lost_lease='restart'."
        )
    chosen = {"mode": Mode.LEASED, "attempts_span": timedelta(0), **arguments}
    late = chosen["mode"] != Mode.ATOMIC
    return {**chosen, "transaction": Transaction.LATE if late else Transaction.WHOLE}


def _once(scope: str, key: str, payload: Any, run: _Run, policy: Policy) -> Any:
    late = policy.transaction is Transaction.LATE

    def work(attempt: Attempt) -> tuple[Reply, Reply]:
        claim = Claim(attempt, late=late)
        returned = run(claim)
        return _pair(claim.reply or _to_reply(returned))

    call = _call(scope, key, payload, policy)
    with naming(call.id):
        outcome = run_flow(call, work)
        return _read_result(outcome) if isinstance(outcome, Reply) else _result_from(outcome)


def _call(scope: str, key: str, payload: Any, policy: Policy) -> Call:
    operation = policy.operation or fit_to_column("scope", scope)
    body = payload if isinstance(payload, bytes) else _dump("The payload of `once`", payload, sort_keys=True)
    parts = RequestParts("", operation, "", _JSON, body)
    # A scope may name a customer, and there may be one for each: neither belongs into a metric.
    return Call.outside_http("once", scope, key, operation, parts, policy, label=policy.operation or "once")


def _dump(what: str, value: Any, *, sort_keys: bool = False) -> bytes:
    return dump_json(what, value, cls=DjangoJSONEncoder, sort_keys=sort_keys).encode()


def _to_reply(result: Any) -> Reply:
    return Reply(200, (("Content-Type", _JSON),), _dump("The result of the work of `once`", result))


def _pair(reply: Reply) -> tuple[Reply, Reply]:
    """Return the reply twice, to return and to store: the first caller gets exactly what later callers get."""
    return reply, reply


def _read_result(reply: Reply) -> Any:
    return json.loads(reply.body) if reply.body else None


def _result_from(answer: Answer) -> Any:
    """Return the stored result, or raise the reason why there is none."""
    match answer:
        case Replay(record, reply):
            return _read_stored(record.id, reply)
        case InFlight(_, seconds) | Accepted(_, seconds):
            raise StillRunning(retry_after=seconds)
        case Mismatch(record):
            reused = KeyReused.ADVICE[record.effect]
            raise KeyReused(f"{reused} The key belongs to record {record.id}.", effect=record.effect)
        case Gone(record):
            raise KeyExpired(
                f"{KeyExpired.ADVICE[record.effect]} The key belonged to record {record.id}.", effect=record.effect
            )
        case TooEarly(record, seconds) if record.traced:
            raise OutcomeUnknown(f"An earlier run with this key may have taken effect. Wait {seconds} s. {record.id}")
        case TooEarly(_, seconds):
            raise NotExecuted(f"{NotExecuted.__doc__} The earlier attempts had no effect; wait {seconds} s.")
        case InDoubt(record, dead):
            who = "An operator" if dead else "A reconciler, a webhook or an operator"
            raise OutcomeUnknown(
                f"It is not known whether the first run with this key took effect, so nothing runs again. {who} has to "
                f"settle record {record.id}."
            )


def _read_stored(record: UUID, reply: Reply) -> Any:
    if reply.status >= 400:
        raise EndedWithoutResult(f"{EndedWithoutResult.__doc__} The record is {record}.")
    try:
        if not reply.omitted:
            return _read_result(reply)
    except ValueError:
        pass
    raise UnreadableReply(
        f"The response stored in record {record} is not JSON, so it is not a result of `once`. Nothing runs again."
    )
