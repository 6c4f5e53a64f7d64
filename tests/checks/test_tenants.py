"""What the checks say of an installation that serves several tenants, or several hosts."""

from typing import Any

import pytest
from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency.checks.tenants import check_admin, check_tenants
from django_idempotency.decorators import idempotent
from tests.checks.messages import ids


def test_e040_tenants_of_django_tenants(settings: Any) -> None:
    settings.TENANT_MODEL = "customers.Customer"
    assert ids(check_tenants(None)) == ["E040"]


@pytest.mark.parametrize(
    "hosts", [["*"], [".example.com"], ["a.example.com", "b.example.com"], ["localhost", "*.example.com"]]
)
def test_w041_several_hosts(settings: Any, hosts: list[str]) -> None:
    settings.ALLOWED_HOSTS = hosts
    assert ids(check_tenants(None)) == ["W041"]


@pytest.mark.parametrize("hosts", [[], ["example.com"], ["localhost", "127.0.0.1", "[::1]", "example.com"]])
def test_one_host_is_fine(settings: Any, hosts: list[str]) -> None:
    settings.ALLOWED_HOSTS = hosts
    assert check_tenants(None) == []


@pytest.mark.parametrize(
    "given", [{"TENANT": "django_idempotency.tenants.host_tenant"}, {"TENANT": None}, {"SCOPE": len}]
)
def test_a_project_that_has_decided_hears_nothing(settings: Any, given: dict[str, Any]) -> None:
    settings.TENANT_MODEL = "customers.Customer"
    settings.ALLOWED_HOSTS = ["*"]
    settings.IDEMPOTENCY = given
    assert check_tenants(None) == []


@idempotent(operation="orders", tenant=lambda request: "acme")
def order(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [path("orders", order)]


@pytest.mark.urls(__name__)
def test_w043_the_admin_cannot_tell_the_tenants_of_a_policy(settings: Any) -> None:
    (message,) = check_admin(None)
    assert ids([message]) == ["W043"]
    assert "The policies of orders" in message.msg
    settings.IDEMPOTENCY = {"ADMIN_TENANT": None}
    assert check_admin(None) == []


@pytest.mark.parametrize(
    ("layout", "given", "found"),
    [
        ("SHARED_APPS", {"TENANT": None}, ["W043"]),
        ("SHARED_APPS", {"TENANT": "django_idempotency.tenants.schema_tenant"}, []),
        ("TENANT_APPS", {"TENANT": None}, []),
    ],
)
def test_w043_a_shared_table_without_tenants(
    settings: Any, layout: str, given: dict[str, Any], found: list[str]
) -> None:
    settings.TENANT_MODEL = "customers.Customer"
    setattr(settings, layout, ["django_idempotency"])
    settings.IDEMPOTENCY = given
    assert ids(check_admin(None)) == found
