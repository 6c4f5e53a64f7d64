"""Guests: callers that are known by their session alone, and callers that nobody has to know."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import login, logout
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import Policy
from django_idempotency.conf import conf
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import NoPrincipal
from django_idempotency.http.requests import principal_of
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin, IdempotentRequest
from tests.kit.http import Person, Ran

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


def counted(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again(), "protected": bool(request.idempotency.active)}, status=201)  # type: ignore[attr-defined]


async def acounted(request: HttpRequest) -> HttpResponse:
    return counted(request)


def fail(request: HttpRequest) -> HttpResponse:
    Ran.again()
    raise LookupError


def enter(request: HttpRequest) -> HttpResponse:
    login(request, User.objects.get_or_create(username="guest who registers")[0])
    return HttpResponse()


def leave(request: HttpRequest) -> HttpResponse:
    logout(request)
    return HttpResponse()


class Rest(IdempotentMixin, APIView):
    authentication_classes = (SessionAuthentication,)
    permission_classes = ()
    idempotency: Any = {"scope": "session"}

    def post(self, request: IdempotentRequest) -> Response:
        return Response({"run": Ran.again(), "protected": request.idempotency.active}, 201)


session = idempotent(scope="session", operation="checkout")
kept = idempotent(scope="session-through-login", operation="kept")
free = idempotent(anonymous_unprotected=True)
urlpatterns = [
    path("session", session(counted)),
    path("rest", Rest.as_view()),
    path("kept", kept(counted)),
    path("fail", idempotent(scope="session-through-login", operation="failing")(fail)),
    path("free", free(counted)),
    path("afree", free(acounted)),
    path("freerest", Rest.as_view(idempotency={"anonymous_unprotected": True})),
    path("enter", enter),
    path("leave", leave),
]


@pytest.mark.parametrize("where", ["/session", "/rest", "/kept"])
def test_a_guest_is_known_by_the_session(anonymous: Person, where: str) -> None:
    first, second, other = anonymous.post(where), anonymous.post(where), Person().post(where)
    assert [each.json()["run"] for each in (first, second, other)] == [1, 1, 2]
    assert Session.objects.count() == 2, "one is created where there was none"


def test_the_session_is_never_stored_in_clear(anonymous: Person, settings: Any) -> None:
    anonymous.post("/session")
    record = IdempotencyKey.objects.get()
    number = anonymous.client.cookies["sessionid"].value
    assert record.principal.startswith("session:")
    assert number not in record.principal + record.scope
    settings.SECRET_KEY = "another one, so that the digest is another one too"
    anonymous.post("/session")
    assert IdempotencyKey.objects.count() == 2, "without the secret nobody can compute it"


def test_a_session_that_the_server_does_not_know_is_not_taken_over(anonymous: Person) -> None:
    anonymous.client.cookies["sessionid"] = "chosen-by-the-client-and-never-made-here"
    assert anonymous.post("/session").status_code == 201
    assert anonymous.client.cookies["sessionid"].value != "chosen-by-the-client-and-never-made-here"
    assert anonymous.post("/session").json()["run"] == 1


def test_a_login_begins_anew_unless_the_endpoint_says_otherwise(anonymous: Person) -> None:
    before = [anonymous.post(where).json()["run"] for where in ("/session", "/kept")]
    anonymous.client.post("/enter")
    after = [anonymous.post(where).json()["run"] for where in ("/session", "/kept")]
    assert (before, after) == ([1, 2], [3, 2])
    anonymous.client.post("/leave")
    assert anonymous.post("/kept").json()["run"] == 4, "a logout ends the session"


def test_a_guest_with_a_session_is_remembered_after_a_failure_and_a_login(anonymous: Person) -> None:
    """Django saves no session with a 500."""
    guest = anonymous
    guest.post("/session")
    assert guest.post("/fail").status_code == 500
    guest.client.post("/enter")
    assert guest.post("/fail").status_code == 409
    assert Ran.count == 2


def test_reading_creates_no_session(anonymous: Person) -> None:
    request: Any = RequestFactory().get("/operations/1")
    request.session = SessionStore()
    with pytest.raises(NoPrincipal):
        principal_of(request, Policy(scope="session"))
    assert Session.objects.count() == 0


def test_without_sessions_the_caller_is_refused(rf: RequestFactory) -> None:
    with pytest.raises(NoPrincipal, match="SessionMiddleware"):
        principal_of(rf.post("/"), Policy(scope="session"))


def test_signed_cookies_are_refused_because_they_change(anonymous: Person, settings: Any) -> None:
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    assert anonymous.post("/session").status_code == 403
    assert Ran.count == 0


def test_the_setting_takes_the_words_too(anonymous: Person, settings: Any) -> None:
    settings.IDEMPOTENCY = {"SCOPE": "session"}
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", idempotent(counted))]})
    assert conf.SCOPE == "session"
    assert [who.post("/it").json()["run"] for who in (anonymous, anonymous, Person())] == [1, 1, 2]


@pytest.mark.parametrize("where", ["/free", "/freerest", "/afree"])
@pytest.mark.parametrize("key", [None, "1", str(10**30)])
def test_anonymous_callers_may_be_left_unprotected(anonymous: Person, where: str, key: str | None) -> None:
    answers = [anonymous.post(where, key=key).json() for _ in range(2)]
    assert answers == [{"run": 1, "protected": False}, {"run": 2, "protected": False}]
    assert IdempotencyKey.objects.count() == 0


@pytest.mark.parametrize("where", ["/free", "/freerest", "/afree"])
def test_users_are_protected_there(alice: Person, where: str) -> None:
    answers = [alice.post(where).json() for _ in range(2)]
    assert answers == [{"run": 1, "protected": True}] * 2
    assert alice.post(where, key=None).status_code == 400


def test_an_unknown_credential_is_not_left_unprotected(anonymous: Person) -> None:
    assert anonymous.post("/free", headers={"Authorization": "Bearer ada"}).status_code == 403
    assert Ran.count == 0


def test_to_share_and_to_be_unprotected_are_two_things() -> None:
    with pytest.raises(ValueError, match=r"^anonymous_unprotected"):
        Policy(anonymous_unprotected=True, share_anonymous=True)


def test_a_scope_function_may_leave_guests_out(anonymous: Person, alice: Person, settings: Any) -> None:
    name: Callable[[HttpRequest], str] = lambda request: request.user.get_username()  # noqa: E731
    view = idempotent(scope=name, anonymous_unprotected=True)(counted)
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view)]})
    assert [each.post("/it").json()["run"] for each in (anonymous, anonymous, alice, alice)] == [1, 2, 3, 3]
