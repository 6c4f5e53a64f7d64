"""Who is refused before a key is looked up, and what an exception in a DRF view means for its key."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, User
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.urls import path
from rest_framework.authentication import BaseAuthentication
from rest_framework.authtoken.models import Token
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import exception_handler

from django_idempotency.core.links import docs_url
from django_idempotency.models import IdempotencyKey
from tests.http import rest_views
from tests.kit.http import KEY, Person, Ran, atomic_requests, same_answer

pytestmark = [pytest.mark.urls("tests.http.rest_views"), pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _unthrottled() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def with_handler(settings: Any, name: str) -> None:
    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": f"{__name__}.{name}"}


# Before the key is looked up


def test_s3_a_permission_withdrawn_refuses_the_replay_too(alice: Person) -> None:
    assert alice.user is not None
    allowed = Group.objects.create(name="allowed")
    alice.user.groups.add(allowed)
    first = alice.post("/permitted")
    stored = IdempotencyKey.objects.values().get()
    alice.user.groups.remove(allowed)
    refused = alice.post("/permitted")
    assert (first.status_code, refused.status_code) == (201, 403)
    assert "Idempotency-Replayed" not in refused
    assert IdempotencyKey.objects.values().get() == stored
    alice.user.groups.add(allowed)
    assert same_answer(first, alice.post("/permitted"))


def test_s4_the_scope_is_the_user_and_not_the_session_or_the_token(alice: Person, anonymous: Person) -> None:
    first = alice.post("/thing")
    assert alice.user is not None
    alice.client.logout()
    assert alice.post("/thing").status_code == 403
    for _ in range(2):
        Token.objects.filter(user=alice.user).delete()
        token = Token.objects.create(user=alice.user)
        assert same_answer(first, anonymous.post("/thing", headers={"Authorization": f"Token {token.key}"}))
    assert Ran.count == 1


class Credential(BaseAuthentication):
    """A client that is no user."""

    def authenticate(self, request: Request) -> Any:
        client = request.headers.get("X-Client")
        return (AnonymousUser(), SimpleNamespace(pk=client)) if client else None


class Machine(rest_views.Thing):
    authentication_classes = [Credential]
    permission_classes: Any = []


def test_a_credential_without_a_user_is_a_scope_of_its_own(anonymous: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("machine", Machine.as_view())]})
    first, second, other = (anonymous.post("/machine", headers={"X-Client": each}) for each in ("7", "7", "8"))
    assert same_answer(first, second)
    assert (other.json(), anonymous.post("/machine").status_code) == ({"run": 2}, 403)


@pytest.mark.parametrize("protect", ["/thing", "/api-view/above", "/api-view/below"])
def test_s17_a_refused_request_leaves_no_row_and_poisons_nothing(
    alice: Person, anonymous: Person, protect: str
) -> None:
    assert anonymous.post(protect, {"a": 1}).status_code == 403
    assert not IdempotencyKey.objects.exists()
    assert alice.post(protect, {"a": 2}).status_code == 201
    refused = anonymous.post(protect, {"a": 2})
    assert refused.status_code == 403
    assert b"run" not in refused.content


def test_throttling_comes_before_the_replay(alice: Person) -> None:
    assert alice.post("/throttled").status_code == 201
    refused = alice.post("/throttled")
    assert refused.status_code == 429
    assert "Idempotency-Replayed" not in refused
    assert Person("bob").post("/throttled").status_code == 201


def test_negotiation_comes_before_the_key(alice: Person) -> None:
    picky = {"Accept": "text/csv"}
    assert alice.post("/thing", headers=picky).status_code == 406
    assert not IdempotencyKey.objects.exists()
    alice.post("/thing")
    assert alice.post("/thing", headers=picky).status_code == 406


def test_a_missing_csrf_token_leaves_no_row(alice: Person) -> None:
    assert alice.user is not None
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(alice.user)
    response = strict.post("/over-session", "{}", "application/json", headers={"Idempotency-Key": KEY})
    assert response.status_code == 403
    assert not IdempotencyKey.objects.exists()
    assert alice.post("/over-session").status_code == 201


# Answers that the view refuses with


def test_a_validation_error_is_stored(alice: Person) -> None:
    first = alice.post("/generic", {"name": ""})
    assert first.status_code == 400
    assert same_answer(first, alice.post("/generic", {"name": ""}))
    assert alice.post("/generic", {"name": "corrected"}).status_code == 422


def test_a_profile_may_release_a_validation_error_for_a_corrected_body(alice: Person, settings: Any) -> None:
    settings.IDEMPOTENCY = {"PROFILE": "stripe"}
    assert alice.post("/generic", {"name": ""}).status_code == 400
    assert alice.post("/generic", {"name": "corrected"}).status_code == 201
    assert alice.post("/generic", {"name": "corrected"})["Idempotent-Replayed"] == "true"
    mismatch = alice.post("/generic", {"name": "another"})
    assert (mismatch.status_code, mismatch.json()["error"]["type"]) == (400, "idempotency_error")
    assert mismatch["Content-Type"] == "application/json"


@pytest.mark.parametrize("around", [False, True], ids=["plain", "atomic requests"])
@pytest.mark.parametrize(
    ("route", "kind", "status", "then", "ran"),
    [
        ("/failing", "refusal", 418, 418, 1),
        ("/failing", "missing", 404, 404, 1),
        ("/failing", "nothing", 503, 503, 2),
        ("/failing", "crash", 500, 409, 1),
        ("/failing", "server", 500, 409, 1),
        ("/failing-atomic", "refusal", 418, 418, 1),
        ("/failing-atomic", "missing", 404, 404, 1),
        ("/failing-atomic", "nothing", 503, 503, 2),
        ("/failing-atomic", "crash", 500, 500, 2),
        ("/failing-stored", "crash", 500, 500, 1),
        ("/failing-stored", "server", 500, 500, 1),
    ],
)
def test_what_an_exception_means(
    alice: Person, route: str, kind: str, status: int, then: int, ran: int, around: bool
) -> None:
    with atomic_requests(around):
        first, second = (alice.post(route, {"raise": kind}) for _ in range(2))
    assert (first.status_code, second.status_code, Ran.count) == (status, then, ran)
    assert User.objects.count() == 1, "the view's writes are rolled back"
    assert not connection.needs_rollback
    if status == then and ran == 1:
        assert same_answer(first, second)


def test_nothing_executed_says_when_to_come_back(alice: Person) -> None:
    response = alice.post("/failing", {"raise": "nothing"})
    assert response["Retry-After"] == "2"
    assert response.json()["code"] == "idempotency_not_executed"
    assert IdempotencyKey.objects.get().status == "failed_retryable"


class Declined(APIException):
    status_code = 503


class Declining(rest_views.Thing):
    idempotency = {"refusals": (Declined,)}

    def post(self, request: Request) -> Response:
        Ran.again()
        raise Declined


def test_a_policy_may_declare_a_server_error_to_be_an_answer(alice: Person, settings: Any) -> None:
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("declining", Declining.as_view())]})
    first, second = (alice.post("/declining") for _ in range(2))
    assert first.status_code == 503
    assert same_answer(first, second)


# The project's own exception handler


def enveloped(error: Exception, context: Any) -> Response | None:
    response = exception_handler(error, context)
    if response is not None and isinstance(error, APIException):
        response.data = {"errors": [error.get_full_details()], "codes": error.get_codes()}
    return response


def extended(error: Exception, context: Any) -> Response | None:
    response = exception_handler(error, context)
    if response is not None:
        response.data["status_code"] = response.status_code
    return response


def broken(error: Exception, context: Any) -> Response:
    raise LookupError("planned")


def test_a_refusal_is_a_problem(alice: Person) -> None:
    alice.post("/thing", {"a": 1})
    refused = alice.post("/thing", {"a": 2})
    assert (refused.status_code, refused["Content-Type"]) == (422, "application/problem+json")
    assert refused["Cache-Control"] == "no-store"
    assert refused.json() == {
        "type": docs_url("reference/errors", "idempotency_key_reused_with_different_payload"),
        "title": "Idempotency key reused",
        "status": 422,
        "detail": refused.json()["detail"],
        "code": "idempotency_key_reused_with_different_payload",
        "effect": "done",
        "safe_new_key": False,
        "first_status": 201,
        "operation_ref": str(reference := IdempotencyKey.objects.get().id),
        "instance": f"urn:uuid:{reference}",
        "differs_in": ["body"],
    }


def test_a_refusal_goes_through_the_projects_handler(alice: Person, settings: Any) -> None:
    with_handler(settings, "enveloped")
    refused = alice.post("/thing", key=None)
    assert (refused.status_code, refused["Content-Type"]) == (400, "application/json")
    assert refused.json()["codes"] == "idempotency_key_missing"
    assert refused.json()["errors"][0]["message"].startswith("This operation needs")


def test_a_handler_that_adds_members_leaves_it_a_problem(alice: Person, settings: Any) -> None:
    with_handler(settings, "extended")
    refused = alice.post("/thing", key=None)
    assert refused["Content-Type"] == "application/problem+json"
    assert (refused.json()["code"], refused.json()["status_code"]) == ("idempotency_key_missing", 400)


def test_a_handler_that_fails_turns_no_refusal_into_a_500(alice: Person, settings: Any) -> None:
    with_handler(settings, "broken")
    refused = alice.post("/thing", key=None)
    assert (refused.status_code, refused["Content-Type"]) == (400, "application/problem+json")


@pytest.mark.parametrize("kind", ["missing", "nothing"])
def test_a_handler_that_fails_leaves_no_record_running(alice: Person, settings: Any, kind: str) -> None:
    with_handler(settings, "broken")
    assert alice.post("/failing", {"raise": kind}).status_code == (500 if kind == "missing" else 503)
    expected = "unknown" if kind == "missing" else "failed_retryable"
    assert IdempotencyKey.objects.get().status == expected
