"""A person whose browser sends a form reads a page when the layer refuses it. Programs get JSON."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.template.exceptions import TemplateDoesNotExist
from django.urls import include, path
from django.utils.translation import override

from django_idempotency import STRIPE, Profile
from django_idempotency.decorators import exempt, idempotent
from django_idempotency.exceptions import NotExecuted
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin
from tests.http.rest_views import Authenticated
from tests.kit.http import MIDDLEWARE, Person, Ran

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

CHROMIUM = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
OWN = Profile(name="own", reshape=lambda problem: {"error": problem["code"]})


def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"{Ran.again()}", status=201)


def lose(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("The provider's answer was lost.")


def decline(request: HttpRequest) -> HttpResponse:
    raise NotExecuted


def post_again(request: Any) -> HttpResponse:
    """Answer with what a second click gets while this request runs."""
    person = Person()
    person.client.force_login(request.user)
    return HttpResponse(person.post("/slow", headers={"Accept": CHROMIUM}).content)


class Rest(IdempotentMixin, Authenticated):
    idempotency = {"mode": "atomic"}

    def post(self, request: HttpRequest) -> HttpResponse:
        return answer(request)


urlpatterns = [
    path("answer", idempotent(mode="leased", operation="answer")(answer)),
    path("lose", idempotent(mode="leased", operation="lose")(lose)),
    path("decline", idempotent(mode="leased", operation="decline")(decline)),
    path("slow", idempotent(mode="leased", operation="slow", transaction="late")(post_again)),
    path("own", idempotent(mode="leased", operation="own", profile=OWN)(answer)),
    path("stripe", idempotent(mode="leased", operation="stripe", profile=STRIPE)(answer)),
    path("unprotected", exempt(answer)),
    path("by-middleware", answer),
    path("rest", Rest.as_view()),
    path("rules/", include("django_idempotency.rules_urls")),
]


def refused(person: Person, where: str = "/answer", accept: str | None = CHROMIUM) -> Any:
    headers = {} if accept is None else {"Accept": accept}
    return person.post(where, key=None, headers=headers)


@pytest.mark.parametrize("where", ["/answer", "/own", "/stripe"])
def test_a_browser_gets_a_page_in_each_profile(alice: Person, where: str) -> None:
    told = refused(alice, where)
    assert (told.status_code, told["Content-Type"]) == (400, "text/html; charset=utf-8")
    assert "<h1>Idempotency key missing</h1>" in told.content.decode()
    assert "Accept" in told["Vary"]
    assert told["Cache-Control"] == "no-store"
    assert told["Link"].startswith("</rules/#idempotency_key_missing>")


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        (None, "application/problem+json"),
        ("*/*", "application/problem+json"),
        ("application/json", "application/problem+json"),
        ("application/json, text/plain, */*", "application/problem+json"),  # axios
        ("application/json;q=0.9, text/html;q=0.8", "application/problem+json"),
        ("application/*", "application/problem+json"),
        ("image/png", "application/problem+json"),
        ("", "application/problem+json"),
        ("text/html;q=oops;;, ;", "text/html; charset=utf-8"),
        ("text/html", "text/html; charset=utf-8"),
        ("text/plain", "text/plain; charset=utf-8"),
        ("text/plain;q=0.9, text/html;q=0.8", "text/plain; charset=utf-8"),
    ],
)
def test_the_client_says_what_it_prefers(alice: Person, accept: str | None, media_type: str) -> None:
    told = refused(alice, accept=accept)
    assert (told.status_code, told["Content-Type"]) == (400, media_type)
    assert "Accept" in told["Vary"]
    if "json" in media_type:
        assert told.json()["code"] == "idempotency_key_missing"


@pytest.mark.parametrize(("where", "media_type"), [("/own", "application/json"), ("/stripe", "application/json")])
def test_programs_get_the_shape_of_the_profile(alice: Person, where: str, media_type: str) -> None:
    told = refused(alice, where, "application/json")
    assert told["Content-Type"] == media_type
    assert "error" in told.json()


def test_a_second_click_is_told_to_wait_and_try_again(alice: Person) -> None:
    page = alice.post("/slow").content.decode()
    assert "<h1>Request still running</h1>" in page
    assert "<h2>Try again</h2>" in page
    assert "Wait 2 s before you try again." in page
    assert str(IdempotencyKey.objects.get().pk) in page


def test_an_unknown_outcome_may_be_asked_for_again(alice: Person) -> None:
    alice.post("/lose")
    told = alice.post("/lose", headers={"Accept": CHROMIUM})
    assert (told.status_code, "<h2>Try again</h2>" in told.content.decode()) == (409, True)


def test_what_cannot_be_sent_again_has_no_such_hint(alice: Person) -> None:
    alice.post("/answer")
    told = alice.post("/answer", {"other": True}, headers={"Accept": CHROMIUM})
    assert (told.status_code, "Try again" in told.content.decode()) == (422, False)


def test_text_says_the_same(alice: Person) -> None:
    told = alice.post("/decline", headers={"Accept": "text/plain"})
    assert (told.status_code, told["Retry-After"]) == (503, "2")
    assert told.content.decode() == (
        "Nothing was done\n\nThe operation was not executed and had no effect. Send the same request again, "
        "with the same key, after the seconds in Retry-After.\n\n"
        "Wait 2 s before you try again.\n"
    )


def test_text_has_the_reference(alice: Person) -> None:
    alice.post("/lose")
    told = alice.post("/lose", headers={"Accept": "text/plain"})
    assert told.content.decode().endswith(f"Reference: {IdempotencyKey.objects.get().pk}\n")


def test_views_behind_the_middleware_do_so_too(alice: Person, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    assert refused(alice, "/by-middleware")["Content-Type"] == "text/html; charset=utf-8"


def test_django_rest_framework_chooses_its_own_renderer(alice: Person) -> None:
    assert refused(alice, "/rest", "application/json")["Content-Type"] == "application/problem+json"


def test_a_first_response_and_a_replay_are_as_before(alice: Person) -> None:
    for _ in range(2):
        told = alice.post("/answer", headers={"Accept": CHROMIUM})
        assert (told.status_code, told.content) == (201, b"1")
        assert "Accept" not in told.get("Vary", "")


def test_what_was_sent_is_escaped(alice: Person) -> None:
    told = alice.post("/answer", key="<script>alert(1) </script>", headers={"Accept": CHROMIUM})
    assert told.status_code == 400
    assert b"<script" not in told.content


def test_the_page_has_the_language_of_the_reader(alice: Person) -> None:
    with override("de"):
        page = alice.post("/slow").content.decode()
    assert '<html lang="de">' in page
    for text in ("<h1>Anfrage läuft noch</h1>", "<h2>Erneut versuchen</h2>", "Warten Sie 2 s, bevor", "Referenz:"):
        assert text in page


def test_what_a_detail_adds_for_developers_stays_as_it_is(alice: Person) -> None:
    with override("de"):
        page = refused(alice).content.decode()
    assert "und mit jeder Wiederholung denselben. For example: `Idempotency-Key: " in page


@pytest.mark.parametrize("accept", ["text/plain", "application/json"])
def test_text_and_json_are_english_whatever_language_is_active(alice: Person, accept: str) -> None:
    with override("de"):
        told = refused(alice, accept=accept).content.decode()
    assert "This operation needs an idempotency key" in told


def test_the_page_reads_from_right_to_left(alice: Person) -> None:
    with override("ar"):
        assert '<html lang="ar" dir="rtl">' in refused(alice).content.decode()


def with_template(settings: Any, text: str) -> None:
    loaders = [("django.template.loaders.locmem.Loader", {"django_idempotency/refusal.html": text})]
    engine = {"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": {"loaders": loaders}}
    settings.TEMPLATES = [engine]


def test_a_project_can_have_a_page_of_its_own(alice: Person, settings: Any) -> None:
    with_template(settings, "{{ title }} at {{ request.path }}|{{ wait }}|{{ try_again }}|{{ reference }}")
    settings.TEMPLATES[0]["OPTIONS"]["context_processors"] = ["django.template.context_processors.request"]
    assert refused(alice).content.decode() == "Idempotency key missing at /answer||False|"


@pytest.mark.parametrize("template", ["{% load nothing_of_this_name %}", None])
def test_a_template_that_fails_makes_it_json(
    alice: Person, settings: Any, caplog: pytest.LogCaptureFixture, template: str | None
) -> None:
    if template is None:
        settings.TEMPLATES = []
    else:
        with_template(settings, template)
    told = refused(alice)
    assert (told.status_code, told["Content-Type"]) == (400, "application/problem+json")
    assert "The template refusal.html failed." in caplog.text
    failure = caplog.records[-1].exc_info
    assert failure is not None
    assert template is not None or isinstance(failure[1], TemplateDoesNotExist)
