"""The views of the layer itself: the status of deferred work and of keys, and the health of the records."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import Error
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.generic import View

from django_idempotency.conf import default_policy
from django_idempotency.core import problems
from django_idempotency.core.calls import ANONYMOUS, make_record_id
from django_idempotency.core.decisions import is_settled, seconds_to_outcome
from django_idempotency.core.keys import fit_name, parse_key, unguessable
from django_idempotency.core.policy import Policy
from django_idempotency.core.progress import Progress
from django_idempotency.core.replies import Reply
from django_idempotency.core.states import Status
from django_idempotency.core.validation import OBJECT
from django_idempotency.exceptions import InvalidKey, NoPrincipal, StoreUnavailable
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.http.objects import require_object_of
from django_idempotency.http.own_responses import require_authorization
from django_idempotency.http.requests import principal_of, scope_of, tenant_of
from django_idempotency.http.responses import ProblemDetails, problem_response, replay_response, unavailable_problem
from django_idempotency.http.urlconf import match_of, policies_named, policies_of
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.health import health
from django_idempotency.signals import logger
from django_idempotency.store import records
from django_idempotency.store.limits import limited
from django_idempotency.store.records import alias

HEALTH_LIMIT_SECONDS: Final = 2.0

Owner: TypeAlias = tuple[str, str | None]  # tenant and principal


class OperationView(View):
    """The status of a request or of deferred work, for projects without Django REST framework.

    The caller is the session's user.
    """

    def get(self, request: HttpRequest, ref: str) -> HttpResponseBase:
        return operation_status(request, ref)


class KeyView(View):
    """The outcome of a key, for projects without Django REST framework: the caller is the session's user."""

    def get(self, request: HttpRequest, key: str) -> HttpResponseBase:
        return key_status(request, key)


def operation_status(request: HttpRequest, ref: str) -> HttpResponse:
    """Return the status of a request or of deferred work to its owner. Anyone else gets the 404 of an unknown one."""
    policy = default_policy()
    owner = _owner(request, policy)  # before the record is read, so that no header tells whether there is one
    return _respond(partial(_read_by_reference, ref), owner, policy, request)


def key_status(request: HttpRequest, key: str) -> HttpResponse:
    """Return the outcome of a key of the operation that the query names, to the owner of the key. It runs nothing.

    The policy of the operation's endpoint tells whose key it is. Endpoints that share an operation share its keys.
    """
    operation = request.GET.get("operation", "")
    policies = policies_named(operation, getattr(request, "urlconf", None))
    policy = policies[0].policy() if policies else default_policy()
    owner = _owner(request, policy)
    known = owner if policies else None
    return _respond(partial(_read_key, key, operation, known, policy), known, policy, request)


def _respond(
    read: Callable[[str], IdempotencyKey | None], owner: Owner | None, policy: Policy, request: HttpRequest
) -> HttpResponse:
    using = alias()
    try:
        with limited(using, policy.claim_limit.total_seconds()):
            row = read(using)
        response = _status_of(row, owner, policy, request)
    except StoreUnavailable:
        response = problem_response(unavailable_problem(policy), policy.profile)
    response["Cache-Control"] = "no-store"
    return response


def _owner(request: HttpRequest, policy: Policy) -> Owner | None:
    """Return the tenant and the principal that ask; None if the tenant is not known."""
    try:
        tenant = tenant_of(request, policy)
    except NoPrincipal:
        return None
    try:
        return tenant, principal_of(request, policy)
    except NoPrincipal:
        return tenant, None


def _status_of(row: IdempotencyKey | None, owner: Owner | None, policy: Policy, request: HttpRequest) -> HttpResponse:
    if row is None or not _owns(owner, row):
        return problem_response(ProblemDetails(problems.NOT_FOUND, 404), policy.profile)
    reply = records.reply_of(row)
    if reply is not None and not row.retention_over:
        _require_authorization(request, row, reply)
        return replay_response(reply, policy.profile)
    if row.status in (Status.PENDING, Status.IN_PROGRESS) or (row.deferred and row.status == Status.UNKNOWN):
        return _progress_response(row, policy)
    return problem_response(_problem_of(row, policy), policy.profile)


def _read_by_reference(ref: str, using: str) -> IdempotencyKey | None:
    """Return the record of a request or of deferred work. What `once` ran was promised to no client."""
    try:
        record = UUID(ref)
    except ValueError:
        return None
    row = records.load(record, using)
    return row if row is not None and (row.deferred or row.request_path) else None


def _read_key(key: str, operation: str, owner: Owner | None, policy: Policy, using: str) -> IdempotencyKey | None:
    if owner is None:
        return None
    try:
        parsed = parse_key([key], replace(policy.key, strict=False))
    except InvalidKey:
        return None
    tenant, principal = owner
    scope = scope_of(principal or ANONYMOUS, fit_name(operation), tenant)
    return records.load(make_record_id(scope, parsed), using)


def _owns(owner: Owner | None, row: IdempotencyKey) -> bool:
    """True if the work is this caller's. Anonymous work is for every caller of the tenant that knows its reference.

    The reference is made from the key, so an unguessable key makes it unguessable too. The scope is compared and not
    the principal alone, because two tenants may have a user with the same primary key.
    """
    if row.principal == ANONYMOUS:
        return unguessable(row.key) is None and owner is not None and _is_scope(row, owner[0], ANONYMOUS)
    return owner is not None and owner[1] is not None and _is_scope(row, owner[0], owner[1])


def _is_scope(row: IdempotencyKey, tenant: str, principal: str) -> bool:
    return row.scope == scope_of(principal, row.operation, tenant)


def _require_authorization(request: HttpRequest, row: IdempotencyKey, reply: Reply) -> None:
    """Ask the `authorize` of the endpoint that took the work, as a retry of its request would.

    Work of `enqueue` has no endpoint. If that of a request cannot be found, its policy is not known, and nothing is
    replayed.
    """
    if not row.request_path:
        return
    root = getattr(request, "urlconf", None)
    policies = policies_of(row.operation, row.request_path, root)
    if policies is None:
        logger.warning("No endpoint has the operation %r, so its `authorize` cannot be asked.", row.operation)
        raise PermissionDenied
    record = records.as_read(row)
    for arguments in policies:
        require_authorization(arguments.policy(), request, record)
    if any(arguments.policy().authorize == OBJECT for arguments in policies):
        require_object_of(row, match_of(row.request_path, root), request, reply)


def _progress_response(row: IdempotencyKey, policy: Policy) -> HttpResponse:
    progress = Progress.load(row.progress) if row.progress else Progress()
    body: dict[str, Any] = {"operation_ref": str(row.id), "status": row.status, "steps": progress.finished}
    body["recovery_point"] = row.recovery_point
    if progress.extent is not None:
        body["progress"] = dict(zip(("done", "total"), progress.extent, strict=True))
    wait = unavailable_problem(policy).retry_after
    return JsonResponse(body, status=202, headers={"Retry-After": str(wait)})


def _problem_of(row: IdempotencyKey, policy: Policy) -> ProblemDetails:
    """Return the problem of work that ended without a response that can be replayed."""
    settled = is_settled(Status(row.status), row.grace_left)
    members = {"safe_new_key": settled, "operation_ref": str(row.id)}
    if row.status in Status.IN_DOUBT:
        wait = seconds_to_outcome(records.as_read(row), policy)
        return ProblemDetails(problems.UNKNOWN, policy.profile.unknown, "", wait, members)
    if row.status == Status.FAILED_RETRYABLE:
        return ProblemDetails(problems.NOTHING_DONE, 409, members=members)
    detail = "" if settled else problems.EXPIRED_IN_GRACE
    return ProblemDetails(problems.EXPIRED, policy.profile.gone, detail, members=members)


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
