"""A page that is rendered after its view returned."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.template.response import TemplateResponse
from django.urls import path

from django_idempotency.decorators import idempotent
from tests.kit.http import Person, Ran, same_answer

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("how", ["leased", "atomic", "finish"])
def test_what_rendering_puts_in_a_pages_place_is_the_answer(alice: Person, settings: Any, how: str) -> None:
    """Django sends what a callback after rendering returns, and so does a replay."""

    def page(request: HttpRequest) -> TemplateResponse:
        made = TemplateResponse(request, engines["django"].from_string("run {{ run }}"), {"run": Ran.again()})
        made.add_post_render_callback(lambda rendered: HttpResponse(b"in place of " + rendered.content, status=202))
        return made

    def view(request: HttpRequest) -> HttpResponse:
        if how == "finish":
            return request.idempotency.finish(lambda: page(request))  # type: ignore[attr-defined,no-any-return]
        return page(request)

    policy: dict[str, Any] = {"transaction": "late"} if how == "finish" else {"mode": how}
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", idempotent(view, **policy), name="it")]})
    first = alice.post("/it")
    assert (first.status_code, first.content) == (202, b"in place of run 1")
    assert same_answer(first, alice.post("/it"))
