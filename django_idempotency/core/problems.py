"""What a client is told when it gets neither its own answer nor a stored one."""

import json
from dataclasses import dataclass
from typing import Any, Final

from django_idempotency.core.profiles import Profile, Shape
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import (
    InvalidKey,
    KeyExpired,
    KeyReused,
    NotExecuted,
    OutcomeUnknown,
    StillRunning,
    StoreUnavailable,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A stable code for machines, a title and a detail for people."""

    code: str
    title: str
    detail: str


MISSING: Final = Problem(
    "idempotency_key_missing",
    "Idempotency key missing",
    "This operation needs an idempotency key, so that it can be retried safely. Send one with every request.",
)
INVALID: Final = Problem(
    InvalidKey.code,
    "Idempotency key invalid",
    "The idempotency key cannot be used.",
)
MISMATCH: Final = Problem(
    KeyReused.code,
    "Idempotency key reused",
    "This idempotency key was first used with another request. Nothing was done; use a new key for a new request.",
)
IN_FLIGHT: Final = Problem(
    StillRunning.code,
    "Request still running",
    "The first request with this idempotency key is still running. Send the same request again later.",
)
ACCEPTED: Final = Problem(
    "idempotency_key_accepted",
    "Request accepted",
    "The request was accepted and is being worked on. Send the same request again later for its answer.",
)
UNKNOWN: Final = Problem(
    OutcomeUnknown.code,
    "Outcome unknown",
    "It is not known yet whether the first request with this idempotency key took effect. It is being looked into; "
    "do not repeat the operation under another key.",
)
EXPIRED: Final = Problem(
    KeyExpired.code,
    "Idempotency key expired",
    "The answer that belonged to this idempotency key is no longer kept. Use a new key for a new request.",
)
NO_PRINCIPAL: Final = Problem(
    "idempotency_principal_missing",
    "Credentials needed",
    "An idempotency key belongs to somebody. Send credentials with the request.",
)
NOT_EXECUTED: Final = Problem(
    NotExecuted.code,
    "Nothing was done",
    "The operation could not be started and had no effect. Send the same request again later.",
)
UNAVAILABLE: Final = Problem(
    StoreUnavailable.code,
    "Temporarily unavailable",
    "The request could not be protected against being executed twice, so it was not executed. "
    "Send the same request again later.",
)
EXHAUSTED: Final = Problem(
    "idempotency_attempts_exhausted",
    "Tried too often",
    "Every attempt with this idempotency key failed before it had an effect. Use a new key to try again.",
)
ABANDONED: Final = Problem(
    "idempotency_work_abandoned",
    "Never started",
    "The accepted work was never started and had no effect. Use a new key to try again.",
)


NOT_FOUND: Final = Problem(
    "idempotency_operation_not_found",
    "No such operation",
    "There is no operation of yours with this reference.",
)


def content(profile: Profile, problem: Problem, status: int, detail: str = "", **members: Any) -> dict[str, Any]:
    """What a refusal says, in the profile's shape."""
    said = detail or problem.detail
    if profile.shape is Shape.STRIPE:
        kind = "idempotency_error" if problem in (MISMATCH, MISSING, INVALID) else "api_error"
        return {"error": {"type": kind, "code": problem.code, "message": said}}
    full = {
        "type": profile.documentation or "about:blank",
        "title": problem.title,
        "status": status,
        "detail": said,
        "code": problem.code,
        **members,
    }
    return full if profile.reshape is None else dict(profile.reshape(full))


def media_type(profile: Profile) -> str:
    """RFC 9457's, unless the profile has a shape of its own."""
    plain = profile.shape is Shape.STRIPE or profile.reshape is not None
    return "application/json" if plain else "application/problem+json"


def link(profile: Profile) -> dict[str, str]:
    """Where the rules are published."""
    if not profile.documentation:
        return {}
    return {"Link": f'<{profile.documentation}>; rel="describedby"; type="text/html"'}


def render(profile: Profile, problem: Problem, status: int, detail: str = "", **members: Any) -> Reply:
    """A refusal as it is sent."""
    headers = {"Content-Type": media_type(profile), **link(profile)}
    body = json.dumps(content(profile, problem, status, detail, **members)).encode()
    return Reply(status=status, headers=tuple(headers.items()), body=body)
