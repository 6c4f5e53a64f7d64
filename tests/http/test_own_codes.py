"""A project's own codes in the error responses that its clients get."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from rest_framework.response import Response
from rest_framework.views import exception_handler

from django_idempotency import Profile
from django_idempotency.decorators import idempotent
from django_idempotency.rest_framework import IdempotentMixin
from tests.http.rest_views import Authenticated
from tests.kit.exports import export
from tests.kit.http import Person
from tests.kit.operations import begin_anew

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

OWN = Profile(name="own", codes={"idempotency_key_missing": "E400-1", "idempotency_key_accepted": "E202-1"})


@pytest.fixture(autouse=True)
def _operations(settings: Any) -> None:
    begin_anew(settings)


@idempotent(mode="leased", transaction="late", on_lost_lease="restart", profile=OWN)
def plain(request: Any) -> HttpResponse:
    response: HttpResponse = request.idempotency.defer(export, title="may")
    return response


class Rest(IdempotentMixin, Authenticated):
    idempotency = {"mode": "atomic", "profile": OWN}

    def post(self, request: HttpRequest) -> Response:
        return Response()


urlpatterns = [
    path("plain", plain, name="plain"),
    path("rest", Rest.as_view(), name="rest"),
    path("rules/", include("django_idempotency.rules_urls")),
]


@pytest.mark.parametrize("where", ["/plain", "/rest"])
def test_a_client_gets_the_projects_code_and_the_rules_of_the_stable_one(alice: Person, where: str) -> None:
    told = alice.post(where, key=None).json()
    assert (told["code"], told["type"]) == ("E400-1", "/rules/#idempotency_key_missing")


def test_both_kinds_of_views_send_the_same_bytes(alice: Person) -> None:
    assert alice.post("/plain", key=None).content == alice.post("/rest", key=None).content


def test_accepted_work_has_the_projects_code_too(alice: Person) -> None:
    assert alice.post("/plain").json()["code"] == "E202-1"


def test_an_exception_handler_of_the_project_reads_it(alice: Person, settings: Any) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": f"{__name__}.by_code"}
    assert alice.post("/rest", key=None).json() == {"handled": "E400-1"}


def by_code(error: Any, context: Any) -> Any:
    response = exception_handler(error, context)
    assert response is not None
    response.data = {"handled": error.get_codes()}
    return response
