"""More than one key in a request: views one after the other, and work that asks for another key."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient
from django.urls import path
from rest_framework.authentication import SessionAuthentication
from rest_framework.views import APIView

from django_idempotency import signals
from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import LostFence, OutcomeUnknown
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import once
from django_idempotency.rest_framework import IdempotentMixin
from tests.kit.calls import heard
from tests.kit.http import KEY, Person

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True), pytest.mark.vendor]
RUNS: list[str] = []


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    RUNS.clear()


def did(what: str) -> HttpResponse:
    RUNS.append(what)
    return JsonResponse({"did": what}, status=201)


@idempotent(operation="pay")
def pay(request: HttpRequest) -> HttpResponse:
    return did("pay")


@idempotent(operation="notify", mode="atomic")
def notify(request: HttpRequest) -> HttpResponse:
    return did("notify")


def batch(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"all": [pay(request).status_code, notify(request).status_code]})


@idempotent(operation="pay", share_anonymous=True)
async def apay(request: HttpRequest) -> HttpResponse:
    return did("pay")


@idempotent(operation="notify", share_anonymous=True)
async def anotify(request: HttpRequest) -> HttpResponse:
    return did("notify")


async def abatch(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"all": [(await apay(request)).status_code, (await anotify(request)).status_code]})


urlpatterns = [path("batch", batch), path("abatch", abatch)]


def test_each_has_its_own_record_and_runs_once(alice: Person) -> None:
    first, second = alice.post("/batch"), alice.post("/batch")
    assert RUNS == ["pay", "notify"]
    assert first.json() == second.json() == {"all": [201, 201]}
    assert sorted(IdempotencyKey.objects.values_list("operation", flat=True)) == ["notify", "pay"]


def test_async_views_too() -> None:
    send = async_to_sync(AsyncClient().post)
    said: list[Any] = [send("/abatch", headers={"Idempotency-Key": KEY}) for _ in range(2)]
    assert RUNS == ["pay", "notify"]
    assert said[0].json() == said[1].json() == {"all": [201, 201]}


def test_a_view_that_fails_over_another_keys_doubt_is_in_doubt_itself(alice: Person, settings: Any) -> None:
    """Its attempt is over; what it did before is for somebody to find out."""

    def failing(claim: Any) -> None:
        raise RuntimeError("planned")

    with pytest.raises(RuntimeError):
        once(scope="mails", key="one", run=failing)

    @idempotent(operation="tests.outer", transaction="late")
    def mailing(request: HttpRequest) -> HttpResponse:
        once(scope="mails", key="one", run=failing)
        return did("mail")

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", mailing, name="it")]})
    first, second = alice.post("/it"), alice.post("/it")
    assert first.json() == second.json()
    assert (first.status_code, first.json()["code"]) == (409, "idempotency_outcome_unknown")
    assert IdempotencyKey.objects.get(operation="tests.outer").status == "unknown"


def test_an_answer_that_is_stored_wins_over_another_keys_doubt(alice: Person, settings: Any) -> None:
    @idempotent(transaction="late")
    def view(request: HttpRequest) -> HttpResponse:
        request.idempotency.finish(lambda: did("paid"))  # type: ignore[attr-defined]
        raise OutcomeUnknown("the other key's")

    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})
    assert [alice.post("/it").status_code for _ in range(2)] == [201, 201]
    assert RUNS == ["paid"]


@pytest.mark.parametrize("error", [OutcomeUnknown, LostFence])
@pytest.mark.parametrize("policy", [{}, {"transaction": "late"}], ids=["whole", "late"])
@pytest.mark.parametrize("rest", [False, True])
def test_an_error_about_another_key_leaves_this_one_unknown_at_once(
    alice: Person, settings: Any, policy: Any, error: type[Exception], rest: bool
) -> None:
    """Not in progress until its lease ends; and no other attempt has taken this record over."""

    def fail(request: Any) -> HttpResponse:
        RUNS.append("ran")
        raise error("about the other key")

    class Rest(IdempotentMixin, APIView):
        authentication_classes = (SessionAuthentication,)
        idempotency = policy

        def post(self, request: Any) -> HttpResponse:
            return fail(request)

    view = Rest.as_view() if rest else idempotent(**policy)(fail)
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", view, name="it")]})
    with heard(signals.fence_lost) as fences:
        answers = [alice.post("/it") for _ in range(2)]
    assert [(each.status_code, each.json()["safe_new_key"]) for each in answers] == [(409, False)] * 2
    assert {each.json()["code"] for each in answers} == {"idempotency_outcome_unknown"}
    row = IdempotencyKey.objects.get()
    assert (row.status, row.last_error_code, RUNS) == ("unknown", error.__name__, ["ran"])
    assert fences == []


def asks_for_another_key(error: Exception, context: Any) -> HttpResponse:
    raise LostFence("about the other key")


def test_the_projects_exception_handler_may_fail_with_one_too(alice: Person, settings: Any) -> None:
    class Rest(IdempotentMixin, APIView):
        authentication_classes = (SessionAuthentication,)

        def post(self, request: Any) -> HttpResponse:
            raise Http404

    settings.REST_FRAMEWORK = {**settings.REST_FRAMEWORK, "EXCEPTION_HANDLER": f"{__name__}.asks_for_another_key"}
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("it", Rest.as_view(), name="it")]})
    with heard(signals.fence_lost) as fences:
        answers = [alice.post("/it").status_code for _ in range(2)]
    assert IdempotencyKey.objects.get().status == "unknown"
    assert (answers[1], fences) == (409, [])
