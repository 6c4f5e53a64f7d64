"""Long work in three steps, views that defer it, and the messages that were sent."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from django_idempotency import Reply, json_reply
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NotExecuted, OutcomeUnknown
from django_idempotency.operations import Op, operation
from testproject.payments.models import LedgerEntry
from tests.kit.rides import WORLD, book

MESSAGES: list[str] = []
STEPS = ["row_1", "row_2", "row_3"]


@operation("tests.export")
def export(op: Op, *, title: str, entry: int = 0) -> Reply:
    for number, step in enumerate(STEPS, start=1):
        op.phase(step, book, step)
        op.progress(number, len(STEPS))
        WORLD.point(f"after {step}")
    return json_reply(201, {"title": title, "entry": entry}, [("Location", f"/exports/{title}")])


@operation("tests.unlucky")
def unlucky(op: Op) -> Reply:
    WORLD.sent.append("tried")
    raise NotExecuted


@operation("tests.failing")
def failing(op: Op) -> Reply:
    op.phase("booked", book, "booked")
    raise RuntimeError("no disk")


@operation("tests.asking")
def asking(op: Op) -> Reply:
    """Asks for another key, whose outcome nobody knows."""
    op.phase("booked", book, "booked")
    raise OutcomeUnknown("the other key's")


def broker_is_down(record: str) -> None:
    raise ConnectionRefusedError(record)


def note() -> dict[str, Any]:
    return {"entry": LedgerEntry.objects.create(reference="asked for", account="exports", amount=1).pk}


@idempotent(transaction="late", receipts=True)
def ask(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(export, title="may", write=note)  # type: ignore[attr-defined,no-any-return]


@idempotent(transaction="late", receipts=True)
async def ask_async(request: HttpRequest) -> HttpResponse:
    return await request.idempotency.adefer(export, title="may")  # type: ignore[attr-defined,no-any-return]


@idempotent(transaction="late", share_anonymous=True, guessable_anonymous=True, receipts=True)
def ask_anonymously(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(export, title="may")  # type: ignore[attr-defined,no-any-return]


@idempotent
def ask_early(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(export, title="may")  # type: ignore[attr-defined,no-any-return]


@idempotent(transaction="late", required=False)
def ask_without_key(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(export, title="may")  # type: ignore[attr-defined,no-any-return]


def tenant(request: HttpRequest) -> str:
    return "tenant:acme"


@idempotent(transaction="late", scope=tenant, receipts=True)
def ask_for_tenant(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(export, title="may")  # type: ignore[attr-defined,no-any-return]


@idempotent(transaction="late")
def ask_without_a_receipt(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(export, title="may")  # type: ignore[attr-defined,no-any-return]


urlpatterns = [
    path("idempotency/", include("django_idempotency.urls")),
    path("exports", ask),
    path("async", ask_async),
    path("anonymous", ask_anonymously),
    path("early", ask_early),
    path("optional", ask_without_key),
    path("tenant", ask_for_tenant),
    path("closed", ask_without_a_receipt),
]
