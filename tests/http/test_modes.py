"""The setting MODE: the mode of the views that name none."""

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import include, path, reverse
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.core.states import Status
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import Misplaced
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import perform
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.exports import export
from tests.kit.http import MIDDLEWARE, Person, Ran

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db, pytest.mark.vendor]


def write_and_fail_once() -> dict[str, int]:
    User.objects.create(username=f"written {Ran.again()}")
    return {"run": {2: 2}[Ran.count]}  # KeyError in the first run


def buggy(request: HttpRequest) -> HttpResponse:
    return JsonResponse(write_and_fail_once(), status=201)


class Buggy(IdempotentMixin, APIView):
    authentication_classes = [SessionAuthentication]

    def post(self, request: Request) -> Response:
        return Response(write_and_fail_once(), status=201)


class Late(Buggy):
    idempotency = {"transaction": "late"}


class Outside(Buggy):
    idempotency = {"mode": "leased"}


async def waiting(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


def asking_for_an_export(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(export, title="may")  # type: ignore[attr-defined,no-any-return]


urlpatterns = [
    path("decorated", idempotent(buggy)),
    path("rest", Buggy.as_view()),
    path("middleware", buggy),
    path("leased", idempotent(mode="leased")(buggy)),
    path("rest-leased", Outside.as_view()),
    path("rest-late", Late.as_view(), name="rest-late"),
    path("admin/", admin.site.urls),
    path("idempotency/", include("django_idempotency.urls")),
    path("exports", idempotent(mode="leased", transaction="late", receipts=True)(asking_for_an_export)),
    path("late", idempotent(transaction="late")(buggy)),
    path("async", waiting),
    path("async-leased", idempotent(mode="leased")(waiting)),
]


@pytest.fixture
def in_atomic_mode(settings: Any) -> None:
    settings.IDEMPOTENCY = {"MODE": "atomic"}
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]


@pytest.mark.usefixtures("in_atomic_mode")
@pytest.mark.parametrize("where", ["/decorated", "/rest", "/middleware"])
def test_an_error_frees_the_key_and_the_retry_runs(where: str, alice: Person) -> None:
    assert alice.post(where).status_code == 500
    assert not IdempotencyKey.objects.exists()
    retried = alice.post(where)
    assert (retried.status_code, retried.json()) == (201, {"run": 2})
    assert alice.post(where).headers["Idempotency-Replayed"] == "true"
    assert list(User.objects.filter(username__startswith="written").values_list("username")) == [("written 2",)]


@pytest.mark.parametrize("where", ["/decorated", "/rest"])
def test_an_error_leaves_an_unknown_outcome_by_default(where: str, alice: Person) -> None:
    """Everything was rolled back, but nothing says that the view called nothing else."""
    assert_unknown(where, alice)


@pytest.mark.usefixtures("in_atomic_mode")
@pytest.mark.parametrize("where", ["/leased", "/rest-leased"])
def test_the_argument_wins_over_the_setting(where: str, alice: Person) -> None:
    assert_unknown(where, alice)


def assert_unknown(where: str, alice: Person) -> None:
    assert alice.post(where).status_code == 500
    assert IdempotencyKey.objects.get().status == Status.UNKNOWN
    assert alice.post(where).json()["code"] == "idempotency_outcome_unknown"
    assert not User.objects.filter(username__startswith="written").exists()
    assert Ran.count == 1


@pytest.mark.usefixtures("in_atomic_mode")
def test_a_view_that_cannot_be_atomic_does_not_run_until_it_names_its_mode(alice: Person) -> None:
    alice.client.raise_request_exception = True
    with pytest.raises(ValueError, match="transaction='late' cannot be combined with mode='atomic'"):
        alice.post("/late")
    with pytest.raises(Misplaced, match="Use mode='leased'"):
        alice.post("/async")
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)
    assert alice.post("/async-leased").json() == {"run": 1}


@pytest.mark.usefixtures("in_atomic_mode")
def test_a_view_that_cannot_be_atomic_is_still_in_the_admin(admin_client: Client) -> None:
    page = admin_client.get(reverse("admin:django_idempotency_idempotencykey_changelist"))
    assert "rest-late" in page.content.decode()


@pytest.mark.django_db(transaction=True)
def test_a_view_that_cannot_be_atomic_hides_no_deferred_work_of_another(settings: Any, alice: Person) -> None:
    settings.IDEMPOTENCY = {"MODE": "atomic", "ENQUEUE": None}
    accepted = alice.post("/exports")
    assert accepted.status_code == 202
    assert perform(accepted.json()["operation_ref"]) == "landed"
    assert alice.client.get(accepted["Location"]).status_code == 200
