"""Idempotency layers as people write them: a right one, as far as its clients can see, and one with each defect."""

from __future__ import annotations

import json
from dataclasses import dataclass
from threading import Barrier, Lock, current_thread, main_thread
from typing import Any
from uuid import uuid4

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse

from django_idempotency.testing import FakeProvider
from django_idempotency.testing.endpoint_checks import PARALLEL
from testproject.payments.models import LedgerEntry

PROVIDER = FakeProvider()
KEPT: dict[str, Kept] = {}
LOCK = Lock()


@dataclass
class Kept:
    body: bytes
    response: HttpResponse | None = None


def charge(request: HttpRequest, downstream: str) -> HttpResponse:
    """The work: a charge at the provider and an entry in the ledger."""
    order = json.loads(request.body)
    charged = PROVIDER.send(order, downstream)
    with transaction.atomic():
        entry = LedgerEntry.objects.create(reference=charged.id, account="cash", amount=order["amount"])
    return HttpResponse(json.dumps({"id": entry.pk}), status=201, headers={"Location": f"/charges/{entry.pk}"})


class Layer:
    """The right one. Each defect below replaces one of its decisions."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not request.user.is_authenticated:
            return HttpResponse(status=401)
        return self.run(request)

    def run(self, request: HttpRequest) -> HttpResponse:
        name, mine = self.name(request), Kept(request.body)
        with LOCK:
            kept = KEPT.setdefault(name, mine)
        if kept is mine:
            return self.work(request, kept)
        if not self.is_same(kept, request):
            return HttpResponse(status=422)
        return HttpResponse(status=409) if kept.response is None else self.replay(request, kept.response)

    def name(self, request: HttpRequest) -> str:
        return f"{request.user.pk} {request.headers['Idempotency-Key']}"

    def is_same(self, kept: Kept, request: HttpRequest) -> bool:
        return kept.body == request.body

    def work(self, request: HttpRequest, kept: Kept) -> HttpResponse:
        kept.response = charge(request, self.downstream(request))
        return kept.response

    def downstream(self, request: HttpRequest) -> str:
        return self.name(request)

    def replay(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return HttpResponse(response.content, status=response.status_code, headers=dict(response.items()))


class NoScope(Layer):
    def name(self, request: HttpRequest) -> str:
        return request.headers["Idempotency-Key"]


class NoFingerprint(Layer):
    def is_same(self, kept: Kept, request: HttpRequest) -> bool:
        return True


class ExecutesTwice(Layer):
    """It stores the response, and asks for it too late."""

    def replay(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return charge(request, uuid4().hex)


class ReplaysBeforeAuthentication(Layer):
    """As a middleware does that stands before the one for authentication."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        kept = KEPT.get(self.name(request))
        if kept is not None and kept.response is not None and self.is_same(kept, request):
            return self.replay(request, kept.response)
        return super().__call__(request)

    def name(self, request: HttpRequest) -> str:
        return f"{request.path} {request.headers['Idempotency-Key']}"


class LosesHeaders(Layer):
    def replay(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return HttpResponse(response.content, status=response.status_code)


class ServerErrorOnDuplicate(Layer):
    """A unique constraint, and nothing that catches its violation."""

    def replay(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        raise IntegrityError("UNIQUE constraint failed: keys.key")


class OtherResponse(Layer):
    """It tells a client that saw no response that it is too late."""

    def replay(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        return HttpResponse("duplicate", status=409)


class ReleasesAfterError(Layer):
    def work(self, request: HttpRequest, kept: Kept) -> HttpResponse:
        try:
            return super().work(request, kept)
        except ConnectionError:
            del KEPT[self.name(request)]
            raise


class NewDownstreamKeyPerAttempt(ReleasesAfterError):
    def downstream(self, request: HttpRequest) -> str:
        return uuid4().hex


class NoDownstreamKey(ReleasesAfterError):
    """What the provider is sent cannot be recognized by it."""

    def downstream(self, request: HttpRequest) -> Any:
        return None


class ChecksThenActs(Layer):
    """No defect that one request after another can show: two at once both find nothing."""

    meeting = Barrier(PARALLEL)

    def run(self, request: HttpRequest) -> HttpResponse:
        if self.name(request) in KEPT:
            return super().run(request)
        if current_thread() is not main_thread():
            self.meeting.wait(60)
        return self.work(request, KEPT.setdefault(self.name(request), Kept(request.body)))


RIGHT = Layer()
WRONG: dict[type[Layer], str] = {
    NoScope: "shared_between_users",
    NoFingerprint: "key_reused",
    ExecutesTwice: "executed_twice",
    ReplaysBeforeAuthentication: "replayed_unauthenticated",
    LosesHeaders: "lost_headers",
    ServerErrorOnDuplicate: "retry_failed",
    OtherResponse: "different_response",
    NewDownstreamKeyPerAttempt: "new_downstream_key",
    NoDownstreamKey: "retried_after_error",
}
