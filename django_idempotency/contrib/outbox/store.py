"""The store of an outbox in the project's database: `Outbox(ModelStore())`."""

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import router, transaction
from django.db.models import QuerySet

from django_idempotency.client.calls import OutgoingCall, ReceivedResponse
from django_idempotency.contrib.outbox.models import OutboxCall

__all__ = ["ModelStore"]


class ModelStore:
    """Stores the calls. Each is committed before it is sent, so `once` raises RuntimeError inside `atomic()`."""

    def __init__(self, using: str | None = None) -> None:
        self.using = using or router.db_for_write(OutboxCall)

    def add(self, call: OutgoingCall) -> OutgoingCall:
        names = ("key", "method", "url", "headers", "body", "created")
        with transaction.atomic(self.using, durable=True):
            row, _ = self._rows().get_or_create(name=call.name, defaults={name: getattr(call, name) for name in names})
        return _to_call(row)

    def finish(self, name: str, response: ReceivedResponse) -> ReceivedResponse:
        with transaction.atomic(self.using, durable=True):
            self._rows().filter(name=name, response_status=None).update(
                response_status=response.status, response_headers=dict(response.headers), response_body=response.body
            )
            row = self._rows().filter(name=name).first()
        return (row and _to_call(row).response) or response

    def open_calls(self) -> list[OutgoingCall]:
        return [_to_call(row) for row in self._rows().filter(response_status=None).order_by("created")]

    async def run_in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function where Django's connections belong in async code."""
        return await sync_to_async(function)(*arguments)

    def _rows(self) -> QuerySet[OutboxCall]:
        return OutboxCall.objects.using(self.using)


def _to_call(row: OutboxCall) -> OutgoingCall:
    response = None
    if row.response_status is not None:
        response = ReceivedResponse(row.response_status, row.response_headers, bytes(row.response_body))
    return OutgoingCall(row.name, row.key, row.method, row.url, bytes(row.body), row.headers, row.created, response)
