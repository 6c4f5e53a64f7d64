"""The views of the layer itself: the status of deferred work and of keys, and the health of the records."""

from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.generic import View

from django_idempotency.conf import default_policy
from django_idempotency.core import problems
from django_idempotency.core.calls import ANONYMOUS, LONGEST_STORED, make_record_id
from django_idempotency.core.decisions import Record, seconds_to_outcome
from django_idempotency.core.effects import Effect
from django_idempotency.core.keys import parse_key, unguessable
from django_idempotency.core.policy import Policy
from django_idempotency.core.progress import Progress
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.exceptions import InvalidKey, NoPrincipal, StoreUnavailable
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.http.doors import Authentication, NotAdmitted, Visitor, door_at, sent_path
from django_idempotency.http.requests import header, principal_of, scope_of_request, scopes_of_caller
from django_idempotency.http.responses import (
    ProblemDetails,
    apply_upgrade,
    begun_problem,
    problem_response,
    unavailable_problem,
)
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.health import health
from django_idempotency.signals import logger
from django_idempotency.store import records
from django_idempotency.store.limits import limited
from django_idempotency.store.records import alias

HEALTH_LIMIT_SECONDS: Final = 2.0


class OperationView(View):
    """The status of a request or of deferred work, for projects without Django REST framework."""

    def get(self, request: HttpRequest, ref: str) -> HttpResponseBase:
        return operation_status(request, ref)


class KeyView(View):
    """The outcome of a key, for projects without Django REST framework."""

    def get(self, request: HttpRequest) -> HttpResponseBase:
        return key_status(request)


def operation_status(request: HttpRequest, ref: str, authenticate: Authentication | None = None) -> HttpResponse:
    """Return the status of a request or of deferred work to its owner. Anyone else gets the 404 of an unknown one.

    The record tells the path of its request, and the endpoint there is asked who may see it.
    """
    try:
        row = _read(partial(_read_by_reference, ref), default_policy())
        return _confidential(_not_found() if row is None else _show_to_owner(row, request, authenticate))
    except StoreUnavailable as error:
        return _unavailable(default_policy(), error)


def _show_to_owner(row: IdempotencyKey, request: HttpRequest, authenticate: Authentication | None) -> HttpResponse:
    door = door_at(row.request_path, row.request_method)
    if door is None or not door.opens:
        return _not_found()
    try:
        visitor = door.let_in(request, authenticate=authenticate)
    except NotAdmitted as refusal:
        may_wait = refusal.response.status_code == 429 and _owns(refusal.caller, door.policy, row)
        return refusal.response if may_wait else _not_found()  # which tells nobody that there is a record
    return _show(row, visitor) if _owns(visitor.request, visitor.policy, row) else _not_found()


def key_status(request: HttpRequest, authenticate: Authentication | None = None) -> HttpResponse:
    """Return the outcome of the key in the header to its owner. It runs nothing.

    The query names the path to which the client sent its request, and the endpoint there is asked before anything else.
    """
    path, query = sent_path(request.GET.get("path", ""))
    method = request.GET.get("method", "POST").upper()
    door = door_at(path, method)
    if door is None or not door.opens:
        return _confidential(_not_found())
    try:
        visitor = door.let_in(request, query, authenticate)
    except NotAdmitted as refusal:
        return _confidential(refusal.response)
    policy = visitor.policy
    given = header(request, policy.profile.header) or ""
    try:
        row = _read(partial(_read_by_key, visitor, given), policy)
    except StoreUnavailable as error:
        return _unavailable(policy, error)
    if row is None or (row.request_method, row.request_path) != (method, path[:LONGEST_STORED]):
        return _confidential(_not_found(policy))
    return _confidential(_show(row, visitor))


def _read(read: Callable[[str], IdempotencyKey | None], policy: Policy) -> IdempotencyKey | None:
    using = alias()
    with limited(using, policy.claim_limit.total_seconds()):
        return read(using)


def _confidential(response: HttpResponse) -> HttpResponse:
    """Keep caches from the response. No header tells whether there is a record, of whose session Django takes note."""
    response["Cache-Control"] = "no-store"
    patch_vary_headers(response, ("Authorization", "Cookie"))
    return response


def _not_found(policy: Policy | None = None) -> HttpResponse:
    """Return the response for what has no record. Its request may not have arrived or, in atomic mode, not ended."""
    details = ProblemDetails(problems.NOT_FOUND, 404, members=problems.members_of(Effect.POSSIBLE))
    return problem_response(details, (policy or default_policy()).profile)


def _unavailable(policy: Policy, error: StoreUnavailable) -> HttpResponse:
    """Return the 503 of a record that could not be read. It tells nothing about the request that the record is of."""
    logger.error("The idempotency store failed; an outcome could not be read.", exc_info=error)
    detail = "The outcome of the request could not be read, so it is not known here. Ask again later."
    details = replace(unavailable_problem(policy, detail), members=problems.members_of(Effect.POSSIBLE))
    return _confidential(problem_response(details, policy.profile))


def _read_by_reference(ref: str, using: str) -> IdempotencyKey | None:
    """Return the record of a request. What `once` and `enqueue` ran was promised to no client."""
    try:
        row = records.load(UUID(ref), using)
    except ValueError:
        return None
    return row if row is not None and len(row.request_path) < LONGEST_STORED else None  # a longer path was cut


def _read_by_key(visitor: Visitor, given: str, using: str) -> IdempotencyKey | None:
    policy = visitor.policy
    try:
        principal = principal_of(visitor.request, policy)
        rule = replace(policy.key, strict=False)
        key = parse_key([given], rule, first=None if principal is not None else unguessable)
        scopes = scopes_of_caller(visitor.request, policy, principal)
        rows = (records.load(make_record_id(scope, key), using) for scope in scopes)
        return next((row for row in rows if row is not None), None)
    except (InvalidKey, NoPrincipal):
        return None


def _owns(request: HttpRequest, policy: Policy, row: IdempotencyKey) -> bool:
    """True if a retry of this caller would have this record's scope.

    Work of anonymous callers is for every caller that knows its reference, after a login too. The reference is made
    from the key, so an unguessable key makes it unguessable too.
    """
    shared = policy.share_anonymous and row.principal == ANONYMOUS and unguessable(row.key) is None
    try:
        if shared and row.scope == scope_of_request(request, policy, None):
            return True
        principal = principal_of(request, policy)
        return principal is not None and row.scope in scopes_of_caller(request, policy, principal)
    except NoPrincipal:
        return False


def _show(row: IdempotencyKey, visitor: Visitor) -> HttpResponse:
    record, policy = records.as_read(row), visitor.policy
    if record.reply is not None and not record.retention_over:
        try:
            visitor.require_authorization(record, record.reply)
        except NotAdmitted as refusal:
            return refusal.response
        return _outcome_response(record, apply_upgrade(record.reply, policy))
    match record.status:
        case Status.PENDING | Status.IN_PROGRESS:
            return _progress_response(row, policy)
        case Status.UNKNOWN if record.deferred:
            return _progress_response(row, policy)
        case status if status in Status.IN_DOUBT:
            wait = seconds_to_outcome(record, policy)
            details = ProblemDetails(problems.UNKNOWN, policy.profile.unknown, "", wait, _advice(record))
        case Status.FAILED_RETRYABLE if record.traced and not record.retention_over:
            details = begun_problem(policy, _advice(record), int(policy.retry_hint.total_seconds()))
        case Status.FAILED_RETRYABLE if not record.retention_over:
            details = ProblemDetails(problems.NOTHING_DONE, 409, members=_advice(record))
        case _:
            detail = problems.explain_expiry(record.effect)
            details = ProblemDetails(problems.EXPIRED, policy.profile.gone, detail, members=_advice(record))
    return problem_response(details, policy.profile)


def _advice(record: Record) -> dict[str, Any]:
    return {**problems.members_of(record.effect, record.reply), "operation_ref": str(record.id)}


def _outcome_response(record: Record, reply: Reply) -> HttpResponse:
    """Return a stored response inside JSON: as it is, a browser could show its page or follow its redirect here."""
    response: dict[str, Any] = {"status": reply.status, "headers": reply.headers, "body": None, "encoding": "utf-8"}
    if reply.body is not None:
        try:
            response["body"] = reply.body.decode()
        except UnicodeDecodeError:
            response |= {"body": b64encode(reply.body).decode(), "encoding": "base64"}
    body = {"operation_ref": str(record.id), "status": record.status, "effect": record.effect, "response": response}
    return JsonResponse(body, headers={"X-Content-Type-Options": "nosniff"})


def _progress_response(row: IdempotencyKey, policy: Policy) -> HttpResponse:
    progress = Progress.load(row.progress) if row.progress else Progress()
    body: dict[str, Any] = {"operation_ref": str(row.id), "status": row.status, "steps": progress.finished}
    body["recovery_point"] = row.recovery_point
    if progress.extent is not None:
        body["progress"] = dict(zip(("done", "total"), progress.extent, strict=True))
    wait = unavailable_problem(policy).retry_after
    return JsonResponse(body, status=202, headers={"Retry-After": str(wait)})


@opt_out_of_atomic_requests  # else Django would open a transaction first, and an unavailable store would be a 500
@never_cache
@require_safe
def health_view(request: HttpRequest) -> JsonResponse:
    """Return 200 if no problem is found, 503 if a person should look or the store does not answer.

    No key is named. Of an error, only staff see more than its class.
    """
    using = alias()
    try:
        with limited(using, HEALTH_LIMIT_SECONDS):
            found = health(using)
    except StoreUnavailable:
        return JsonResponse({"healthy": False, "complaints": ["The store does not answer."]}, status=503)
    if not _is_staff(request):
        found = found.without_details()
    return JsonResponse(found.as_json(), status=503 if found.complaints else 200)


def _is_staff(request: HttpRequest) -> bool:
    user: Any = getattr(request, "user", None)
    try:
        return user is not None and bool(user.is_active and getattr(user, "is_staff", False))
    except Error:  # sessions and users may be in a database that does not answer
        return False
