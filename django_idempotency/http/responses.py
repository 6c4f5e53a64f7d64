"""The responses that the layer itself makes: replays, 202s and problems."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil
from typing import Any, Final
from uuid import UUID

from django.http import BadHeaderError, HttpResponse
from django.urls import NoReverseMatch, reverse

from django_idempotency.core import problems
from django_idempotency.core.calls import LONGEST_STORED, Call
from django_idempotency.core.decisions import (
    Gone,
    InDoubt,
    InFlight,
    Mismatch,
    Record,
    TooEarly,
    seconds_to_outcome,
)
from django_idempotency.core.effects import Effect
from django_idempotency.core.policy import Mode, Policy
from django_idempotency.core.profiles import Profile
from django_idempotency.core.replies import Reply, unfold
from django_idempotency.core.validation import discard_awaitable
from django_idempotency.http.doors import door_at
from django_idempotency.signals import logger

STATUS_ROUTE: Final = "django_idempotency:idempotency-operation"
RULES_ROUTE: Final = "django_idempotency_rules:rules"
OMITTED_HEADER: Final = "Idempotency-Replay"
SHOWN_WITHOUT_BODY: Final = ("Location", "Content-Location", "Link")  # where the result of a success is


def plain_response(reply: Reply) -> HttpResponse:
    """Return a stored reply as a response: its status, headers and bytes, without the headers that Django adds."""
    response = HttpResponse(reply.body or b"", status=reply.status)
    del response["Content-Type"]
    for name, value in reply.headers:
        try:
            if unfold(value) != value:
                raise BadHeaderError
            response[name] = value
        except (BadHeaderError, UnicodeError):  # in a reply that the project made itself, or in an old record
            logger.error("A stored response has a header %r that cannot be sent; it is left out.", name)
    if "Location" in response:
        response.url = response["Location"]  # type: ignore[attr-defined] # Django's redirects have it
    return response


def replay_response(reply: Reply, profile: Profile) -> HttpResponse:
    """Return a stored reply as a response that is marked as a replay. No cache keeps it unless the view said so."""
    response = plain_response(reply)
    response[profile.replayed_header] = "true"
    response.setdefault("Cache-Control", "no-store")
    if reply.omitted:
        response[OMITTED_HEADER] = "omitted"
    return response


def apply_upgrade(reply: Reply, policy: Policy) -> Reply:
    """Return a stored reply in today's schema version, if the policy can convert it."""
    if policy.upgrade is None or reply.schema_version == policy.reply.schema_version:
        return reply
    newer = policy.upgrade(reply)
    if discard_awaitable(newer) or not isinstance(newer, Reply):
        raise TypeError(f"upgrade of the policy must return a Reply; it returned a {type(newer).__name__}.")
    return newer


def accepted_response(call: Call, retry_after: int | None = None) -> HttpResponse:
    """Return the 202 for deferred work: the same for the first request and for each retry until a worker is done."""
    accepted = problems.ACCEPTED
    code = problems.choose_code(call.policy.profile, accepted)
    body = {"code": code, "title": accepted.title, "detail": accepted.detail, "operation_ref": str(call.id)}
    wait = call.policy.retry_hint.total_seconds() if retry_after is None else retry_after
    headers = {"Cache-Control": "no-store", "Retry-After": str(max(1, ceil(wait)))}
    address = status_address(call)
    if address is None and call.policy.receipts is None:
        _report_no_address(call.operation)
    headers |= {"Content-Type": "application/json"} | ({"Location": address} if address else {})
    return HttpResponse(problems.dump(body), status=202, headers=headers)


@lru_cache(maxsize=1024)
def _report_no_address(operation: str) -> None:
    """Tell the developer once in each process."""
    logger.warning(
        "The 202 of the operation %r has no Location, so its client cannot poll. Include django_idempotency.urls, and "
        "set receipts=True in the policy if its view is a plain Django view; receipts=False if it needs none.",
        operation,
    )


def status_address(call: Call) -> str | None:
    """Return the address of the status view; None if there is none, or the endpoint cannot be asked who may see it."""
    if len(call.path) >= LONGEST_STORED:  # the record may hold only the beginning
        return None
    door = door_at(call.path, call.method)
    try:
        return reverse(STATUS_ROUTE, args=[str(call.id)]) if door is not None and door.opens else None
    except NoReverseMatch:
        return None


def outcome_address(call: Call, record: Record | None = None) -> str:
    """Return the address at which a request's outcome will be found, without its key; empty if there is none.

    In atomic mode a request leaves no record before it ends, so nothing would be found there.
    """
    return "" if record is None and call.policy.mode is Mode.ATOMIC else status_address(call) or ""


def rules_address() -> str:
    """Return the address of the rules page in the URLconf of this request; empty if the page is not in it."""
    try:
        return reverse(RULES_ROUTE)
    except NoReverseMatch:
        return ""


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """What an error response of the layer says, before a profile gives it a shape."""

    problem: problems.Problem
    status: int
    detail: str = ""
    retry_after: int | None = None
    members: dict[str, Any] = field(default_factory=dict)
    page: str = field(default_factory=rules_address)
    outcome: str = ""  # the address of the request's outcome
    headers: dict[str, str] = field(default_factory=dict)

    def content(self, profile: Profile) -> dict[str, Any]:
        """Return the JSON of the response's body."""
        members = dict(self.members)
        if "operation_ref" in members:
            members["instance"] = self.outcome or f"urn:uuid:{members['operation_ref']}"
        return problems.build_members(profile, self.problem, self.status, self.detail, self.page, **members)


def problem_response(details: ProblemDetails, profile: Profile) -> HttpResponse:
    """Return problem details as a response in the profile's shape."""
    headers = {"Content-Type": problems.choose_media_type(profile), **problem_headers(details, profile)}
    return HttpResponse(problems.dump(details.content(profile)), status=details.status, headers=headers)


def problem_headers(details: ProblemDetails, profile: Profile) -> dict[str, str]:
    """Return the headers of a problem, apart from those of its body."""
    wait = {} if details.retry_after is None else {"Retry-After": str(details.retry_after)}
    link = problems.build_link(profile, details.problem, details.page, details.outcome)
    headers = dict(details.headers)
    if "Link" in headers and "Link" in link:
        link["Link"] += f", {headers['Link']}"
    return {**headers, "Cache-Control": "no-store", **link, **wait}


def problem_for(answer: Gone | InDoubt | InFlight | Mismatch | TooEarly, call: Call) -> ProblemDetails:
    """Return the problem that a decision stands for."""
    profile = call.policy.profile
    match answer:
        case Mismatch(record, differs_in):
            return mismatch_problem(call, record, differs_in if call.has_one_principal else ())
        case InFlight(record, retry_after):
            members, outcome = effect_members(call, record), outcome_address(call, record)
            return ProblemDetails(problems.IN_FLIGHT, profile.in_flight, "", retry_after, members, outcome=outcome)
        case TooEarly(record, retry_after) if record.traced:
            members, outcome = effect_members(call, record), outcome_address(call, record)
            return begun_problem(call.policy, members, retry_after, outcome)
        case TooEarly(_, retry_after):
            return nothing_done_problem(call.policy, retry_after)
        case InDoubt(record):
            return unknown_problem(call, record)
        case Gone(record):
            detail, members = problems.explain_expiry(record.effect), effect_members(call, record)
            return ProblemDetails(problems.EXPIRED, profile.gone, detail, members=members)


def mismatch_problem(call: Call, record: Record, differs_in: Sequence[str]) -> ProblemDetails:
    """Return the problem for a key that belongs to a different request."""
    detail = problems.explain_mismatch(record.effect, differs_in)
    members = effect_members(call, record)
    if differs_in:
        members["differs_in"] = list(differs_in)
    shown = record.effect is Effect.DONE and call.has_one_principal
    outcome = outcome_address(call, record) if shown else ""
    return ProblemDetails(problems.MISMATCH, call.policy.profile.mismatch, detail, members=members, outcome=outcome)


def effect_members(call: Call, record: Record | None) -> dict[str, Any]:
    """Return the members that say what is known about the effect, and so whether the client may use a new key.

    In atomic mode a request that has not ended has no record, so no reference leads to it.
    """
    reference = {} if record is None and call.policy.mode is Mode.ATOMIC else {"operation_ref": str(call.id)}
    if record is None:
        return {**problems.members_of(Effect.POSSIBLE), **reference}
    return {**problems.members_of(record.effect, record.reply), **reference}


def not_stored_problem(policy: Policy, reply: Reply, reference: UUID) -> ProblemDetails:
    """Return the problem for a success whose response could not be stored, with the headers that lead to its result."""
    members = {**problems.members_of(Effect.DONE, reply), "operation_ref": str(reference)}
    headers = {name: value for name, value in reply.headers if name.title() in SHOWN_WITHOUT_BODY}
    return ProblemDetails(problems.NOT_STORED, policy.profile.not_stored, members=members, headers=headers)


def begun_problem(policy: Policy, members: dict[str, Any], retry_after: int, outcome: str = "") -> ProblemDetails:
    """Return the problem for work of which a part may have taken effect, and that the same request continues."""
    return ProblemDetails(
        problems.UNKNOWN, policy.profile.unknown, problems.BEGUN, max(1, retry_after), members, outcome=outcome
    )


def unknown_problem(call: Call, record: Record | None = None) -> ProblemDetails:
    """Return the problem for an outcome that is not known. Without a record it has just become unknown."""
    wait, members = seconds_to_outcome(record, call.policy), effect_members(call, record)
    outcome = outcome_address(call, record)
    return ProblemDetails(problems.UNKNOWN, call.policy.profile.unknown, "", wait, members, outcome=outcome)


def nothing_done_problem(policy: Policy, retry_after: float) -> ProblemDetails:
    """Return the problem for work that was proven not executed: the same key may be used again, after the pause."""
    wait = max(1, ceil(policy.retry_hint.total_seconds()), ceil(retry_after))
    return ProblemDetails(problems.NOTHING_DONE, policy.profile.unavailable, "", wait)


def unavailable_problem(policy: Policy, detail: str = "") -> ProblemDetails:
    """Return the problem for a store that does not answer: nothing was executed."""
    wait = max(1, ceil(policy.retry_hint.total_seconds()))
    return ProblemDetails(problems.UNAVAILABLE, policy.profile.unavailable, detail, wait)
