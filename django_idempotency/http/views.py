"""The two views of the layer itself: the status of deferred work, and the health of the records."""

from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from django.views.generic import View

from django_idempotency.conf import policy
from django_idempotency.core import problems
from django_idempotency.core.decisions import Record
from django_idempotency.core.keys import unguessable
from django_idempotency.core.policy import Policy
from django_idempotency.core.progress import Progress
from django_idempotency.core.states import Status
from django_idempotency.exceptions import NoPrincipal, StoreUnavailable
from django_idempotency.http.atomic_requests import take_over
from django_idempotency.http.requests import ANONYMOUS, principal_of
from django_idempotency.http.responses import Refused, refusal, replay, unavailable
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.health import health
from django_idempotency.store import records
from django_idempotency.store.database import alias
from django_idempotency.store.limits import limited


class OperationView(View):
    """For projects without Django REST framework: the user is the session's."""

    def get(self, request: HttpRequest, ref: str) -> HttpResponseBase:
        return operation_status(request, ref)


def operation_status(request: HttpRequest, ref: str) -> HttpResponse:
    """What the one whose work it is gets; to everybody else it does not exist."""
    chosen, using = policy(), alias()
    asking = _asking(request, chosen)  # before anything is looked up, so that no header tells whether it was found
    try:
        with limited(using, chosen.claim_limit.total_seconds()):
            response = _answer(asking, ref, chosen, using)
    except StoreUnavailable:
        response = refusal(unavailable(chosen), chosen.profile)
    response["Cache-Control"] = "no-store"
    return response


def _asking(request: HttpRequest, chosen: Policy) -> str | None:
    try:
        return principal_of(request, chosen)
    except NoPrincipal:
        return None


def _answer(asking: str | None, ref: str, chosen: Policy, using: str) -> HttpResponse:
    row = _row(ref, using)
    seen = records.find(row.ref) if row is not None and _owns(asking, row) else None
    if row is None or seen is None:
        return refusal(Refused(problems.NOT_FOUND, 404), chosen.profile)
    if seen.reply is not None and not seen.retention_over:
        return replay(seen.reply, chosen.profile)
    if seen.status in (Status.PENDING, Status.IN_PROGRESS, Status.UNKNOWN):
        return _on_its_way(row, chosen)
    return refusal(_ended(seen, chosen), chosen.profile)


def _row(ref: str, using: str) -> IdempotencyKey | None:
    try:
        wanted = UUID(ref)
    except ValueError:
        return None
    keys = IdempotencyKey.objects.using(using).defer("response_body")
    return keys.filter(id=wanted, deferred=True).first()


def _owns(asking: str | None, row: IdempotencyKey) -> bool:
    """Work of callers without credentials is for whoever knows its reference, which only the key leads to."""
    if row.principal == ANONYMOUS:
        return unguessable(row.key) is None
    return asking is not None and asking == row.principal


def _on_its_way(row: IdempotencyKey, chosen: Policy) -> HttpResponse:
    progress = Progress.load(row.progress)
    body: dict[str, Any] = {"operation_ref": str(row.id), "status": row.status, "steps": progress.finished}
    body["recovery_point"] = row.recovery_point
    if progress.extent is not None:
        body["progress"] = dict(zip(("done", "total"), progress.extent, strict=True))
    wait = unavailable(chosen).retry_after
    return JsonResponse(body, status=202, headers={"Retry-After": str(wait)})


def _ended(seen: Record, chosen: Policy) -> Refused:
    """What ended without an answer that can be given."""
    members = {"safe_new_key": seen.status is not Status.DEAD_LETTER, "operation_ref": str(seen.id)}
    if seen.status is Status.DEAD_LETTER:
        return Refused(problems.UNKNOWN, chosen.profile.unknown, members=members)
    if seen.status is Status.FAILED_RETRYABLE:
        return Refused(problems.NOTHING_DONE, 409, members=members)
    return Refused(problems.EXPIRED, chosen.profile.gone, members=members)


LIMIT_SECONDS = 2.0


@take_over  # ATOMIC_REQUESTS would ask the store first, and nobody would catch what it says
@never_cache
@require_safe
def health_view(request: HttpRequest) -> JsonResponse:
    """200 when all is well, 503 when a person should look or the store does not answer. Names no key."""
    using = alias()
    try:
        with limited(using, LIMIT_SECONDS):
            found = health(using)
    except StoreUnavailable:
        return JsonResponse({"healthy": False, "complaints": ["The store does not answer."]}, status=503)
    return JsonResponse(found.as_json(), status=503 if found.complaints else 200)
