"""A client may ask for the outcome of its key without sending the request again. Nobody else learns anything."""

import re
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import RequestFactory
from django.urls import include, path
from django.utils.encoding import iri_to_uri
from rest_framework.authentication import TokenAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency import IETF, json_reply
from django_idempotency.core.decisions import InFlight
from django_idempotency.decorators import idempotent
from django_idempotency.http.responses import problem_for
from django_idempotency.http.views import KeyView
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Landed, resolve
from django_idempotency.rest_framework import IdempotentMixin
from django_idempotency.store.records import find
from django_idempotency.testing import lease_over, retention_over
from tests.kit.calls import a_call
from tests.kit.databases import nobody_answers
from tests.kit.http import KEY, Person, Ran, stored

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]


def pay(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"ran": Ran.again()}, status=201, headers={"X-Order": "7"})


def lose(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("The provider's answer was lost.")


def ask_inside(request: HttpRequest) -> HttpResponse:
    """Answer with what a client is told while this request runs."""
    asking = RequestFactory().get("/", {"path": "/inside"}, headers={"Idempotency-Key": KEY})
    asking.user = request.user
    told = KeyView.as_view()(asking)
    return JsonResponse({"told": told.status_code, "retry_after": told["Retry-After"]})


def by_customer(request: HttpRequest) -> str:
    return request.headers.get("X-Customer", "")


class Rest(IdempotentMixin, APIView):
    authentication_classes = (TokenAuthentication,)
    permission_classes = ()
    idempotency = {"mode": "atomic", "operation": "rest"}

    def post(self, request: Any) -> Response:
        return Response({"ran": Ran.again()}, status=201)


class RestLosing(Rest):
    idempotency = {"mode": "leased", "operation": "rest-losing"}

    def post(self, request: Any) -> Response:
        raise RuntimeError("The provider's answer was lost.")


def post_inside(request: Any) -> HttpResponse:
    """Answer with the link that a second request gets while this one runs, and with what it leads to."""
    person = Person()
    person.client.force_login(request.user)
    link = person.post("/posted-inside")["Link"]
    return JsonResponse({"link": link, "there": person.client.get(target_of(link)).status_code})


def target_of(link: str) -> str:
    found = re.fullmatch(r'<([^>]+)>; rel="status"', link)
    assert found is not None, link
    return found[1]


ALLOWED: list[bool] = []
PAGE: list[HttpResponse] = []
VARY = "Authorization, Cookie, Accept"


def show_page(request: HttpRequest) -> HttpResponse:
    return PAGE[0]


opened = partial(idempotent, receipts=True)

urlpatterns = [
    path("pay", opened(mode="leased", operation="pay")(pay)),
    path("named", opened(mode="leased")(pay), name="by-its-route"),
    path("lose", opened(mode="leased", operation="lose")(lose)),
    path("inside", opened(mode="leased", operation="inside", transaction="late")(ask_inside)),
    path("customers", opened(mode="leased", operation="customers", scope=by_customer)(pay)),
    path("guests", opened(mode="leased", operation="guests", share_anonymous=True)(pay)),
    path(
        "asked",
        opened(mode="leased", operation="asked", authorize=lambda request, record: bool(ALLOWED))(pay),
    ),
    path("rest", Rest.as_view()),
    path("rest-losing", RestLosing.as_view()),
    path(
        "posted-inside",
        opened(mode="leased", operation="posted-inside", transaction="late")(post_inside),
    ),
    path(
        "lost-by-customers",
        opened(mode="leased", operation="lost-customers", scope=by_customer)(lose),
    ),
    path("by-settings", opened(operation="by-settings")(lose)),
    path("closed", idempotent(mode="leased")(lose)),
    path("page", opened(mode="leased", share_anonymous=True)(show_page)),
    path("café", opened(mode="leased")(pay)),
    path("idempotency/", include("django_idempotency.urls")),
]


def ask(person: Person, where: str, key: str = KEY, **headers: str) -> Any:
    return person.client.get("/idempotency/keys/", {"path": where}, headers={"Idempotency-Key": key, **headers})


@pytest.mark.parametrize("where", ["/pay", "/named", "/café"])
@pytest.mark.parametrize("written", [str, iri_to_uri, "{}?query".format])
def test_the_owner_gets_the_stored_response(alice: Person, where: str, written: Any) -> None:
    """A client knows the address to which it sent its request, and need not know its name."""
    first, told = alice.post(where), ask(alice, written(where))
    shown = stored(told)
    assert (shown.status_code, shown.content, shown["X-Order"]) == (201, first.content, "7")
    assert (told.json()["status"], told["Cache-Control"], told["Vary"]) == ("completed", "no-store", VARY)
    assert Ran.count == 1


def test_a_key_is_asked_for_in_a_header_because_servers_log_addresses(alice: Person) -> None:
    alice.post("/pay")
    told = [
        alice.client.get("/idempotency/keys/", {"path": "/pay"}),
        alice.client.get("/idempotency/keys/", {"path": "/pay", "key": KEY}),
        alice.client.get(f"/idempotency/keys/{KEY}/", {"path": "/pay"}),
    ]
    assert [each.status_code for each in told] == [404, 404, 404]


@pytest.mark.parametrize(
    "response",
    [
        HttpResponse("<script>alert(1)</script>", headers={"Refresh": "0; url=//evil.example"}),
        HttpResponse(b"\xff\x00", content_type="image/svg+xml"),
        HttpResponse(status=302, headers={"Location": "https://evil.example/", "Clear-Site-Data": "*"}),
        HttpResponse("no", status=401, headers={"WWW-Authenticate": "Basic"}),
    ],
)
def test_no_stored_page_is_shown_and_no_stored_redirect_is_followed(anonymous: Person, response: HttpResponse) -> None:
    """An anonymous request's address can be computed by an attacker, who sends it to somebody else."""
    PAGE[:] = [response]
    first = anonymous.post("/page")
    told = [
        ask(anonymous, "/page"),
        anonymous.client.get(f"/idempotency/operations/{IdempotencyKey.objects.get().id}/"),
    ]
    for each in told:
        assert (each.status_code, each["Content-Type"], each["X-Content-Type-Options"]) == (
            200,
            "application/json",
            "nosniff",
        )
        assert not {"Location", "Refresh", "WWW-Authenticate", "Clear-Site-Data"} & set(each.headers)
        shown = stored(each)
        assert (shown.status_code, shown.content) == (first.status_code, first.content)


def test_asking_runs_and_stores_nothing(alice: Person) -> None:
    told = ask(alice, "/pay")
    assert (told.status_code, told.json()["code"]) == (404, "idempotency_operation_not_found")
    assert Ran.count == 0
    assert not IdempotencyKey.objects.exists()


@pytest.mark.parametrize(
    ("where", "key"), [("/lose", KEY), ("/nothing", KEY), ("", KEY), ("/pay", "another"), ("/pay", "a b"), ("/pay", "")]
)
def test_another_operation_or_key_is_not_found(alice: Person, where: str, key: str) -> None:
    alice.post("/pay")
    assert ask(alice, where, key).status_code == 404


def test_nobody_else_is_told_anything(alice: Person, anonymous: Person) -> None:
    alice.post("/pay")
    absent = ask(Person("bob"), "/nothing")
    for other in (Person("bob"), anonymous):
        told = ask(other, "/pay")
        assert (told.status_code, told.content) == (404, absent.content)


def test_a_running_request_is_told_to_be_running(alice: Person) -> None:
    assert alice.post("/inside").json() == {"told": 202, "retry_after": "2"}


def test_an_unknown_outcome_is_told_as_such(alice: Person) -> None:
    assert alice.post("/lose").status_code == 500
    told = ask(alice, "/lose")
    assert (told.status_code, told.json()["code"]) == (409, "idempotency_outcome_unknown")
    assert told.json()["safe_new_key"] is False


def test_a_lost_worker_is_told_as_running_until_the_sweeper_finds_it(alice: Person) -> None:
    alice.post("/lose")
    soon = IdempotencyKey.objects.get().created_at + timedelta(hours=1)
    IdempotencyKey.objects.update(status="in_progress", reconcile_after=None, locked_until=soon)
    lease_over(IdempotencyKey.objects.get())
    assert ask(alice, "/lose").status_code == 202


def test_an_expired_response_is_gone(alice: Person) -> None:
    alice.post("/pay")
    retention_over(IdempotencyKey.objects.get())
    assert ask(alice, "/pay").status_code == 410


def test_the_endpoints_own_scope_tells_whose_key_it_is(anonymous: Person) -> None:
    first = anonymous.post("/customers", headers={"X-Customer": "7"})
    assert stored(ask(anonymous, "/customers", **{"X-Customer": "7"})).content == first.content
    for other in ({}, {"X-Customer": "8"}):
        assert ask(anonymous, "/customers", **other).status_code == 404


def test_guests_need_a_key_that_nobody_guesses(anonymous: Person) -> None:
    first = anonymous.post("/guests")
    assert stored(ask(anonymous, "/guests")).content == first.content
    IdempotencyKey.objects.update(key="order-1")
    assert ask(anonymous, "/guests", "order-1").status_code == 404


def test_the_endpoint_may_refuse_the_response(alice: Person) -> None:
    ALLOWED[:] = [True]
    alice.post("/asked")
    assert ask(alice, "/asked").status_code == 200
    ALLOWED.clear()
    assert ask(alice, "/asked").status_code == 403


def test_a_token_is_asked_like_a_session(anonymous: Person) -> None:
    token = {"Authorization": f"Token {Token.objects.create(user=User.objects.create(username='carol')).key}"}
    first = anonymous.post("/rest", headers=token)
    assert first.status_code == 201
    told = ask(anonymous, "/rest", **token)
    assert stored(told).content == first.content
    assert ask(anonymous, "/rest").status_code == 404


def test_a_store_that_does_not_answer_is_a_503(anonymous: Person) -> None:
    with nobody_answers():
        told = ask(anonymous, "/customers", **{"X-Customer": "7"})
    assert (told.status_code, told["Retry-After"]) == (503, "2")
    assert "not executed" not in told.json()["detail"], "nobody knows what became of the request"
    assert (told.json()["effect"], told.json()["safe_new_key"]) == ("possible", False)


# The way from an error response to the outcome


def test_a_409_of_an_unknown_outcome_leads_to_the_outcome(alice: Person) -> None:
    alice.post("/lose")
    link = alice.post("/lose")["Link"]
    assert KEY not in link
    asked = alice.client.get(target_of(link))
    assert (asked.status_code, asked.json()["code"]) == (409, "idempotency_outcome_unknown")
    resolve(IdempotencyKey.objects.get().pk, Landed(json_reply(201, {"paid": True})), by="alice")
    asked = alice.client.get(target_of(link))
    assert (stored(asked).status_code, stored(asked).content) == (201, b'{"paid": true}')


def test_a_409_of_a_running_request_leads_to_its_status(alice: Person) -> None:
    found = alice.post("/posted-inside").json()
    assert found == {
        "link": f'</idempotency/operations/{IdempotencyKey.objects.get().pk}/>; rel="status"',
        "there": 202,
    }


def test_views_of_django_rest_framework_lead_there_too(anonymous: Person) -> None:
    owner = User.objects.create(username="carol")
    headers = {"Authorization": f"Token {Token.objects.create(user=owner).key}"}
    anonymous.post("/rest-losing", headers=headers)
    target = target_of(anonymous.post("/rest-losing", headers=headers)["Link"])
    assert anonymous.client.get(target, headers=headers).status_code == 409
    assert anonymous.client.get(target).status_code == 404


def test_nobody_else_is_told_anything_there(alice: Person, anonymous: Person) -> None:
    alice.post("/lose")
    target = target_of(alice.post("/lose")["Link"])
    absent = alice.client.get(f"/idempotency/operations/{uuid4()}/")
    for other in (Person("bob"), anonymous):
        told = other.client.get(target)
        assert (told.status_code, told.content) == (404, absent.content)


def test_the_endpoint_may_refuse_the_response_there_too(alice: Person) -> None:
    ALLOWED[:] = [True]
    alice.post("/asked")
    address = f"/idempotency/operations/{IdempotencyKey.objects.get().pk}/"
    assert alice.client.get(address).status_code == 200
    ALLOWED.clear()
    assert alice.client.get(address).status_code == 403


def test_the_scope_of_the_endpoint_tells_whose_request_it_was_there_too(anonymous: Person) -> None:
    for _ in range(2):
        told = anonymous.post("/lost-by-customers", headers={"X-Customer": "7"})
    target = target_of(told["Link"])
    found = [anonymous.client.get(target, headers={"X-Customer": name}).status_code for name in "78"]
    assert found == [409, 404]


def test_what_nobody_can_be_asked_about_has_no_such_address(alice: Person) -> None:
    alice.post("/closed")
    told = alice.post("/closed")
    assert (told.json()["code"], "Link" in told) == ("idempotency_outcome_unknown", False)


def test_atomic_mode_names_no_record_of_a_request_that_has_none_yet(alice: Person) -> None:
    alice.post("/lose")
    for record in (None, find(IdempotencyKey.objects.get().ref)):
        details = problem_for(InFlight(record, 2), replace(a_call(mode="atomic"), method="POST", path="/lose"))
        assert (bool(details.outcome), "operation_ref" in details.content(IETF)) == (record is not None,) * 2


class WithTheRules:
    urlpatterns = [*urlpatterns, path("rules/", include("django_idempotency.rules_urls"))]


def test_the_rules_are_linked_beside_it(alice: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = WithTheRules
    alice.post("/lose")
    rules, status = alice.post("/lose")["Link"].split(", ")
    assert rules == '</rules/#idempotency_outcome_unknown>; rel="describedby"; type="text/html"'
    assert target_of(status)


def test_a_mismatch_leads_to_no_outcome(alice: Person) -> None:
    alice.post("/lose")
    assert "Link" not in alice.post("/lose", {"other": True})
