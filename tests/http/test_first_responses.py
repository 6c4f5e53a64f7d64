"""With `mark_first` the response that is stored says that it is no replay. No other response says so."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from rest_framework.response import Response

from django_idempotency import Profile, Reply, json_reply
from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.operations import Op, operation
from django_idempotency.rest_framework import IdempotentMixin
from tests.http.rest_views import Authenticated
from tests.kit.http import Person, Ran
from tests.kit.operations import begin_anew

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

HEADER = "X-Replayed"
MARKING = Profile(name="marking", replayed_header=HEADER, mark_first=True)
PATHS = ["leased", "late", "finishing", "atomic", "async", "operation", "refusing", "rest", "rest-refusing"]


@pytest.fixture(autouse=True)
def _operations(settings: Any) -> None:
    begin_anew(settings)


@operation("tests.marked")
def marked(op: Op) -> Reply:
    return json_reply(201, {})


def answer(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"ran": Ran.again()}, status=201)


def finish(request: Any) -> HttpResponse:
    response: HttpResponse = request.idempotency.finish(lambda: answer(request))
    return response


def operate(request: Any) -> HttpResponse:
    response: HttpResponse = request.idempotency.run(marked)
    return response


def hand_over(request: Any) -> HttpResponse:
    response: HttpResponse = request.idempotency.defer(marked)
    return response


def refuse(request: HttpRequest) -> HttpResponse:
    raise Http404


def fail(request: HttpRequest) -> HttpResponse:
    return HttpResponse(status=500)


async def answer_async(request: HttpRequest) -> HttpResponse:
    return answer(request)


class Rest(IdempotentMixin, Authenticated):
    idempotency = {"mode": "leased", "operation": "rest", "profile": MARKING}

    def post(self, request: Any) -> Response:
        return Response({"ran": Ran.again()}, status=201)


class RestRefusing(Rest):
    idempotency = {"mode": "atomic", "operation": "rest-refusing", "profile": MARKING}

    def post(self, request: Any) -> Response:
        raise Http404


def protected(view: Callable[..., Any], name: str, **policy: Any) -> Any:
    arguments = {"mode": "leased", "profile": MARKING, "operation": name, **policy}
    return path(name, csrf_exempt(idempotent(**arguments)(view)))


urlpatterns = [
    protected(answer, "leased"),
    protected(answer, "late", transaction="late"),
    protected(finish, "finishing", transaction="late"),
    protected(answer, "atomic", mode="atomic"),
    protected(answer_async, "async"),
    protected(operate, "operation", transaction="late"),
    protected(refuse, "refusing"),
    path("rest", Rest.as_view()),
    path("rest-refusing", RestRefusing.as_view()),
    protected(hand_over, "deferring", transaction="late"),
    protected(fail, "failing", mode="atomic", store=lambda status: status < 500),
    protected(answer, "optional", required=False),
    protected(answer, "usual", profile=Profile(name="usual", replayed_header=HEADER)),
]


@pytest.mark.parametrize("where", PATHS)
def test_the_first_response_says_false_and_a_replay_true(alice: Person, where: str) -> None:
    first, replay = alice.post(f"/{where}"), alice.post(f"/{where}")
    assert (first.status_code, first[HEADER]) == (replay.status_code, "false")
    assert replay[HEADER] == "true"
    assert HEADER not in IdempotencyKey.objects.get().response_headers


@pytest.mark.parametrize(
    ("where", "more"),
    [
        ("deferring", {}),
        ("failing", {}),
        ("optional", {"key": None}),
        ("usual", {}),
        ("leased", {"key": None}),
        ("leased", {"key": "a b"}),
    ],
)
def test_no_other_response_has_it(alice: Person, where: str, more: dict[str, Any]) -> None:
    assert HEADER not in alice.post(f"/{where}", **more).headers


def test_it_is_not_stored_either_when_the_transaction_runs_again(alice: Person) -> None:
    stored: list[str] = []

    def deadlock_once(execute: Any, sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        if sql.startswith("UPDATE") and "response_headers" in sql:
            stored.append(sql)
            if len(stored) == 1:
                raise OperationalError(1213, "planned")
        return result

    with connection.execute_wrapper(deadlock_once):
        assert alice.post("/late")[HEADER] == "false"
    assert len(stored) == 2
    assert HEADER not in IdempotencyKey.objects.get().response_headers
