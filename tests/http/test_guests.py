"""A guest is one caller: through a rotated secret, on a first double click, and with a token in a cookie."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import Context, RequestContext, Template
from django.test import Client, RequestFactory
from django.urls import include, path

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from tests.kit.http import KEY, Person, Ran

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]
FORM = Template("{% load idempotency %}<form>{% idempotency_key %}</form>")


def counted(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again(), "derived": request.idempotency.derive("charge")}, status=201)  # type: ignore[attr-defined]


async def acounted(request: HttpRequest) -> HttpResponse:
    return counted(request)


@idempotent(scope="session", mode="atomic", operation="guests.form")
def order(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return JsonResponse({"run": Ran.again()}, status=201)
    return HttpResponse(FORM.render(RequestContext(request)))


urlpatterns = [
    path("session", idempotent(scope="session", operation="guests.session", receipts=True)(counted)),
    path("asession", idempotent(scope="session", operation="guests.asession")(acounted)),
    path("atomic", idempotent(scope="session", operation="guests.atomic", mode="atomic")(counted)),
    path("form", order),
    path("shared", idempotent(share_anonymous=True, operation="guests.shared")(counted)),
    path("i/", include("django_idempotency.urls")),
]


@pytest.mark.parametrize("where", ["/session", "/atomic", "/asession"])
def test_a_rotated_secret_forgets_no_key_of_a_guest(anonymous: Person, settings: Any, where: str) -> None:
    first = anonymous.post(where)
    oldest, settings.SECRET_KEY = settings.SECRET_KEY, "newer"
    for settings.SECRET_KEY_FALLBACKS in ([oldest], ["another", oldest]):
        again = anonymous.post(where)
        assert (again.status_code, again.json()) == (201, first.json())
    receipt = anonymous.client.get(f"/i/keys/?path={where}", headers={"Idempotency-Key": KEY})
    assert receipt.status_code == (200 if where == "/session" else 404)
    assert anonymous.post(where, key="another-key-of-the-guest-0001").json()["run"] == 2
    assert anonymous.post(where, key="another-key-of-the-guest-0001").json()["run"] == 2
    assert len({record.principal for record in IdempotencyKey.objects.all()}) == 2
    assert Person().post(where).json()["run"] == 3


def test_a_first_visitors_double_click_is_one_order() -> None:
    visitor = Client()
    page = visitor.get("/form").content.decode()
    (key,) = re.findall(r'value="([0-9a-f-]{36})"', page)
    cookies = visitor.cookies.copy()
    runs = []
    for _ in range(2):
        click = Client()  # both clicks are sent with the cookies of the page, before either is answered
        click.cookies.update(cookies)
        runs.append(click.post("/form", {"_idempotency_key": key}).json()["run"])
    assert (runs, Session.objects.count()) == ([1, 1], 1)


def test_a_cookie_of_a_session_that_ended_is_replaced_by_the_page() -> None:
    visitor = Client()
    visitor.cookies["sessionid"] = "of-a-session-that-ended-long-ago"
    visitor.get("/form")
    assert Session.objects.get().session_key == visitor.cookies["sessionid"].value


def test_a_page_of_another_project_makes_no_session(settings: Any) -> None:
    """No endpoint knows its callers by their session."""
    request = RequestFactory().get("/")
    request.session = SessionStore()
    settings.ROOT_URLCONF = "tests.http.test_unauthenticated_credentials"
    FORM.render(RequestContext(request))
    assert not request.session.modified
    assert "hidden" in FORM.render(Context())


JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI3In0.c2lnbmVk"


@pytest.mark.parametrize("cookie", [("jwt-auth", "x"), ("access_token", "x"), ("anything", JWT), ("__Host-auth", "x")])
def test_a_token_in_a_cookie_shares_no_scope(anonymous: Person, cookie: tuple[str, str]) -> None:
    name, value = cookie
    anonymous.client.cookies[name] = value
    refused = anonymous.post("/shared")
    assert (refused.status_code, refused.json()["code"], Ran.count) == (403, "idempotency_principal_missing", 0)


def test_other_cookies_may_be_sent(anonymous: Person) -> None:
    for name in ("csrftoken", "_ga", "author", "cookie_consent", "sessionid"):
        anonymous.client.cookies[name] = "GA1.1.1234"
    assert anonymous.post("/shared").status_code == 201
