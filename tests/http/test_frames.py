"""How many modules of the package the usual flows visit, and how many frames are above a protected view."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import json_reply
from django_idempotency.flow.reconcile import reconcile_one
from django_idempotency.reconciliation import Landed, Outcome, reconciler
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person
from tests.kit.records import doubtful

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

PACKAGE = "django_idempotency"
MOST_FRAMES = 4
MOST_MODULES = 23
MOST_MODULES_OF_A_VERDICT = 14

WITH_A_SERVER = {  # a database that is a server needs these as well
    "django_idempotency.store.watchdog",
    "django_idempotency.store.connecting",
    "django_idempotency.store.continuity",
    "django_idempotency.fields",
}

above: list[list[str]] = []


def module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def our_frames(frame: FrameType | None) -> Iterator[str]:
    """The package's frames from this one upward, innermost first."""
    while frame is not None:
        if module_of(frame).startswith(PACKAGE):
            yield frame.f_code.co_qualname
        frame = frame.f_back


@contextmanager
def visited_modules() -> Iterator[set[str]]:
    """The modules of the package whose functions are called inside the block."""
    found: set[str] = set()

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and module_of(frame).startswith(PACKAGE):
            found.add(module_of(frame))

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield found
    finally:
        sys.setprofile(before)


class Deep(IdempotentMixin, APIView):
    permission_classes = ()
    idempotency = {"share_anonymous": True, "operation": "deep"}

    def post(self, request: Request) -> Response:
        above.append(list(our_frames(sys._getframe())))
        Group.objects.create(name=f"deep {len(above)}")
        return Response({}, 201)


urlpatterns = [path("deep", Deep.as_view())]


def test_a_new_request_stays_shallow() -> None:
    person = Person()
    assert person.post("/deep", key=str(uuid4())).status_code == 201
    with visited_modules() as modules:
        assert person.post("/deep", key=str(uuid4())).status_code == 201
    assert len(above[-1]) <= MOST_FRAMES, above[-1]
    assert len(modules - WITH_A_SERVER) <= MOST_MODULES, sorted(modules)


@pytest.mark.usefixtures("registrations")
def test_a_verdict_reads_its_record_once() -> None:
    attempt = doubtful()
    reconciler(attempt.call.operation)(lambda record: Landed(json_reply(200, {})))
    with visited_modules() as modules, CaptureQueriesContext(connection) as statements:
        assert reconcile_one(attempt.call.id, "default") is Outcome.LANDED
    reads = [each["sql"] for each in statements.captured_queries if each["sql"].startswith("SELECT")]
    assert len(reads) == 1
    assert len(modules - WITH_A_SERVER) <= MOST_MODULES_OF_A_VERDICT, sorted(modules)
