"""A page whose form carries its reader's CSRF token is given to nobody else, and never stored."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.middleware.csrf import get_token
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
    get_token(request)  # as login() does
    return JsonResponse({"said": "hello"})


@pytest.mark.parametrize(
    ("page", "stored"), [(rendered, False), (later, False), (streamed, False), (without, True), (told, True)]
)
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
    assert (second.get("Idempotency-Replay") == "omitted") is not stored
    assert Ran.count == 1
    assert b"csrf" not in bytes(IdempotencyKey.objects.get().response_body or b"")
