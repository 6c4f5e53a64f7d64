"""Each error of the service is an error of the client, in both dialects, as the service itself writes them."""

from __future__ import annotations

import pickle

import pytest

from django_idempotency import IETF, STRIPE
from django_idempotency.client import (
    CallError,
    InProgress,
    KeyExpired,
    KeyRejected,
    KeyReused,
    NothingDone,
    OutcomeUnknown,
    ReceivedResponse,
    ResponseLost,
)
from django_idempotency.client.errors import read_error
from django_idempotency.core.problems import ACCEPTED, PROBLEMS, Problem, render

KINDS = {
    "idempotency_key_missing": KeyRejected,
    "idempotency_key_invalid": KeyRejected,
    "idempotency_principal_missing": KeyRejected,
    "idempotency_key_reused_with_different_payload": KeyReused,
    "idempotency_key_in_progress": InProgress,
    "idempotency_outcome_unknown": OutcomeUnknown,
    "idempotency_key_expired": KeyExpired,
    "idempotency_not_executed": NothingDone,
    "idempotency_store_unavailable": NothingDone,
    "idempotency_attempts_exhausted": NothingDone,
    "idempotency_work_abandoned": NothingDone,
    "idempotency_response_not_stored": ResponseLost,
    "idempotency_operation_not_found": CallError,
}
ERRORS = [each for each in PROBLEMS if each is not ACCEPTED]


def received(status: int, body: bytes) -> ReceivedResponse:
    return ReceivedResponse(status, {"retry-after": "3"}, body)


@pytest.mark.parametrize("problem", ERRORS, ids=lambda problem: problem.code)
def test_every_problem_of_the_service_is_an_error(problem: Problem) -> None:
    reply = render(IETF, problem, 409, operation_ref="r-1", safe_new_key=True)
    error = read_error(received(409, reply.body or b""), "my-key")
    assert error is not None
    assert type(error) is KINDS[problem.code]
    assert (error.code, error.status, error.key, error.operation_ref) == (problem.code, 409, "my-key", "r-1")
    assert (error.safe_new_key, error.retry_after) == (True, 3)
    assert problem.detail in str(error)


@pytest.mark.parametrize("problem", [each for each in ERRORS if each.stripe_code != "resource_missing"], ids=str)
def test_it_is_the_same_error_in_stripes_dialect(problem: Problem) -> None:
    error = read_error(received(409, render(STRIPE, problem, 409).body or b""), "my-key")
    assert type(error) is KINDS[problem.code]
    assert error is not None
    assert error.safe_new_key is False


@pytest.mark.parametrize(("status", "kind"), [(400, KeyReused), (409, InProgress)])
def test_stripes_own_errors_may_have_no_code(status: int, kind: type[CallError]) -> None:
    body = b'{"error": {"type": "idempotency_error", "message": "Keys can only be used with the same parameters."}}'
    assert type(read_error(received(status, body), "")) is kind


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"\xff", b'{"code": 7}', b'{"code": "card_declined"}', b'{"error": {"type": "card_error"}}', b"null"],
)
def test_any_other_error_response_is_none_of_these(body: bytes) -> None:
    assert read_error(received(409, body), "") is None


def test_a_code_that_is_newer_than_the_client_is_an_error_too() -> None:
    error = read_error(received(409, b'{"code": "idempotency_newer", "operation_ref": null}'), "")
    assert type(error) is CallError
    assert (error.code, error.operation_ref) == ("idempotency_newer", "")


def test_a_success_is_never_an_error() -> None:
    assert read_error(received(200, b'{"code": "idempotency_outcome_unknown"}'), "") is None


def test_an_error_survives_the_way_between_processes() -> None:
    error = OutcomeUnknown("why", code="c", key="k", operation_ref="r")
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(copy), copy.key, copy.operation_ref, copy.safe_new_key) == ("why", "k", "r", False)
