"""Two tenants of one installation may have a user with the same primary key; they share nothing."""

import logging
from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import include, path

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import once
from django_idempotency.operations import enqueue
from tests.kit.exports import export
from tests.kit.http import Person, Ran
from tests.kit.operations import begin_anew

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__), pytest.mark.vendor]

HOST = "django_idempotency.tenants.host_tenant"
CURRENT = ["acme"]


@idempotent
def pay(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


@idempotent(tenant=lambda request: request.headers.get("X-Tenant", ""))
def own(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


@idempotent(share_anonymous=True)
def shared(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"run": Ran.again()}, status=201)


urlpatterns = [
    path("pay", pay, name="pay"),
    path("own", own, name="own"),
    path("shared", shared, name="shared"),
    path("", include("tests.kit.exports")),
]


def current_tenant(request: HttpRequest | None = None) -> str:
    return CURRENT[0]


@pytest.fixture(autouse=True)
def _hosts(settings: Any) -> None:
    settings.ALLOWED_HOSTS = [".example.com"]
    CURRENT[:] = ["acme"]


def test_a_host_may_be_a_tenant(alice: Person, settings: Any) -> None:
    settings.IDEMPOTENCY = {"TENANT": HOST}
    hosts = ["a.example.com", "b.example.com", "A.example.com:8000", "a.example.com."]
    answers = [alice.post("/pay", HTTP_HOST=host).json()["run"] for host in hosts]
    assert answers == [1, 2, 1, 1]
    assert set(IdempotencyKey.objects.values_list("principal", flat=True)) == {f"user:{alice.user.pk}"}  # type: ignore[union-attr]


def test_anonymous_callers_of_two_tenants_share_nothing(anonymous: Person, settings: Any) -> None:
    settings.IDEMPOTENCY = {"TENANT": HOST}
    hosts = ["a.example.com", "b.example.com", "a.example.com"]
    assert [anonymous.post("/shared", HTTP_HOST=host).json()["run"] for host in hosts] == [1, 2, 1]


def test_an_endpoint_may_tell_its_tenant_itself(alice: Person) -> None:
    tenants = ["acme", "beta", "acme"]
    answers = [alice.post("/own", HTTP_HOST="a.example.com", headers={"X-Tenant": each}) for each in tenants]
    assert [each.json()["run"] for each in answers] == [1, 2, 1]


@pytest.mark.parametrize("wrong", ["", None, 7, "a\0b", object()])
def test_a_tenant_that_is_no_text_refuses_the_request(
    alice: Person, settings: Any, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.IDEMPOTENCY = {"TENANT": lambda request: wrong}
    with caplog.at_level(logging.ERROR, "django_idempotency"):
        assert alice.post("/pay", HTTP_HOST="a.example.com").status_code == 403
    assert "IDEMPOTENCY['TENANT']" in caplog.text
    assert "'pay'" in caplog.text
    assert (Ran.count, IdempotencyKey.objects.count()) == (0, 0)


def test_deferred_work_is_shown_to_its_tenant_alone(alice: Person, settings: Any) -> None:
    begin_anew(settings)
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "TENANT": HOST}
    address = alice.post("/exports", HTTP_HOST="a.example.com")["Location"]
    assert alice.client.get(address, HTTP_HOST="a.example.com").status_code == 202
    assert alice.client.get(address, HTTP_HOST="b.example.com").status_code == 404


def test_code_without_a_request_belongs_to_a_tenant_too(settings: Any) -> None:
    begin_anew(settings)
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "TENANT": f"{__name__}.current_tenant"}
    results, works = [], []
    for tenant in ("acme", "beta", "acme"):
        CURRENT[:] = [tenant]
        results.append(once(scope="invoices", key="2026-11", run=lambda claim: CURRENT[0], mode="atomic"))
        works.append(enqueue("exports", "2026-11", export, title="may"))
    assert results == ["acme", "beta", "acme"]
    assert works[0] == works[2] != works[1]


def test_a_tenant_that_needs_a_request_leaves_other_code_as_it_is(settings: Any) -> None:
    settings.IDEMPOTENCY = {"TENANT": HOST}
    assert once(scope="invoices", key="2026-11", run=lambda claim: 1, mode="atomic") == 1
    assert IdempotencyKey.objects.get().scope == "once:invoices"


def test_two_scopes_are_never_equal_by_accident(alice: Person) -> None:
    from django_idempotency.http.requests import scope_of

    scopes = [scope_of("b", "c", "a"), scope_of("a", "b", "c"), scope_of("a", "1:b1:c"), scope_of("1:a1:b", "c")]
    assert len(set(scopes)) == len(scopes)
