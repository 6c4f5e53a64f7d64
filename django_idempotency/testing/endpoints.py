"""`assert_idempotent`: tries with one endpoint what clients, crashes and networks do to it."""

import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from threading import Barrier
from typing import Any, Final, TypeAlias
from uuid import uuid4

from django.apps import apps
from django.db import connections
from django.test import AsyncClient

from django_idempotency.core.calls import Call
from django_idempotency.core.links import docs_url
from django_idempotency.core.policy import Mode
from django_idempotency.store.limits import in_transaction
from django_idempotency.store.records import alias
from django_idempotency.testing.clients import IdempotentClient, KeyedRequests, Sent
from django_idempotency.testing.crashes import stop_at
from django_idempotency.testing.messages import NotIdempotent, UntestedWarning
from django_idempotency.testing.provider import FakeProvider
from django_idempotency.testing.responses import find_difference, find_lost_header, read_body, summarize

Send: TypeAlias = Callable[[Any], object]

PARALLEL: Final = 5
COME_BACK_LATER: Final = frozenset({202, 409, 425, 429, 503})
_REFUSED_TO_A_STRANGER: Final = frozenset({409, 422, *range(500, 600)})
_OWN_TABLES: Final = frozenset({"django_idempotency", "sessions"})
_ONE_CONNECTION: Final = (
    "it needs a second database connection: use TransactionTestCase, or pytest's transactional_db, on PostgreSQL or "
    "MariaDB"
)


@dataclass
class Report:
    """What was checked, and what was not, with the reason."""

    checked: list[str] = field(default_factory=list)
    untested: dict[str, str] = field(default_factory=dict)


def assert_idempotent(
    call: Send,
    *,
    client: Any = None,
    other: Any = None,
    effects: Callable[[], int] | None = None,
    different: Send | None = None,
    provider: FakeProvider | None = None,
    public: bool = False,
    varying: Collection[str] = (),
    skip: Collection[str] = (),
) -> Report:
    """Raise NotIdempotent unless a request may be sent again at any time: it has one effect and one response.

    `call` sends the request through the client that it is given. What could not be checked is in the report, and a
    warning says so.
    """
    trial = Trial(
        call, client or IdempotentClient(), other, effects or _count_rows, different, provider,
        frozenset(name.lower() for name in varying),
    )  # fmt: skip
    if unknown := set(skip) - set(ENDPOINT_CHECKS):
        raise ValueError(f"There is no check {', '.join(sorted(unknown))}. The checks: {', '.join(ENDPOINT_CHECKS)}.")
    report = Report()
    for name, check in ENDPOINT_CHECKS.items():
        if name in skip or (public and name in PRIVATE):
            continue
        reason = check(trial)
        if reason:
            report.untested[name] = reason
        else:
            report.checked.append(name)
    for name, reason in report.untested.items():
        page = docs_url("reference/testing", "what-was-not-tested")
        warnings.warn(UntestedWarning(f"NOT TESTED: {name}: {reason}. See {page}"), stacklevel=2)
    return report


@dataclass
class Trial:
    """One endpoint on trial."""

    call: Send
    given: Any
    other: Any
    effects: Callable[[], int]
    different: Send | None
    provider: FakeProvider | None
    varying: frozenset[str]

    def __post_init__(self) -> None:
        for client in (self.given, self.other):
            if client is not None and (not isinstance(client, KeyedRequests) or isinstance(client, AsyncClient)):
                kind = type(client).__name__
                raise TypeError(
                    f"Pass an IdempotentClient or IdempotentAPIClient, not {kind}. They call async views too."
                )
        self.client = _copy_client(self.given)

    def new_request(self) -> Sent:
        """Return the request as `call` would send it, under a new key."""
        sent: Sent = self.client.compose(self.call)
        return sent.with_header(self.client.key_header, str(uuid4()))

    def send_first(self) -> tuple[Sent, Any, int]:
        """Send a new request, which has to succeed; return it with its response and the count of its effects."""
        sent, before = self.new_request(), self.effects()
        response = self.client.send(sent)
        if response.status_code >= 400:
            raise NotIdempotent("first_failed", f"{sent.method} {sent.path} got {summarize(response)}")
        gained = self.effects() - before
        if gained < 1:
            raise NotIdempotent("effect_not_seen", f"{sent.method} {sent.path} got {summarize(response)}")
        return sent, response, gained

    @contextmanager
    def no_effect(self, defect: str, what: str) -> Iterator[None]:
        """Fail if the block has an effect."""
        before = self.effects()
        yield
        gained = self.effects() - before
        if gained > 0:
            raise NotIdempotent(defect, f"{what}, {_write_count(gained)} more were counted than before")

    def require_replay(self, sent: Sent, first: Any) -> None:
        """Send a request again, which has to get the response of the first."""
        with self.no_effect("executed_twice", "after the same request with the same key"):
            again = self.client.send(sent)
        if again.status_code >= 500 > first.status_code:
            raise NotIdempotent("retry_failed", f"first {summarize(first)}, then {summarize(again)}")
        if difference := find_difference(first, again):
            raise NotIdempotent("different_response", difference)
        if lost := find_lost_header(first, again, self.varying):
            raise NotIdempotent("lost_headers", lost)


def check_replay(trial: Trial) -> str:
    """Send a new request, and retry it twice."""
    sent, first, _ = trial.send_first()
    for _ in range(2):
        trial.require_replay(sent, first)
    return ""


def check_different_request(trial: Trial) -> str:
    """Send the same key with another body."""
    sent, first, _ = trial.send_first()
    if trial.different is None:
        changed = _change(sent)
    else:
        key = _get_key(trial.client, sent)
        changed = trial.client.compose(trial.different).with_header(trial.client.key_header, key)
    with trial.no_effect("key_reused", "after a different request with the same key"):
        answer = trial.client.send(changed)
    if answer.status_code < 400:
        raise NotIdempotent("key_reused", f"the body {_quote(changed)} got {summarize(answer)}, as {_quote(sent)} did")
    if answer.status_code >= 500:
        raise NotIdempotent("retry_failed", f"a different body under the same key got {summarize(answer)}")
    trial.require_replay(sent, first)
    return ""


def check_unauthenticated(trial: Trial) -> str:
    """Send a used key without credentials."""
    sent, first, _ = trial.send_first()
    stranger = _copy_client(type(trial.given)())
    with trial.no_effect("replayed_unauthenticated", "after the same request without credentials"):
        answer = stranger.send(sent.without_credentials())
    if answer.status_code < 400 and _is_same(first, answer):
        raise NotIdempotent("replayed_unauthenticated", f"without credentials the key got {summarize(answer)}")
    return ""


def check_other_user(trial: Trial) -> str:
    """Send a used key as another user."""
    if trial.other is None:
        return "pass `other`, a client of another user"
    sent, first, _ = trial.send_first()
    before = trial.effects()
    answer = _copy_client(trial.other).send(sent.without_credentials())
    shared = answer.status_code < 400 and trial.effects() == before
    if (
        shared
        or (_is_same(first, answer) and trial.effects() == before)
        or answer.status_code in _REFUSED_TO_A_STRANGER
    ):
        raise NotIdempotent("shared_between_users", f"the other user's own request got {summarize(answer)}")
    trial.require_replay(sent, first)
    return ""


def check_error(trial: Trial) -> str:
    """Let the view fail after its work, and retry."""
    _, _, usual = trial.send_first()
    sent, before, provider = trial.new_request(), trial.effects(), trial.provider
    sends_before = len(provider.keys) if provider else 0
    reached: list[Call] = []

    def fail(call: Call, using: str) -> None:
        reached.append(call)
        raise RuntimeError("The view failed after its work. This error was raised by assert_idempotent.")

    with provider.losing() if provider else stop_at("view", fail):
        trial.client.send(sent)
    sends_after = len(provider.keys) if provider else 0
    if not reached and not provider:
        return "the view is not protected by this package: pass `provider`, which it has to call, to let it fail"
    if provider and sends_after == sends_before:
        return "the view did not call `provider`, and so it did not fail"
    for _ in range(2):
        trial.client.send(sent)
    if provider and len(provider.keys) > sends_after and provider.keys[sends_after] != provider.keys[sends_before]:
        raise NotIdempotent(
            "new_downstream_key", f"first {provider.keys[sends_before]}, then {provider.keys[sends_after]}"
        )
    gained = trial.effects() - before
    if gained > usual:
        raise NotIdempotent(
            "retried_after_error", f"a request that failed, and its retries, had {_write_count(gained)}"
        )
    return ""


def check_in_flight(trial: Trial) -> str:
    """Send a duplicate while the first request runs."""
    _, _, usual = trial.send_first()
    sent, before = trial.new_request(), trial.effects()
    duplicates: list[Any] = []
    reason, threads = (
        "the view is not protected by this package, and so it cannot be stopped half way",
        _allows_threads(),
    )

    def duplicate(call: Call, using: str) -> None:
        nonlocal reason
        if threads:
            duplicates.extend(_run_in_threads(1, lambda: _copy_client(trial.client).send(sent)))
        elif call.policy.mode is Mode.ATOMIC:
            reason = _ONE_CONNECTION
        else:  # the claim is committed, and no transaction is open
            duplicates.append(_copy_client(trial.client).send(sent))

    with stop_at("claim", duplicate):
        first = trial.client.send(sent)
    for answer in duplicates:
        if answer.status_code not in COME_BACK_LATER and not _is_same(first, answer):
            raise NotIdempotent("in_flight", f"the first was running, and the duplicate got {summarize(answer)}")
    if (gained := trial.effects() - before) > usual:
        raise NotIdempotent("in_flight", f"the first request and its duplicate had {_write_count(gained)}")
    trial.require_replay(sent, first)
    return "" if duplicates else reason


def check_parallel(trial: Trial) -> str:
    """Send several requests with one key at once, over connections of their own."""
    if not _allows_threads():
        return _ONE_CONNECTION
    _, _, usual = trial.send_first()
    sent, before, barrier = trial.new_request(), trial.effects(), Barrier(PARALLEL)

    def race() -> Any:
        connections[alias()].ensure_connection()
        barrier.wait(60)
        return _copy_client(trial.client).send(sent)

    answers = _run_in_threads(PARALLEL, race)
    said = ", ".join(str(answer.status_code) for answer in answers)
    if (gained := trial.effects() - before) > usual:
        raise NotIdempotent(
            "executed_twice", f"{PARALLEL} requests at once had {_write_count(gained)}; they got {said}"
        )
    failed = [each for each in answers if each.status_code >= 500 and each.status_code not in COME_BACK_LATER]
    if failed:
        raise NotIdempotent("retry_failed", f"of {PARALLEL} requests at once one got {summarize(failed[0])}")
    served = [each for each in answers if each.status_code not in COME_BACK_LATER]
    if not all(_is_same(served[0], each) for each in served):
        raise NotIdempotent("different_response", f"{PARALLEL} requests at once got {said}")
    return ""


ENDPOINT_CHECKS: Final[Mapping[str, Callable[[Trial], str]]] = {
    "replay": check_replay,
    "different request": check_different_request,
    "unauthenticated": check_unauthenticated,
    "other user": check_other_user,
    "error": check_error,
    "in flight": check_in_flight,
    "parallel": check_parallel,
}
PRIVATE: Final = frozenset({"unauthenticated", "other user"})


def _count_rows() -> int:
    """Count the rows of every table of the project."""
    models = (model for model in apps.get_models() if model._meta.app_label not in _OWN_TABLES and model._meta.managed)
    return sum(model._base_manager.count() for model in models)


def _allows_threads() -> bool:
    """True if a second connection sees what this one commits."""
    using = alias()
    return not in_transaction(using) and connections[using].features.test_db_allows_multiple_connections


def _run_in_threads(count: int, work: Callable[[], Any]) -> list[Any]:
    def run() -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return [each.result(120) for each in [pool.submit(run) for _ in range(count)]]


def _copy_client(client: Any) -> Any:
    """Return a client that gets a 500 for an exception, as from a server, and shares no exception with another."""
    copied = copy(client)
    copied.raise_request_exception, copied.exc_info = False, None
    return copied


def _change(sent: Sent) -> Sent:
    """Return the request with another value in its body, or another field."""
    body, kind = bytes(sent.data if isinstance(sent.data, bytes) else str(sent.data).encode()), sent.content_type or ""
    if "json" in kind:
        return replace(sent, data=json.dumps(_change_value(json.loads(body))).encode())
    if "multipart" in kind:
        mark, _, rest = body.partition(b"\r\n")
        part = b'\r\nContent-Disposition: form-data; name="another"\r\n\r\nvalue\r\n'
        return replace(sent, data=mark + part + mark + b"\r\n" + rest)
    return replace(sent, data=body + b"&another=value")


def _change_value(value: Any) -> Any:
    match value:
        case dict():
            name = next(iter(value), "another")
            return {**value, name: _change_value(value.get(name))}
        case list() if value:
            return [_change_value(value[0]), *value[1:]]
        case bool():
            return not value
        case int() | float():
            return value + 1
    return f"{value or ''}x"


def _get_key(client: Any, sent: Sent) -> str:
    return str(sent.options["headers"][client.key_header])


def _is_same(first: Any, second: Any) -> bool:
    where = first.headers.get("Location") == second.headers.get("Location")
    return where and first.status_code == second.status_code and read_body(first) == read_body(second)


def _write_count(effects: int) -> str:
    return "1 effect" if effects == 1 else f"{effects} effects"


def _quote(sent: Sent) -> str:
    return repr(sent.data)[:80]
