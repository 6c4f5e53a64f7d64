"""The rules page says what clients meet, and each error response leads to its section."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.test.utils import override_script_prefix
from django.urls import include, path
from django.utils.translation import get_language, override
from django.views.decorators.csrf import csrf_exempt
from pytest_django import DjangoAssertNumQueries
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import STRIPE, FingerprintRule, KeyRule, Profile, ReplyRule, entropy
from django_idempotency.core.links import docs_url
from django_idempotency.core.problems import PROBLEMS
from django_idempotency.decorators import exempt, idempotent
from django_idempotency.key_sources import json_field
from django_idempotency.rest_framework import IdempotentMixin
from django_idempotency.tenants import host_tenant
from tests.kit.http import KEY, MIDDLEWARE, Person, atomic_requests

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]

PAGE = "/about/keys/"
RULES = path("about/keys/", include("django_idempotency.rules_urls"))
OWN = Profile(
    name="own", header="X-Key", missing=428, mismatch=409, in_flight=425, unknown=500, replayed_header="X-Old"
)


def answer(request: HttpRequest, **arguments: Any) -> HttpResponse:
    return JsonResponse({}, status=201)


@exempt
def left_alone(request: HttpRequest) -> HttpResponse:
    return answer(request)


class Rest(IdempotentMixin, APIView):
    idempotency = {"mode": "atomic", "share_anonymous": True}
    permission_classes = ()

    def post(self, request: Request) -> Response:
        return Response({}, 201)


def protected(**policy: Any) -> Any:
    return csrf_exempt(idempotent(**{"mode": "atomic", **policy})(answer))


urlpatterns = [
    RULES,
    path("admin/", admin.site.urls),
    path("orders/", protected(), name="orders"),
    path("orders/<uuid:pk>/pay/", protected(), name="pay"),
    path("own/", protected(profile=OWN), name="own"),
    path("stripe/", protected(profile=STRIPE), name="stripe"),
    path(
        "elsewhere/", protected(profile=Profile(name="e", documentation="https://api.example/keys")), name="elsewhere"
    ),
    path("rest/", Rest.as_view(), name="rest"),
    path("internal/", protected(published=False), name="internal"),
    path("exempt/", left_alone, name="exempt"),
    path("unprotected/", answer, name="unprotected"),
]


class OtherUrls:
    """As a project does that serves several hosts."""

    urlpatterns = [path("orders/", protected(), name="orders")]


@csrf_exempt
@idempotent(mode="leased")
async def answer_async(request: HttpRequest) -> HttpResponse:
    return answer(request)


class OtherUrlsWithRules:
    urlpatterns = [
        *OtherUrls.urlpatterns,
        path("async/", answer_async, name="async"),
        path("rules/", include("django_idempotency.rules_urls")),
    ]


def choosing_urls(get_response: Any) -> Any:
    def middleware(request: HttpRequest) -> Any:
        by_host: Any = {"plain.example": OtherUrls, "ruled.example": OtherUrlsWithRules}
        request.urlconf = by_host[request.get_host()]
        return get_response(request)

    return middleware


def rules() -> dict[str, Any]:
    published: dict[str, Any] = Client().get(PAGE, headers={"Accept": "application/json"}).json()
    return published


def use_urls(settings: Any, *patterns: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": patterns})


def rules_of(settings: Any, view: Any) -> dict[str, Any]:
    use_urls(settings, RULES, path("it/", view))
    (only,) = rules()["rules"]
    return dict(only)


def sentences(settings: Any, **policy: Any) -> dict[str, str]:
    return {each["about"]: each["text"] for each in rules_of(settings, protected(**policy))["sentences"]}


def page() -> str:
    return Client().get(PAGE, headers={"Accept": "text/html"}).content.decode()


# What is published


def test_machines_read_the_rules_as_json(settings: Any) -> None:
    found = rules_of(settings, protected(retention=timedelta(days=7)))
    del found["sentences"]
    assert found == {
        "endpoints": [{"methods": ["PATCH", "POST"], "path": "/it/"}],
        "header": "Idempotency-Key",
        "required": True,
        "mode": "atomic",
        "min_length": 1,
        "max_length": 255,
        "quotes_required": False,
        "lifetime": 604800.0,
        "after_lifetime": "run",
        "replayed_header": "Idempotency-Replayed",
        "statuses": {
            "idempotency_key_invalid": 400,
            "idempotency_key_reused_with_different_payload": 422,
            "idempotency_key_in_progress": 409,
            "idempotency_outcome_unknown": 409,
            "idempotency_not_executed": 503,
            "idempotency_store_unavailable": 503,
            "idempotency_key_missing": 400,
        },
        "codes": {},
    }


def test_people_read_them_as_a_page() -> None:
    shown = page()
    for text in ("PATCH, POST /orders/", "/orders/{pk}/pay/", "It has 1 to 255 visible ASCII characters."):
        assert text in shown
    assert re.findall(r'<section id="(\w+)"', shown) == [problem.code for problem in PROBLEMS]
    assert all(problem.title in shown and problem.detail in shown for problem in PROBLEMS)
    assert set(re.findall(r'href="#(\w+)"', shown)) <= {problem.code for problem in PROBLEMS}


def test_only_protected_endpoints_of_the_project_are_listed(settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    listed = {endpoint["path"] for each in rules()["rules"] for endpoint in each["endpoints"]}
    own = {"/orders/", "/orders/{pk}/pay/", "/own/", "/stripe/", "/elsewhere/", "/rest/"}
    assert listed == own | {"/unprotected/"}  # which the middleware protects
    assert __name__ not in page()


def test_endpoints_with_the_same_rules_share_an_entry() -> None:
    shared = [[endpoint["path"] for endpoint in each["endpoints"]] for each in rules()["rules"]]
    assert ["/orders/", "/orders/{pk}/pay/", "/elsewhere/"] in shared
    assert ["/rest/"] in shared


def test_a_project_without_protected_endpoints_says_so(settings: Any) -> None:
    use_urls(settings, RULES)
    assert rules()["rules"] == []
    assert "No endpoint is listed here." in page()


@pytest.mark.parametrize(
    ("policy", "about", "text"),
    [
        ({}, "The key", "must be in double quotes."),
        ({"key": KeyRule(strict=True)}, "The key", 'It must be in double quotes: "'),
        ({"key": KeyRule(min_length=20, max_length=36)}, "The key", "It has 20 to 36 visible ASCII characters."),
        ({"key": KeyRule(validator=entropy())}, "The key", "It is checked further"),
        ({"profile": OWN}, "The key", "Send it in the header X-Key."),
        ({"required": False}, "Without a key", "The request runs, and a retry runs it again."),
        ({"profile": OWN}, "Without a key", "rejected with 428"),
        ({}, "Whose key it is", "belongs to the authenticated caller"),
        ({}, "Whose key it is", "Without credentials the request is rejected."),
        ({"scope": "session"}, "Whose key it is", "belongs to the session"),
        ({"scope": lambda request: "everybody"}, "Whose key it is", "The server decides from the request"),
        ({"share_anonymous": True}, "Whose key it is", "Their keys must be random."),
        (
            {"share_anonymous": True, "guessable_anonymous": True},
            "Whose key it is",
            "without credentials share theirs.",
        ),
        ({"tenant": host_tenant}, "Whose key it is", "The keys of each tenant are separate. Without credentials"),
        ({"anonymous_unprotected": True}, "Whose key it is", "Without credentials the request runs"),
        ({"profile": OWN}, "A retry", "with the header X-Old: true"),
        ({}, "While the first request is running", "A retry gets 409. Send it again"),
        ({"wait": timedelta(seconds=3)}, "While the first request is running", "409 after up to 3 s."),
        ({}, "The same key with another request", "the query string, the body and its content type."),
        ({"profile": OWN}, "The same key with another request", "It gets 409, and nothing is executed."),
        (
            {"fingerprint": FingerprintRule(ignored=("sent_at", "signature"))},
            "The same key with another request",
            "the body, except for sent_at, signature and its content type",
        ),
        (
            {"key_source": json_field("key")},
            "The key",
            "The documentation of the operation says where to send it. It has 1 to 255",
        ),
        ({"skip": callable}, "Requests that need no key", "Some requests run without protection"),
        ({"is_error": callable}, "What is stored", "Of the error responses, some are not stored"),
        (
            {"fingerprint": FingerprintRule(headers=("Accept-Language",), fields=("amount", "to.iban"))},
            "The same key with another request",
            "the query string, the header accept-language, of the body amount, to.iban.",
        ),
        (
            {"fingerprint": FingerprintRule(body=False)},
            "The same key with another request",
            "Compared are: the method, the path, the query string.",
        ),
        (
            {"fingerprint": FingerprintRule(custom=lambda parts: b"")},
            "The same key with another request",
            "what the server considers relevant",
        ),
        ({"mode": "atomic"}, "After an unexpected error", "All changes of the request are undone"),
        ({"mode": "leased"}, "After an unexpected error", "The outcome is unknown."),
        ({"mode": "leased", "on_error": "store"}, "After an unexpected error", "a retry gets it."),
        ({"mode": "leased", "on_error": "release"}, "After an unexpected error", "A retry runs the request again."),
        ({"profile": OWN}, "An unknown outcome", "A retry gets 500 until"),
        ({}, "What is stored", "no more than 1.0\xa0MB"),
        ({}, "What is stored", "Error responses are stored too."),
        ({"reply": ReplyRule(body=False)}, "What is stored", "The status and the headers. Error responses"),
        ({"store": [404]}, "What is stored", "some are not stored; then the same key may be used again."),
        ({"profile": STRIPE}, "What is stored", "some are not stored; then the same key may be used again."),
        ({}, "For how long", "Responses are kept for 1 d. After that, the same key runs as a new request."),
        ({"retention": None}, "For how long", "Responses are kept for ever."),
        ({"expiry": "soft", "after_expiry": "gone"}, "For how long", "After that, a retry is rejected with 410."),
    ],
)
def test_each_policy_is_described(settings: Any, policy: dict[str, Any], about: str, text: str) -> None:
    assert text in sentences(settings, **policy)[about]


def test_the_published_statuses_are_those_that_clients_get(alice: Person) -> None:
    checked = 0
    for each in rules()["rules"]:
        for endpoint in each["endpoints"]:
            url = endpoint["path"].replace("{pk}", "0f0e8ddc-6c3f-4bd2-9a53-6f3e3a1c8f6e")
            missing, invalid = alice.post(url, key=None), alice.post(url, headers={each["header"]: ""}, key=None)
            alice.post(url, headers={each["header"]: KEY}, key=None)
            reused = alice.post(url, {"other": 1}, headers={each["header"]: KEY}, key=None)
            assert {
                "idempotency_key_missing": missing.status_code,
                "idempotency_key_invalid": invalid.status_code,
                "idempotency_key_reused_with_different_payload": reused.status_code,
            }.items() <= each["statuses"].items()
            checked += 1
    assert checked == 6


# How it is served


def test_json_comes_to_those_who_ask_for_it() -> None:
    asked = {"*/*": "text/html", "application/json": "application/json", "application/xml": "text/html"}
    for accepted, given in asked.items():
        response = Client().get(PAGE, headers={"Accept": accepted})
        assert response.headers["Content-Type"].split(";")[0] == given
        assert (response.headers["Vary"], response.headers["Cache-Control"]) == ("Accept", "max-age=300")


def test_the_page_says_which_codes_have_names_of_their_own(settings: Any) -> None:
    assert "Error codes" not in sentences(settings)
    codes = {"idempotency_key_in_progress": "E409-17", "idempotency_outcome_unknown": "E409-18"}
    own = Profile(name="own", codes=codes)
    found = rules_of(settings, protected(profile=own))
    assert found["codes"] == codes
    assert {
        "about": "Error codes",
        "text": "Some have names of their own here: idempotency_key_in_progress is sent as E409-17; "
        "idempotency_outcome_unknown is sent as E409-18.",
        "code": None,
    } in found["sentences"]
    assert found["statuses"]["idempotency_key_in_progress"] == 409


def test_the_page_says_whether_first_responses_are_marked(settings: Any) -> None:
    assert "false" not in sentences(settings)["A retry"]
    marking = sentences(settings, profile=Profile(name="marking", mark_first=True))
    assert "The first response has Idempotency-Replayed: false." in marking["A retry"]


def test_the_page_follows_the_settings(settings: Any) -> None:
    assert rules()["rules"][0]["lifetime"] == 86400
    settings.IDEMPOTENCY = {"RETENTION": timedelta(days=2)}
    assert rules()["rules"][0]["lifetime"] == 172800


def test_the_page_is_only_read() -> None:
    assert Client().head(PAGE).status_code == 200
    assert Client().post(PAGE).status_code == 405


@pytest.mark.parametrize("around", [False, True], ids=["plain", "atomic requests"])
def test_the_page_asks_no_database(django_assert_num_queries: DjangoAssertNumQueries, around: bool) -> None:
    with atomic_requests(around), django_assert_num_queries(0):
        assert page()
        assert rules()


def test_the_page_has_the_language_of_the_reader() -> None:
    with override("de"):
        shown = page()
    assert '<html lang="de">' in shown
    assert "wenn er nicht größer als 1,0\xa0MB ist" in shown
    assert "Send it" not in shown


def test_the_rules_for_machines_are_english_in_every_language() -> None:
    with override("de"):
        told = Client().get(PAGE, headers={"Accept": "application/json"}).content.decode()
        assert ("no more than 1.0" in told, get_language()) == (True, "de")


# How error responses lead to it


def refusals(person: Person, url: str, **more: Any) -> list[Any]:
    person.post(url, **more)
    return [
        person.post(url, key=None, **more),
        person.post(url, key="", **more),
        person.post(url, {"other": 1}, **more),
    ]


@pytest.mark.parametrize("url", ["/orders/", "/rest/"])
def test_an_error_response_leads_to_its_section(alice: Person, url: str) -> None:
    shown = page()
    for response in refusals(alice, url):
        problem = response.json()
        target = f"{PAGE}#{problem['code']}"
        assert problem["type"] == target
        assert response.headers["Link"] == f'<{target}>; rel="describedby"; type="text/html"'
        assert f'id="{problem["code"]}"' in shown
        assert target in [each["type"] for each in rules()["problems"]]


def test_another_shape_has_the_link_alone(alice: Person) -> None:
    response = alice.post("/stripe/", key=None)
    assert response.headers["Link"] == f'<{PAGE}#idempotency_key_missing>; rel="describedby"; type="text/html"'
    assert list(response.json()["error"]) == ["type", "code", "message"]


def test_documentation_of_the_profile_comes_first(alice: Person) -> None:
    response = alice.post("/elsewhere/", key=None)
    section = "https://api.example/keys#idempotency_key_missing"
    assert response.json()["type"] == section
    assert response.headers["Link"] == f'<{section}>; rel="describedby"; type="text/html"'


def test_a_first_response_and_a_replay_have_no_link(alice: Person) -> None:
    responses = [alice.post("/orders/"), alice.post("/orders/")]
    assert [response.status_code for response in responses] == [201, 201]
    assert not any("Link" in response for response in responses)


def test_the_address_is_that_of_the_request_s_own_urls(alice: Person, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.choosing_urls"]
    plain = alice.post("/orders/", key=None, headers={"Host": "plain.example"})
    ruled = alice.post("/orders/", key=None, headers={"Host": "ruled.example"})
    assert (plain.json()["type"], "Link" in plain) == (docs_url("reference/errors", "idempotency_key_missing"), False)
    assert ruled.json()["type"] == "/rules/#idempotency_key_missing"
    for response in refusals(alice, "/async/", headers={"Host": "ruled.example"}):
        assert response.json()["type"] == f"/rules/#{response.json()['code']}"
    listed = Client().get("/rules/", headers={"Host": "ruled.example", "Accept": "application/json"}).json()["rules"]
    assert [endpoint["path"] for each in listed for endpoint in each["endpoints"]] == ["/orders/", "/async/"]


def test_the_address_has_the_prefix_that_the_server_puts_before_the_project(alice: Person) -> None:
    with override_script_prefix("/shop/"):
        response = alice.post("/orders/", key=None)
        assert "/shop/orders/" in page()
    assert response.json()["type"] == f"/shop{PAGE}#idempotency_key_missing"


def test_without_the_page_a_problem_leads_to_this_project_s_docs(alice: Person, settings: Any) -> None:
    use_urls(settings, *OtherUrls.urlpatterns)
    response = alice.post("/orders/", key=None)
    ours = docs_url("reference/errors", "idempotency_key_missing")
    assert (response.json()["type"], "Link" in response) == (ours, False)
