"""The admin of one tenant shows and changes that tenant's records only, in a table that all tenants share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client
from django.urls import reverse

from django_idempotency import Status
from tests.kit import records
from tests.kit.console import LIST, act, client_of, confirm, page_of, record

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

HOST = "django_idempotency.tenants.host_tenant"
ACME, BETA = "acme.example.com", "beta.example.com"


def tenant_of_staff(request: HttpRequest) -> str | None:
    """Staff of the installation use the host that is no tenant."""
    host = request.get_host()
    return None if host == "admin.example.com" else host


@pytest.fixture
def admin(settings: Any) -> Callable[[str], Client]:
    """Superusers, each at the admin of a tenant."""
    settings.ALLOWED_HOSTS = [".example.com"]
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "TENANT": HOST}
    user = User.objects.create_superuser("root", password="root")
    return lambda host: client_of(user, SERVER_NAME=host)


def listed(client: Client, query: str = "") -> list[str]:
    return [row.key for row in client.get(LIST + query).context["cl"].result_list]


def completed(key: str, tenant: str) -> UUID:
    return record(Status.COMPLETED, key, tenant=tenant, principal="user:7")


def test_the_list_and_its_search_find_what_is_the_tenants(admin: Callable[[str], Client]) -> None:
    keys = {host: completed(f"order-{host}", host) for host in (ACME, BETA)}
    for host, other in ((ACME, BETA), (BETA, ACME)):
        client, own = admin(host), [f"order-{host}"]
        assert listed(client) == listed(client, "?q=order-") == listed(client, "?q=user:7") == own
        assert listed(client, f"?q={keys[other]}") == listed(client, f"?q=order-{other}") == []


@pytest.mark.parametrize("address", [page_of, lambda found: f"{LIST}{found}/history/"])
def test_another_tenants_record_has_no_page(admin: Callable[[str], Client], address: Callable[[UUID], str]) -> None:
    found = completed("order-17", ACME)
    page = admin(BETA).get(address(found), follow=True)
    assert "order-17" not in page.content.decode()
    assert "order-17" in admin(ACME).get(page_of(found)).content.decode()


def test_the_neighbours_of_a_record_are_its_tenants(admin: Callable[[str], Client]) -> None:
    found = completed("order-17", ACME)
    completed("order-18", ACME)
    completed("order-19", BETA)
    page = admin(ACME).get(page_of(found)).content.decode()
    assert "order-18" in page
    assert "order-19" not in page


def test_no_action_changes_another_tenants_record(admin: Callable[[str], Client]) -> None:
    found = completed("order-17", ACME)
    address = act("expire-now", found)
    given = {"reason": "mine", f"seen-{found}": "x"}
    assert admin(BETA).get(address).status_code == admin(BETA).post(address, given).status_code == 404
    assert records.status_of(found) is Status.COMPLETED
    confirm(admin(ACME), address)
    assert records.status_of(found) is Status.EXPIRED


def test_acting_on_all_records_ends_with_the_tenants(admin: Callable[[str], Client]) -> None:
    dead = {host: record(Status.DEAD_LETTER, f"order-{host}", tenant=host) for host in (ACME, BETA)}
    address = reverse("admin:django_idempotency_act_on_all", args=["try-again"]) + "?status=dead_letter"
    admin(BETA).post(address, {"reason": "the bank is back"})
    assert records.status_of(dead[BETA]) is Status.UNKNOWN
    assert records.status_of(dead[ACME]) is Status.DEAD_LETTER


def test_the_dashboard_counts_all_tenants_so_no_tenant_has_it(admin: Callable[[str], Client], settings: Any) -> None:
    address = reverse("admin:django_idempotency_dashboard")
    page = admin(BETA).get(LIST)
    assert address not in page.content.decode()
    assert admin(BETA).get(address).status_code == 403
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "ADMIN_TENANT": None}
    assert address in admin(BETA).get(LIST).content.decode()
    assert admin(BETA).get(address).status_code == 200


def test_staff_of_the_installation_may_see_all_tenants(admin: Callable[[str], Client], settings: Any) -> None:
    completed("order-17", ACME)
    assert listed(admin("admin.example.com")) == []
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "ADMIN_TENANT": f"{__name__}.tenant_of_staff"}
    assert listed(admin("admin.example.com")) == ["order-17"]
    assert listed(admin(BETA)) == []


def silent(request: HttpRequest) -> Any:
    return ""


def test_where_the_tenant_is_not_known_nothing_is_shown(admin: Callable[[str], Client], settings: Any) -> None:
    found = completed("order-17", ACME)
    settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "TENANT": f"{__name__}.silent"}
    assert [admin(ACME).get(address).status_code for address in (LIST, page_of(found))] == [403, 403]
