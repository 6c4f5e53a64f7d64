"""A page whose form carries its reader's CSRF token is given to nobody else, and never stored."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.middleware.csrf import get_token, rotate_token
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from tests.kit.http import Person, Ran

pytestmark = pytest.mark.django_db
FORM = "<form>{% csrf_token %}</form>"


def rendered(request: HttpRequest) -> HttpResponse:
    return HttpResponse(engines["django"].from_string(FORM).render({}, request))


def later(request: HttpRequest) -> HttpResponse:
    return TemplateResponse(request, engines["django"].from_string(FORM))


def streamed(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(part(request).content for part in [rendered])  # asks for the token while it is read


def without(request: HttpRequest) -> HttpResponse:
    return HttpResponse("<p>no form</p>")


def told(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"csrf": get_token(request)})


def capitals(request: HttpRequest) -> HttpResponse:
    return HttpResponse(rendered(request).content, content_type="Text/HTML")


def xhtml(request: HttpRequest) -> HttpResponse:
    return HttpResponse(rendered(request).content, content_type="application/xhtml+xml")


def rotated(request: HttpRequest) -> HttpResponse:
    rotate_token(request)  # as login() does: Django notes both alike
    return JsonResponse({"csrf": request.META["CSRF_COOKIE"]})


def untouched(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"said": "hello"})


PAGES = {rendered: False, later: False, streamed: False, told: False, capitals: False, xhtml: False, rotated: False}
PAGES |= {without: True, untouched: True}


@pytest.mark.parametrize(("page", "stored"), list(PAGES.items()))
@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_page_with_a_token_is_withheld(alice: Person, settings: Any, page: Any, stored: bool, mode: str) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        Ran.again()
        answer: HttpResponse = page(request)
        return answer

    tenant = idempotent(mode=mode, streaming="buffer", scope=lambda request: "tenant")
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", tenant(view), name="it")]})
    first, second = alice.post("/it"), alice.post("/it")
    content = first.getvalue()
    assert content
    assert (second.content == content) is stored
    assert (second.status_code == 409) is not stored
    assert Ran.count == 1
    assert b"csrf" not in bytes(IdempotencyKey.objects.get().response_body or b"")


def serve(settings: Any, view: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_no_cache_keeps_a_replay(alice: Person, settings: Any, mode: str) -> None:
    serve(settings, idempotent(mode=mode)(untouched))
    first, second = alice.post("/it"), alice.post("/it")
    assert (first.get("Cache-Control"), second["Cache-Control"]) == (None, "no-store")
    assert second.content == first.content


def test_a_view_may_say_that_its_answer_is_kept(alice: Person, settings: Any) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("hello", headers={"Cache-Control": "private, max-age=60"})

    serve(settings, idempotent(view))
    first, second = alice.post("/it"), alice.post("/it")
    assert first["Cache-Control"] == second["Cache-Control"] == "private, max-age=60"


@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_a_replay_varies_by_credentials_under_a_scope_function(alice: Person, settings: Any, mode: str) -> None:
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse("hello", headers={"Vary": "Accept-Language"})

    serve(settings, idempotent(mode=mode, scope=lambda request: request.headers["X-Tenant"])(view))
    _, second = (alice.post("/it", headers={"X-Tenant": "acme"}) for _ in range(2))
    assert {each.strip() for each in second["Vary"].split(",")} >= {"Accept-Language", "Authorization", "Cookie"}
