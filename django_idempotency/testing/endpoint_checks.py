"""The checks of `assert_idempotent`, each a function that returns why it could not be made, if it could not."""

from collections.abc import Callable, Mapping
from threading import Barrier
from typing import Any, Final

from django.db import connections

from django_idempotency.core.calls import Call
from django_idempotency.core.policy import Mode
from django_idempotency.store.records import alias
from django_idempotency.testing.clients import Sent
from django_idempotency.testing.crashes import stop_at
from django_idempotency.testing.messages import NotIdempotent
from django_idempotency.testing.responses import read_body, summarize
from django_idempotency.testing.trial import (
    Trial,
    allows_threads,
    change_body,
    copy_client,
    run_in_threads,
    write_count,
)

PARALLEL: Final = 5
COME_BACK_LATER: Final = frozenset({202, 409, 425, 429, 503})
_REFUSED_TO_A_STRANGER: Final = frozenset({409, 422, *range(500, 600)})
_ONE_CONNECTION: Final = (
    "it needs a second database connection: use TransactionTestCase, or pytest's transactional_db, on PostgreSQL or "
    "MariaDB"
)


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
        changed = change_body(sent)
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
    stranger = copy_client(type(trial.given)())
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
    answer = copy_client(trial.other).send(sent.without_credentials())
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
        raise NotIdempotent("retried_after_error", f"a request that failed, and its retries, had {write_count(gained)}")
    return ""


def check_in_flight(trial: Trial) -> str:
    """Send a duplicate while the first request runs."""
    _, _, usual = trial.send_first()
    sent, before = trial.new_request(), trial.effects()
    duplicates: list[Any] = []
    reason, threads = (
        "the view is not protected by this package, and so it cannot be stopped half way",
        allows_threads(),
    )

    def duplicate(call: Call, using: str) -> None:
        nonlocal reason
        if threads:
            duplicates.extend(run_in_threads(1, lambda: copy_client(trial.client).send(sent)))
        elif call.policy.mode is Mode.ATOMIC:
            reason = _ONE_CONNECTION
        else:  # the claim is committed, and no transaction is open
            duplicates.append(copy_client(trial.client).send(sent))

    with stop_at("claim", duplicate):
        first = trial.client.send(sent)
    for answer in duplicates:
        if answer.status_code not in COME_BACK_LATER and not _is_same(first, answer):
            raise NotIdempotent("in_flight", f"the first was running, and the duplicate got {summarize(answer)}")
    if (gained := trial.effects() - before) > usual:
        raise NotIdempotent("in_flight", f"the first request and its duplicate had {write_count(gained)}")
    trial.require_replay(sent, first)
    return "" if duplicates else reason


def check_parallel(trial: Trial) -> str:
    """Send several requests with one key at once, over connections of their own."""
    if not allows_threads():
        return _ONE_CONNECTION
    _, _, usual = trial.send_first()
    sent, before, barrier = trial.new_request(), trial.effects(), Barrier(PARALLEL)

    def race() -> Any:
        connections[alias()].ensure_connection()
        barrier.wait(60)
        return copy_client(trial.client).send(sent)

    answers = run_in_threads(PARALLEL, race)
    said = ", ".join(str(answer.status_code) for answer in answers)
    if (gained := trial.effects() - before) > usual:
        raise NotIdempotent("executed_twice", f"{PARALLEL} requests at once had {write_count(gained)}; they got {said}")
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


def _get_key(client: Any, sent: Sent) -> str:
    return str(sent.options["headers"][client.key_header])


def _is_same(first: Any, second: Any) -> bool:
    where = first.headers.get("Location") == second.headers.get("Location")
    return where and first.status_code == second.status_code and read_body(first) == read_body(second)


def _quote(sent: Sent) -> str:
    return repr(sent.data)[:80]
