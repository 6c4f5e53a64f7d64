"""How far a new request is from its view: the package's frames above the view, and the modules that it visits."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.urls import path
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

PACKAGE = "django_idempotency"
MOST_FRAMES = 4
MOST_MODULES = 26

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
    if connection.vendor == "sqlite":  # the watchdog of other databases is one more
        assert len(modules) <= MOST_MODULES, sorted(modules)
