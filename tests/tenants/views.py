"""The view, the operation and the records of the small project."""

from datetime import timedelta
from itertools import count
from time import sleep
from typing import Any
from uuid import uuid4

from django.contrib import admin
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path

from django_idempotency import Reply, json_reply
from django_idempotency.decorators import idempotent
from django_idempotency.fields import StatementNow
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import once
from django_idempotency.operations import enqueue, operation
from django_idempotency.reconciliation import Inconclusive, reconciler

RUNS = count(1)
PERFORMED: list[str] = []
ASKED: list[str] = []
PAID: dict[str, str] = {}  # the record of each tenant's payment


def schema() -> str:
    return str(getattr(connection, "schema_name", ""))


@idempotent(receipts=True)
def pay(request: HttpRequest) -> HttpResponse:
    PAID[schema()] = request.idempotency.reference  # type: ignore[attr-defined]
    return JsonResponse({"schema": schema(), "run": next(RUNS)}, status=201)


@operation("tenants.export", version=1)
def export(op: Any, tenant: str) -> Reply:
    PERFORMED.append(f"{tenant} in {schema()}")
    return json_reply(200, {"schema": schema()})


def run_once() -> Any:
    return once(scope="invoices", key="2026-11", run=lambda claim: schema(), mode="atomic")


def enqueue_work() -> str:
    return enqueue("exports", "2026-11", export, tenant=schema())


def enqueue_for(tenant: str) -> str:
    from django_tenants.utils import schema_context

    with schema_context(tenant):
        return enqueue("exports", "by message", export, tenant=tenant)


def lose_lease() -> None:
    """Leave a record behind as a process does that was killed."""
    once(scope="lost", key=str(uuid4()), run=lambda claim: None, mode="atomic")
    IdempotencyKey.objects.filter(scope__contains="lost", status="completed").update(
        status="in_progress",
        response_status=None,
        completed_at=None,
        expires_at=None,
        attempt_token=uuid4(),
        locked_until=StatementNow() - timedelta(seconds=5),
    )


@reconciler("lost")
def find_out(record: IdempotencyKey) -> Inconclusive:
    ASKED.append(schema())
    return Inconclusive()


def outlive_lease() -> bool:
    """Work for longer than a lease that a heartbeat renews. True if it is still held."""

    def work(claim: Any) -> bool:
        sleep(2.5)
        return IdempotencyKey.objects.filter(id=claim.reference, locked_until__gt=StatementNow()).exists()

    times = {"lease": timedelta(seconds=2), "heartbeat": timedelta(minutes=1)}
    return bool(once(scope="long", key="2026-11", run=work, **times))


def count_unknown() -> int:
    return IdempotencyKey.objects.filter(status="unknown").count()


urlpatterns = [
    path("pay", pay, name="pay"),
    path("admin/", admin.site.urls),
    path("idempotency/", include("django_idempotency.urls")),
]
