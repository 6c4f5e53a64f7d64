"""The rules of docs/explanation/security.md: each one broken alone, on a retry and at both addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest
from django.urls import include, path
from rest_framework.authentication import SessionAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import KEY, Person

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "security.md"
SECRET = b"the stored response"


@dataclass(frozen=True)
class World:
    """What the endpoint's functions see: all is well."""

    member: bool = True
    calm: bool = True
    verified: bool = True
    authorized: bool = True
    account: str = "acme"
    tenant: str = "berlin"


NOW = [World()]


class IsMember(BasePermission):
    def has_permission(self, request: Any, view: Any) -> bool:
        return NOW[0].member


class Calm(BaseThrottle):
    def allow_request(self, request: Any, view: Any) -> bool:
        return NOW[0].calm


class Orders(IdempotentMixin, APIView):
    authentication_classes = (SessionAuthentication,)
    permission_classes = (IsMember,)
    throttle_classes = (Calm,)
    idempotency = {
        "operation": "orders",
        "mode": "atomic",
        "scope": lambda request: f"{NOW[0].account}:{request.user.pk}",
        "tenant": lambda request: NOW[0].tenant,
        "verify": lambda request: NOW[0].verified,
        "authorize": lambda request, record: NOW[0].authorized,
    }

    def post(self, request: HttpRequest, **where: str) -> Response:
        if IdempotencyKey.objects.exists():
            return Response({"a new order": True}, status=201)
        return Response({"secret": SECRET.decode()}, status=201)


class Refunds(Orders):
    idempotency = {**Orders.idempotency, "operation": "refunds"}


urlpatterns = [
    path("orders", Orders.as_view(), name="orders"),
    path("orders/<slug:number>", Orders.as_view(), name="order"),
    path("refunds", Refunds.as_view(), name="refunds"),
    path("idempotency/", include("django_idempotency.urls")),
]

# rule, what is broken, who asks, and what is asked for
BROKEN: list[tuple[int, dict[str, Any], dict[str, Any]]] = [
    (1, {"member": False}, {}),
    (1, {"calm": False}, {}),
    (1, {"verified": False}, {}),
    (2, {"account": "globex"}, {}),
    (2, {"tenant": "paris"}, {}),
    (2, {}, {"who": "bob"}),
    (2, {}, {"who": None}),
    (2, {}, {"where": "/refunds"}),
    (3, {}, {"key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}),
    (3, {}, {"where": "/orders/7"}),
    (3, {}, {"where": "/orders?page=2"}),
    (3, {}, {"body": {"amount": 2}}),
    (3, {}, {"method": "PATCH"}),
    (4, {"authorized": False}, {}),
]


@pytest.fixture(autouse=True)
def _all_is_well() -> Any:
    NOW[0] = World()
    yield
    NOW[0] = World()


def retry(
    who: str | None = "alice", where: str = "/orders", key: str = KEY, method: str = "POST", body: Any = None
) -> Any:
    return Person(who).post(where, {"amount": 1} if body is None else body, key=key, method=method)


def receipt(who: str | None = "alice", where: str = "/orders", key: str = KEY, method: str = "POST", **_: Any) -> Any:
    query = {"path": where, "method": method}
    return Person(who).client.get("/idempotency/keys/", query, headers={"Idempotency-Key": key})


def address(who: str | None = "alice", **_: Any) -> Any:
    first = IdempotencyKey.objects.earliest("created_at")
    return Person(who).client.get(f"/idempotency/operations/{first.id}/")


@pytest.mark.parametrize("way", [retry, receipt, address])
def test_who_keeps_every_rule_gets_the_stored_response(way: Any) -> None:
    retry()
    assert SECRET in way().content


@pytest.mark.parametrize(("rule", "world", "asked"), BROKEN)
def test_who_breaks_one_rule_gets_nothing_of_it(rule: int, world: dict[str, Any], asked: dict[str, Any]) -> None:
    retry()
    NOW[0] = replace(NOW[0], **world)
    ways: list[Any] = (
        [retry, address, receipt] if set(asked) <= {"who"} else [retry, receipt]
    )  # an id has no path and no key
    if asked.keys() & {"body"} or asked.get("where", "").count("?"):
        ways = [retry]  # a receipt has neither
    for way in ways:
        assert SECRET not in way(**asked).content, f"rule {rule}"


def test_each_rule_of_the_page_is_broken_here() -> None:
    text = PAGE.read_text().split("only if all of these are true:")[1].split("Any other request")[0]
    rules = re.findall(r"^(\d)\. ", text, re.MULTILINE)
    assert sorted({str(rule) for rule, _, _ in BROKEN}) == rules
