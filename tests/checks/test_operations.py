"""Operations have names of their own, and a reconciler."""

from typing import Any

import pytest
from django.core.checks import CheckMessage
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
from tests.kit.http import MIDDLEWARE


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
def test_w031_is_not_about_views_that_chose_a_mode_or_have_a_reconciler(settings: Any) -> None:
    reconciler("tests.told")(lambda record: NotLanded())
    chosen = [leased(mode="atomic"), leased(mode="leased")]
    declared = [leased(on_lost_lease="restart"), leased(on_lost_lease="resume")]
    asked = leased(operation="tests.told")
    assert undecided(settings, *chosen, *declared, asked, Readable.as_view(), Exempt.as_view()) == []


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_w031_is_answered_by_the_setting(mode: str, settings: Any) -> None:
    settings.IDEMPOTENCY = {"MODE": mode}
    assert undecided(settings, leased()) == []


def test_w031_is_one_message_that_lists_the_endpoints(settings: Any) -> None:
    unnamed = leased()
    (message,) = undecided(settings, unnamed, unnamed, routed(OneAction))
    assert ids([message]) == ["W031"]
    name = resolve("/api/0/").view_name
    listed = f"(3): /api/0/ ({name}), /api/2/^things/$ (things.archive), /api/2/^things/$ (things.create)."
    assert listed in message.msg, "once for each operation"
    for part in ("anything outside this database?", "No: mode='atomic'", "Yes: mode='leased'", "@reconciler", "MODE"):
        assert part in str(message.hint)


def test_w031_lists_twenty_endpoints_and_counts_the_others(settings: Any) -> None:
    names = [f"tests.view-{number}" for number in range(22)]
    (message,) = undecided(settings, *(leased(operation=name) for name in names))
    assert "(22): " in message.msg
    assert "(tests.view-19) and 2 more." in message.msg
    assert "tests.view-20" not in message.msg
    (message,) = undecided(settings, *(leased(operation=name) for name in names[:20]))
    assert "(tests.view-19)." in message.msg


def test_w031_counts_what_the_middleware_protects_as_one(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    (message,) = undecided(settings, leased(mode="leased"))
    assert "(1): every view that only IdempotencyMiddleware protects." in message.msg
    (message,) = undecided(settings, *(leased(operation=f"tests.view-{number}") for number in range(20)))
    assert "(21): every view" in message.msg, "a long list does not cut it off"
    settings.IDEMPOTENCY = {"MODE": "leased"}
    assert undecided(settings, leased()) == []


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


def test_every_view_of_this_project_chose_its_mode(settings: Any) -> None:
    settings.ROOT_URLCONF = "testproject.urls"
    assert settings.SILENCED_SYSTEM_CHECKS == []
    assert said() == []


def undecided(settings: Any, *views: Any) -> list[CheckMessage]:
    """What W031 says of these views, which `found` leaves out."""
    return [message for message in found(settings, *views, silenced=True) if message.id == "django_idempotency.W031"]
