"""The responses of the layer in an OpenAPI document, and the schema of each kind of problem."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, Final, TypeAlias

from django_idempotency.core import problems
from django_idempotency.core.calls import COMPARED
from django_idempotency.core.effects import Effect
from django_idempotency.core.policy import AfterExpiry, Policy
from django_idempotency.core.problems import Problem
from django_idempotency.core.profiles import IETF, Profile, Shape
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status

Schema: TypeAlias = dict[str, Any]
Register: TypeAlias = Callable[[str, Schema], Schema]  # adds a component, and returns the reference to it

_REFERENCE: Final = problems.EXAMPLE_KEY  # of a record; it is a UUID too
_INSTANCE: Final = f"urn:uuid:{_REFERENCE}"
_RECORD: Final = {"operation_ref": _REFERENCE, "instance": _INSTANCE}
_POSSIBLE: Final = problems.members_of(Effect.POSSIBLE)
_NONE: Final = problems.members_of(Effect.NONE)
# The members that a problem has besides those of RFC 9457 and its code, with examples.
_MEMBERS: Final[Mapping[Problem, Mapping[str, Any]]] = {
    problems.INVALID_KEY: {"reason": "too_short"},
    problems.MISMATCH: {**_POSSIBLE, **_RECORD},
    problems.IN_FLIGHT: _POSSIBLE,
    problems.UNKNOWN: _POSSIBLE,
    problems.EXPIRED: {**_POSSIBLE, **_RECORD},
    problems.NOT_STORED: {**problems.members_of(Effect.DONE, Reply(201, (), None)), **_RECORD},
    problems.EXHAUSTED: _NONE,
    problems.ABANDONED: _NONE,
    problems.NOT_FOUND: _POSSIBLE,
}
_ANY_OBJECT: Final = {"type": "object", "additionalProperties": True}
_RETRIED: Final = {problems.IN_FLIGHT, problems.UNKNOWN, problems.NOTHING_DONE, problems.UNAVAILABLE}
_OF_ONE_REQUEST: Final = {problems.IN_FLIGHT, problems.UNKNOWN, problems.MISMATCH}


def replayed_header(profile: Profile) -> Schema:
    """Return the response header that marks a replay."""
    description, values = "Only on a replay: the stored response to an earlier request with the same key.", ["true"]
    if profile.mark_first:
        description, values = "false on a response that was stored now, true on its replays.", ["false", "true"]
    return {profile.replayed_header: {"description": description, "schema": _text(enum=values)}}


def own_responses(policy: Policy, register: Register, shared: Set[int], *, defers: bool) -> dict[str, Schema]:
    """Return the responses that the layer gives in the place of the view, by status."""
    responses = problem_responses(policy.profile, _problems_of(policy), register, shared)
    if not defers:
        return responses
    return {**responses, "202": _accepted_response(policy.profile, register), **_abandoned_response(register)}


def _problems_of(policy: Policy) -> Iterator[tuple[int, Problem]]:
    profile = policy.profile
    if policy.required:
        yield profile.missing, problems.MISSING_KEY
    yield profile.invalid, problems.INVALID_KEY
    yield 403, problems.NO_PRINCIPAL
    yield profile.in_flight, problems.IN_FLIGHT
    yield profile.unknown, problems.UNKNOWN
    yield profile.mismatch, problems.MISMATCH
    yield profile.not_stored, problems.NOT_STORED
    if policy.after_expiry is AfterExpiry.GONE:
        yield profile.gone, problems.EXPIRED
    yield profile.unavailable, problems.NOTHING_DONE
    yield profile.unavailable, problems.UNAVAILABLE


def problem_responses(
    profile: Profile, found: Iterable[tuple[int, Problem]], register: Register, shared: Set[int] = frozenset()
) -> dict[str, Schema]:
    """Return the responses of these problems, those of one status as alternatives."""
    by_status: dict[int, list[Problem]] = {}
    for status, problem in found:
        by_status.setdefault(status, []).append(problem)
    return {
        str(status): {
            "description": " ".join(f"{each.title}." for each in several),
            "content": _content(profile, status, several, register, is_shared=status in shared),
            **_problem_headers(profile, several),
        }
        for status, several in by_status.items()
    }


def _content(profile: Profile, status: int, several: list[Problem], register: Register, *, is_shared: bool) -> Schema:
    """Return the media types of a status. A shared one has the framework's errors in both: some clients read one."""
    others = [{**_ANY_OBJECT, "description": "An error response of the view or of the framework."}] if is_shared else []
    content = {problems.choose_media_type(profile): _problem_content(profile, status, several, register, others)}
    for schema in others:
        content.setdefault("application/json", {"schema": {**schema}})
    return content


def _problem_content(
    profile: Profile, status: int, several: list[Problem], register: Register, others: list[Schema]
) -> Schema:
    bodies = {each: problems.build_members(profile, each, status, **_MEMBERS.get(each, {})) for each in several}
    if profile.shape is Shape.PROBLEM and profile.reshape is not None:  # JSON of the project's own making
        examples = {problem.code: {"value": body} for problem, body in bodies.items()}
        return {"schema": {**_ANY_OBJECT}, "examples": examples}
    alternatives = [_component_of(profile, problem, body, register) for problem, body in bodies.items()] + others
    return {"schema": alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}}


def _component_of(profile: Profile, problem: Problem, body: Mapping[str, Any], register: Register) -> Schema:
    """Return a reference to the schema of one kind of problem. Its code tells it from the others of its status."""
    name = _type_name(profile, problem, "" if profile.shape is Shape.PROBLEM else profile.shape)
    schema = {**_like(body, name, register), "description": problem.detail}
    if "effect" in body:
        schema["properties"]["effect"] = _one_of(register, "IdempotencyEffect", *Effect)
        schema["properties"].setdefault("first_status", {"type": "integer"})
        for member, example in _RECORD.items():
            schema["properties"].setdefault(member, _text(example=example))
    if problem is problems.MISMATCH and profile.shape is Shape.PROBLEM:
        schema["properties"]["differs_in"] = {"type": "array", "items": _text(enum=list(COMPARED))}
    return register(name, schema)


def _problem_headers(profile: Profile, several: Iterable[Problem]) -> Schema:
    targets = [
        f"the published rules of idempotency keys{'' if profile.documentation else ', if there is a page of them'}"
    ]
    if not _OF_ONE_REQUEST.isdisjoint(several):
        targets.append("the status of the first request, if the service has an address for it")
    link = {"description": f"Leads to {' and to '.join(targets)}.", "schema": _text()}
    return {"headers": {**({} if _RETRIED.isdisjoint(several) else _retry_after()), "Link": link}}


def _retry_after() -> Schema:
    return {
        "Retry-After": {"description": "Seconds to wait before a retry.", "schema": {"type": "integer", "minimum": 1}}
    }


def _accepted_response(profile: Profile, register: Register) -> Schema:
    """Return the 202 for work that was handed to a worker."""
    accepted = problems.ACCEPTED
    name = _type_name(profile, accepted)
    code = problems.choose_code(profile, accepted)
    body = {"code": code, "title": accepted.title, "detail": accepted.detail, "operation_ref": _REFERENCE}
    schema = {**_like(body, name, register), "description": accepted.detail}
    address = {"description": "The address of the work's status.", "schema": _text(format="uri-reference")}
    return {
        "description": f"{accepted.title}.",
        "content": {"application/json": {"schema": register(name, schema)}},
        "headers": {**_retry_after(), "Location": address},
    }


def _abandoned_response(register: Register) -> dict[str, Schema]:
    """Return the response to work that no worker began. The reaper stores it, which knows no profile."""
    return problem_responses(IETF, [(408, problems.ABANDONED)], register)


def status_responses(policy: Policy, register: Register) -> dict[str, Schema]:
    """Return the responses of the status view of deferred work."""
    profile = policy.profile
    found = [
        (404, problems.NOT_FOUND),
        (profile.unknown, problems.UNKNOWN),
        (409, problems.NOTHING_DONE),
        (profile.gone, problems.EXPIRED),
        (profile.unavailable, problems.UNAVAILABLE),
    ]
    body = _object(
        {
            "operation_ref": _text(example=_REFERENCE),
            "status": _one_of(
                register, "IdempotencyOperationState", Status.PENDING, Status.IN_PROGRESS, Status.UNKNOWN
            ),
            "steps": {"type": "array", "items": _text(), "description": "The steps that are done."},
            "recovery_point": _text(description="The last step that is done; empty before the first one."),
        }
    )
    body["properties"]["progress"] = _object({"done": {"type": "integer"}, "total": {"type": "integer"}})
    return {
        **problem_responses(profile, found, register),
        **_abandoned_response(register),
        "202": {
            "description": "The work is waiting or running.",
            "content": {"application/json": {"schema": register("IdempotencyOperationStatus", body)}},
            "headers": _retry_after(),
        },
        "200": {
            "description": "The request or the work has ended. `response` is what a retry of the request would get.",
            "content": {"application/json": {"schema": register("IdempotencyOutcome", _outcome_schema(register))}},
        },
    }


def _outcome_schema(register: Register) -> Schema:
    header = {"type": "array", "items": _text(), "minItems": 2, "maxItems": 2}
    response = _object(
        {
            "status": {"type": "integer"},
            "headers": {"type": "array", "items": header, "description": "Names and values; a name may occur twice."},
            "body": _text(nullable=True, description="None if the body is not stored."),
            "encoding": _one_of(register, "IdempotencyBodyEncoding", "utf-8", "base64"),
        }
    )
    status = _one_of(register, "IdempotencyEndedState", Status.COMPLETED, Status.FAILED)
    effect = _one_of(register, "IdempotencyEffect", *Effect)
    return _object(
        {"operation_ref": _text(example=_REFERENCE), "status": status, "effect": effect, "response": response}
    )


def _text(**more: Any) -> Schema:
    return {"type": "string", **more}


def _like(example: Any, name: str, register: Register) -> Schema:
    """Return the schema of values like this one, whose member `code` has this value alone."""
    match example:
        case bool():
            return {"type": "boolean", "example": example}
        case int():
            return {"type": "integer"}
        case str():
            return _text(example=example)
    return _object(
        {
            member: _one_of(register, f"{name}Code", value) if member == "code" else _like(value, name, register)
            for member, value in example.items()
        }
    )


def _one_of(register: Register, name: str, *values: str) -> Schema:
    """Allow these values. drf-spectacular names enums by itself, and with ours among them the project's differently."""
    return register(name, _text(enum=[str(value) for value in values]))


def _object(members: Schema) -> Schema:
    return {"type": "object", "properties": members, "required": list(members)}


def _type_name(profile: Profile, problem: Problem, shape: str = "") -> str:
    """Return the name of a component: a profile's own code has one of its own."""
    words = re.findall("[A-Za-z0-9]+", f"{shape} {problem.code} {profile.codes.get(problem.code, '')}")
    return "".join(word.capitalize() for word in words)
