"""The error responses of the idempotency layer: codes, texts and rendering."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django_idempotency.core.effects import Effect
from django_idempotency.core.links import docs_url
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


def gettext_noop(text: str) -> str:
    """Mark a text for translation. Problem bodies stay English; the page that a person reads is translated."""
    return text


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of error response: a stable code for machines, a title and a detail for people."""

    code: str
    title: str
    detail: str
    stripe_type: str = "api_error"  # one of the four types that Stripe's clients tell apart
    stripe_code: str = ""  # Stripe's own code, where it has one


MISSING_KEY: Final = Problem(
    "idempotency_key_missing",
    gettext_noop("Idempotency key missing"),
    gettext_noop(
        "This operation needs an idempotency key, so that it can be retried safely. Send a new one with each "
        "new request, and the same one again with a retry."
    ),
    stripe_type="idempotency_error",
)
EXAMPLE_KEY: Final = "8e03978e-40d5-43dd-bc93-6894a57f9324"
INVALID_KEY: Final = Problem(
    InvalidKey.code,
    gettext_noop("Idempotency key invalid"),
    gettext_noop("The idempotency key cannot be used."),
    stripe_type="idempotency_error",
)
MISMATCH: Final = Problem(
    KeyReused.code,
    gettext_noop("Idempotency key reused"),
    gettext_noop("This idempotency key was first used with a different request, and this one was not executed."),
    stripe_type="idempotency_error",
)
REUSED: Final = {
    Effect.NONE: gettext_noop("The first request had no effect. Use a new key to send this one."),
    Effect.POSSIBLE: gettext_noop(
        "The first request may have taken effect or may still do so. Do not send it with a new key: send the first "
        "request again, unchanged, to get its outcome."
    ),
    Effect.DONE: gettext_noop(
        "The first request took effect. If this is the same one, do not send it with a new key: send the first request "
        "again, unchanged, to get its response."
    ),
}
IN_FLIGHT: Final = Problem(
    StillRunning.code,
    gettext_noop("Request still running"),
    gettext_noop(
        "The first request with this idempotency key is still running. Send the same request again later; do not send "
        "it with another key."
    ),
    stripe_type="idempotency_error",
    stripe_code="idempotency_key_in_use",
)
ACCEPTED: Final = Problem(
    "idempotency_key_accepted",
    gettext_noop("Request accepted"),
    gettext_noop(
        "The request was accepted and is being processed. Send the same request again later to get its response."
    ),
)
UNKNOWN: Final = Problem(
    OutcomeUnknown.code,
    gettext_noop("Outcome unknown"),
    gettext_noop(
        "It is not known yet whether the first request with this idempotency key took effect. Do not send the "
        "operation with another key. The same request gets the response once the outcome is settled."
    ),
)
EXPIRED: Final = Problem(
    KeyExpired.code,
    gettext_noop("Idempotency key expired"),
    gettext_noop("The response for this idempotency key is no longer stored. Nothing was executed now."),
    stripe_type="idempotency_error",
)
GONE: Final = {
    Effect.NONE: gettext_noop("The first request had no effect. Use a new key to send it again."),
    Effect.POSSIBLE: gettext_noop(
        "The first request may have taken effect or may still do so. Do not send it with a new key before you know "
        "what became of it."
    ),
    Effect.DONE: gettext_noop("The first request took effect. Do not send it with a new key."),
}
NOT_STORED: Final = Problem(
    "idempotency_response_not_stored",
    gettext_noop("Done, response not stored"),
    gettext_noop(
        "The request took effect when it was first sent, but its response could not be stored, so it cannot be sent "
        "again. Nothing was executed now. Do not send it with another key."
    ),
)
BEGUN: Final = gettext_noop(
    "A part of this operation may have taken effect already. Send the same request again to continue it; do not send "
    "it with another key."
)
NO_PRINCIPAL: Final = Problem(
    "idempotency_principal_missing",
    gettext_noop("Credentials needed"),
    gettext_noop("Each idempotency key belongs to one authenticated caller. Send credentials with the request."),
    stripe_type="invalid_request_error",
)
UNKNOWN_CREDENTIALS: Final = gettext_noop(
    "The credentials of this request name no caller here, and it is not treated as anonymous while it has any. Send "
    "valid credentials, or none."
)
NOTHING_DONE: Final = Problem(
    NotExecuted.code,
    gettext_noop("Nothing was done"),
    gettext_noop(
        "The operation was not executed and had no effect. Send the same request again, with the same key, after the "
        "seconds in Retry-After."
    ),
)
UNAVAILABLE: Final = Problem(
    StoreUnavailable.code,
    gettext_noop("Temporarily unavailable"),
    gettext_noop(
        "The request could not be protected against being executed twice, so it was not executed. Send the same "
        "request again, with the same key, after the seconds in Retry-After."
    ),
)
EXHAUSTED: Final = Problem(
    "idempotency_attempts_exhausted",
    gettext_noop("Too many attempts"),
    gettext_noop("Every attempt with this idempotency key failed before it had an effect. Use a new key to try again."),
)
ABANDONED: Final = Problem(
    "idempotency_work_abandoned",
    gettext_noop("Work never started"),
    gettext_noop("The accepted work was never started and had no effect. Use a new key to try again."),
)
NOT_FOUND: Final = Problem(
    "idempotency_operation_not_found",
    gettext_noop("No such operation"),
    gettext_noop(
        "You have no operation with this reference or key. A request may still be on its way: send the same request "
        "again, with the same key."
    ),
    stripe_type="invalid_request_error",
    stripe_code="resource_missing",
)


PROBLEMS: Final = (
    MISSING_KEY,
    INVALID_KEY,
    MISMATCH,
    IN_FLIGHT,
    ACCEPTED,
    UNKNOWN,
    EXPIRED,
    NOT_STORED,
    NO_PRINCIPAL,
    NOTHING_DONE,
    UNAVAILABLE,
    EXHAUSTED,
    ABANDONED,
    NOT_FOUND,
)
DETAILS: Final = (
    *(problem.detail for problem in PROBLEMS),
    *REUSED.values(),
    *GONE.values(),
    BEGUN,
    UNKNOWN_CREDENTIALS,
)


def explain_missing_key(profile: Profile, strict: bool, *lookalikes: str) -> str:
    """Return the detail of MISSING_KEY, with the header to send. `lookalikes` are headers that were sent instead."""
    key = f'"{EXAMPLE_KEY}"' if strict else EXAMPLE_KEY
    sent = "".join(f" The request has the header {name}, which is not read." for name in lookalikes)
    return f"{MISSING_KEY.detail} For example: `{profile.header}: {key}`.{sent}"


def explain_mismatch(effect: Effect, differs_in: Sequence[str]) -> str:
    """Return the detail of MISMATCH, with the parts in which the two requests differ."""
    named = f" The requests differ in: {', '.join(differs_in).replace('_', ' ')}." if differs_in else ""
    return f"{MISMATCH.detail} {REUSED[effect]}{named}"


def explain_expiry(effect: Effect) -> str:
    """Return the detail of EXPIRED."""
    return f"{EXPIRED.detail} {GONE[effect]}"


def members_of(effect: Effect, reply: Reply | None = None) -> dict[str, Any]:
    """Return what an error response says about the effect: of a success also its status."""
    first = {"first_status": reply.status} if effect is Effect.DONE and reply is not None else {}
    return {"effect": effect.value, "safe_new_key": effect is Effect.NONE, **first}


def choose_code(profile: Profile, problem: Problem) -> str:
    """Return the code that a client of this profile gets. The rules page and the exceptions have the stable one."""
    usual = problem.stripe_code if profile.shape is Shape.STRIPE else ""
    return profile.codes.get(problem.code) or usual or problem.code


def find_rules(profile: Profile, problem: Problem, page: str) -> str:
    """Return the project's address that explains a problem: a section of the profile's page or of the rules page.

    Empty if the project has neither.
    """
    address = profile.documentation or page
    return f"{address}#{problem.code}" if address and "#" not in address else address


def find_type(profile: Profile, problem: Problem, page: str) -> str:
    """Return the `type` of a problem: each code has its own, which leads to an explanation."""
    return find_rules(profile, problem, page) or docs_url("reference/errors", problem.code)


def dump(members: Mapping[str, Any]) -> str:
    """Return members as JSON, spaced as Django REST framework does."""
    return json.dumps(members, separators=(",", ":"))


def build_members(
    profile: Profile, problem: Problem, status: int, detail: str = "", page: str = "", **members: Any
) -> dict[str, Any]:
    """Return the JSON members of an error response in the profile's shape. `page` is the address of the rules page."""
    text = detail or problem.detail
    if profile.shape is Shape.STRIPE:
        return {"error": {"type": problem.stripe_type, "code": choose_code(profile, problem), "message": text}}
    full = {
        "type": find_type(profile, problem, page),
        "title": problem.title,
        "status": status,
        "detail": text,
        "code": choose_code(profile, problem),
        **members,
    }
    return full if profile.reshape is None else dict(profile.reshape(full))


def choose_media_type(profile: Profile) -> str:
    """Return the media type of RFC 9457, unless the profile has another shape."""
    plain = profile.shape is Shape.STRIPE or profile.reshape is not None
    return "application/json" if plain else "application/problem+json"


def build_link(profile: Profile, problem: Problem, page: str = "", outcome: str = "") -> dict[str, str]:
    """Return the Link header with the published rules and the request's outcome; none if neither has an address."""
    rules = find_rules(profile, problem, page)
    links = [f'<{rules}>; rel="describedby"; type="text/html"'] if rules else []
    if outcome:
        links.append(f'<{outcome}>; rel="status"')  # RFC 8631
    return {"Link": ", ".join(links)} if links else {}


def render(profile: Profile, problem: Problem, status: int, detail: str = "", **members: Any) -> Reply:
    """Return the error response as it is sent."""
    headers = {"Content-Type": choose_media_type(profile), **build_link(profile, problem)}
    body = dump(build_members(profile, problem, status, detail, **members)).encode()
    return Reply(status=status, headers=tuple(headers.items()), body=body)
