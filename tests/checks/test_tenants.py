"""What the checks say of an installation that serves several tenants, or several hosts."""

from typing import Any

import pytest

from django_idempotency.checks.tenants import check_tenants
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
