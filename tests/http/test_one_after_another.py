"""More than one key in a request: views one after the other, and work that asks for another key."""

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import AsyncClient
from django.urls import path

from django_idempotency.decorators import idempotent
from django_idempotency.exceptions import OutcomeUnknown
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import once
from tests.kit.http import KEY, Person

pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db(transaction=True)]
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
