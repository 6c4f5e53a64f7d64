"""Whose key it is, where a principal is not a user of the project."""

import re
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import models
from django.http import HttpRequest
from django.test.utils import isolate_apps
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy
from django_idempotency.exceptions import NoPrincipal
from django_idempotency.http.requests import principal_of
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.http import Person, Ran

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


class Employee:
    """Of a directory elsewhere, with numbers of its own."""

    is_authenticated = True

    def __init__(self, pk: int) -> None:
        self.pk = pk


class ByHeader(BaseAuthentication):
    """Whoever the request says it is; a name alone is a user that exists in its token only."""

    def authenticate(self, request: Request) -> tuple[Any, Any]:
        kind, _, who = request.META["HTTP_X_WHO"].partition(":")
        somebody = {"user": User, "employee": Employee, "group": Group}
        if kind == "token":
            return User(username=who), None
        if kind == "secret":
            return None, who
        if kind == "group":
            return None, Group(pk=int(who))
        return somebody[kind](pk=int(who)), None


class Answer(IdempotentMixin, APIView):
    authentication_classes = [ByHeader]
    permission_classes = []
    idempotency = {"share_anonymous": True}

    def post(self, request: Request) -> Response:
        return Response({"run": Ran.again()}, 201)


urlpatterns = [path("it", Answer.as_view(), name="it")]


def test_the_same_primary_key_in_another_model_is_another_principal(anonymous: Person) -> None:
    answers = [anonymous.post("/it", headers={"X-Who": who}) for who in ("user:1", "employee:1", "group:1", "user:1")]
    assert [each.json()["run"] for each in answers] == [1, 2, 3, 1]
    assert set(IdempotencyKey.objects.values_list("principal", flat=True)) == {
        "user:1",
        "user:tests.http.test_principals.Employee:1",
        "auth:auth.group:1",
    }


def test_a_user_without_a_number_shares_nothing(anonymous: Person) -> None:
    answers = [anonymous.post("/it", headers={"X-Who": f"token:{name}"}) for name in ("ada", "bob")]
    assert [(each.status_code, each.json()["code"]) for each in answers] == [(403, "idempotency_principal_missing")] * 2
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


def test_an_opaque_credential_is_no_anonymous_caller(anonymous: Person) -> None:
    answers = [anonymous.post("/it", headers={"X-Who": f"secret:{name}"}) for name in ("ada", "bob")]
    assert [each.status_code for each in answers] == [403] * 2
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


def test_a_user_that_is_no_row_of_this_database_counts_by_its_class() -> None:
    """Other mappers keep something else in `_meta`."""
    elsewhere: Any = type("Elsewhere", (), {"_meta": {"collection": "users"}, "is_authenticated": True, "pk": 7})
    request: Any = HttpRequest()
    request.user = elsewhere()
    assert principal_of(request, Policy()) == f"user:{__name__}.Elsewhere:7"


def test_the_users_model_is_known_in_any_spelling(settings: Any) -> None:
    settings.AUTH_USER_MODEL = "Auth.USER"
    request: Any = HttpRequest()
    request.user = User(pk=7)
    assert principal_of(request, Policy()) == "user:7"


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_principal_that_no_database_can_store_is_refused(name: str) -> None:
    with pytest.raises(NoPrincipal, match="cannot be stored"):
        principal_of(HttpRequest(), Policy(scope=lambda request: name))


@isolate_apps("django.contrib.auth")
def test_what_extends_the_users_model_is_the_user() -> None:
    class Proxy(User):
        class Meta:
            proxy = True
            app_label = "auth"

    class Extended(User):
        class Meta:
            app_label = "auth"

    class Numbered(User):
        number = models.AutoField(primary_key=True)
        user = models.OneToOneField(User, models.CASCADE, parent_link=True)

        class Meta:
            app_label = "auth"

    request: Any = HttpRequest()
    request.user = Proxy(pk=7)
    assert principal_of(request, Policy()) == "user:7"
    request.user = Extended(id=7)
    assert principal_of(request, Policy()) == "user:7", "its row is the user's"
    request.user = Numbered(number=1, id=7)
    assert principal_of(request, Policy()) == "user:7", "1 is somebody else among the users"
    request.user = Proxy()
    with pytest.raises(NoPrincipal):
        principal_of(request, Policy())


class Numbered:
    """A user that is no row, with whatever its token has as a number."""

    is_authenticated = True

    def __init__(self, pk: object) -> None:
        self.pk = pk


def principal_with(pk: object) -> str | None:
    request: Any = HttpRequest()
    request.user = Numbered(pk)
    return principal_of(request, Policy())


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("user", [Numbered(""), Numbered(None), User(), User(pk="")])
def test_an_empty_primary_key_is_no_principal(user: Any, share: bool) -> None:
    request: Any = HttpRequest()
    request.user = user
    with pytest.raises(NoPrincipal):
        principal_of(request, Policy(share_anonymous=share))


ALIKE = [
    1,
    "1",
    "'1'",
    1.0,
    "1.0",
    True,
    "True",
    b"1",
    "bytes(1)",
    "bytes(b'1')",
    Decimal(1),
    "Decimal(1)",
    " 1",
    '"1"',
]


def test_primary_keys_of_different_types_are_different_principals() -> None:
    assert len({principal_with(pk) for pk in ALIKE}) == len(ALIKE)
    assert str(principal_with(1)).endswith("Numbered:1")
    assert str(principal_with("auth0|ada")).endswith("Numbered:auth0|ada")


def test_a_row_is_the_same_however_its_primary_key_was_written() -> None:
    def principal(**row: Any) -> str | None:
        request: Any = HttpRequest()
        for name, value in row.items():
            setattr(request, name, value)
        return principal_of(request, Policy())

    assert principal(user=User(pk="7")) == principal(user=User(pk=7)) == "user:7"
    assert principal(auth=Group(pk="7")) == principal(auth=Group(pk=7)) == "auth:auth.group:7"


@pytest.mark.parametrize("pk", ["a\0b", "a\ud800b"])
def test_a_primary_key_that_no_database_can_store_is_no_principal(pk: str) -> None:
    with pytest.raises(NoPrincipal):
        principal_with(pk)


@pytest.mark.parametrize("length", [256, 400])
def test_a_long_principal_is_digested_and_not_cut(length: int) -> None:
    long = "a" * length
    found = principal_of(HttpRequest(), Policy(scope=lambda request: long))
    assert found is not None
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", found)
    forged = principal_of(HttpRequest(), Policy(scope=lambda request: found))
    assert forged != found, "no name can be the digest of another one"
    assert principal_of(HttpRequest(), Policy(scope=lambda request: "a" * 255)) == "a" * 255


def test_the_word_for_anonymous_callers_is_taken(
    alice: Person, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.IDEMPOTENCY = {"SCOPE": lambda request: "anonymous"}
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Answer.as_view(), name="it")]})
    assert alice.post("/it", headers={"X-Who": "user:1"}).status_code == 403
    assert "IDEMPOTENCY['SCOPE']" in caplog.text
    assert "reserved" in caplog.text
