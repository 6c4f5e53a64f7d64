"""Operations have names of their own, and a reconciler."""

import re
from typing import Any

import pytest
from django.urls import resolve
from django.views.decorators.csrf import csrf_exempt
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import ViewSet

from django_idempotency.reconciliation import NotLanded, reconciler
from django_idempotency.rest_framework import IdempotentMixin
from tests.checks.messages import found, ids, said
from tests.checks.views import Exempt, OneAction, Readable, TwoActions, leased, named, routed


def test_e023_an_operation_is_named_once(settings: Any) -> None:
    messages = found(settings, named("pay"), named("pay"), named("refund"))
    assert ids(messages) == ["E023"]
    assert "'pay'" in messages[0].msg
    assert "/api/0/, /api/1/" in messages[0].msg
    once = named("pay")
    assert found(settings, once, csrf_exempt(once)) == []


def test_e023_counts_the_actions_of_a_view_set(settings: Any) -> None:
    (message,) = found(settings, routed(TwoActions))
    assert ids([message]) == ["E023"]
    assert "create" in message.msg
    assert "archive" in message.msg


@pytest.mark.usefixtures("registrations")
def test_w031_doubts_that_nobody_can_be_asked_about(settings: Any) -> None:
    reconciler("tests.told")(lambda record: NotLanded())
    declared = [leased(mode="atomic"), leased(on_lost_lease="restart"), leased(on_lost_lease="resume")]
    asked = leased(operation="tests.told")
    assert found(settings, *declared, asked, Readable.as_view(), Exempt.as_view(), silenced=True) == []

    unnamed = leased()
    messages = found(settings, unnamed, unnamed, routed(OneAction), silenced=True)
    names = [resolve("/api/0/").view_name, "things.archive", "things.create"]
    assert ids(messages) == ["W031"] * 3, "once for each operation"
    assert [re.findall(r"@reconciler\(.([^)]+).\)", str(each.hint)) for each in messages] == [[name] for name in names]
    assert "/api/0/" in messages[0].msg


def test_the_policy_of_a_route_is_checked_as_that_of_a_class(settings: Any) -> None:
    class Told(ViewSet):
        @action(detail=False, methods=["post"], idempotency={"operation": "once"})
        def one(self, request: Request) -> Response:
            return Response()

        @action(detail=False, methods=["post"], idempotency={"operation": "once"})
        def two(self, request: Request) -> Response:
            return Response()

    view_set = type("Told", (IdempotentMixin, Told), {"idempotency": None})
    assert ids(found(settings, routed(view_set))) == ["E023"]


def test_w031_fits_no_view_of_this_project_but_a_fixture(settings: Any) -> None:
    settings.ROOT_URLCONF = "testproject.urls"
    messages = said(silenced=True)
    assert messages
    assert all(message.msg.startswith("/conformance/") for message in messages)
