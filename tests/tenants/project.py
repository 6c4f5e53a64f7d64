"""A project with django-tenants, in a process of its own: python -m tests.tenants.project LAYOUT DATABASE TENANT

LAYOUT is where the records are: `shared` or `tenant`. TENANT is the dotted path for the setting, or nothing. What
happened is printed as JSON.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command

from testproject.databases import from_url

LAYOUT, DATABASE, TENANT = sys.argv[1:]
EVERYWHERE = [f"django.contrib.{name}" for name in ("contenttypes", "auth", "admin", "messages")]
RECORDS = ["django_idempotency"]


def path_to_user(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A middleware that logs the first user of the tenant in."""

    def middleware(request: Any) -> Any:
        from django.contrib.auth.models import User

        request.user = User.objects.get(pk=1)
        return get_response(request)

    return middleware


settings.configure(
    SECRET_KEY="for tests only",
    USE_TZ=True,
    ALLOWED_HOSTS=[".example.com"],
    ROOT_URLCONF="tests.tenants.views",
    DATABASES={
        "default": {**from_url(DATABASE, base=Path.cwd()), "ENGINE": "django_tenants.postgresql_backend"},
    },
    DATABASE_ROUTERS=["django_tenants.routers.TenantSyncRouter"],
    MIDDLEWARE=[
        "django_tenants.middleware.main.TenantMainMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        f"{__name__}.path_to_user",
    ],
    MESSAGE_STORAGE="django.contrib.messages.storage.cookie.CookieStorage",
    STATIC_URL="static/",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    SHARED_APPS=["django_tenants", "tests.tenants.customers", *EVERYWHERE, *(RECORDS if LAYOUT == "shared" else [])],
    TENANT_APPS=[*EVERYWHERE, *(RECORDS if LAYOUT == "tenant" else [])],
    INSTALLED_APPS=["django_tenants", "tests.tenants.customers", *EVERYWHERE, *RECORDS],
    TENANT_MODEL="customers.Customer",
    TENANT_DOMAIN_MODEL="customers.Domain",
    PUBLIC_SCHEMA_NAME="public",
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    IDEMPOTENCY={"ENQUEUE": None, **({"TENANT": TENANT} if TENANT else {})},
)


def make_tenants() -> None:
    from django.contrib.auth.models import User
    from django_tenants.utils import schema_context

    from tests.tenants.customers.models import Customer, Domain

    call_command("migrate_schemas", schema_name="public", run_syncdb=True, verbosity=0)
    for name in ("public", "acme", "beta"):
        customer = Customer(schema_name=name)
        customer.save(verbosity=0)
        Domain.objects.create(domain=f"{name}.example.com", tenant=customer)
        with schema_context(name):
            User.objects.create_superuser(f"first of {name}", password="secret")


def ask(host: str) -> Any:
    from django.db import connection
    from django.test import Client

    key = {"Idempotency-Key": "invoice-0001"}
    answer = Client().post("/pay", b"{}", "application/json", headers=key, HTTP_HOST=f"{host}.example.com")
    connection.set_schema_to_public()  # type: ignore[attr-defined]  # as in the next process
    return [answer.status_code, answer.json()]


def ask_for_outcomes() -> dict[str, Any]:
    """What the user of each tenant, whose ids are equal, gets for the same key and for each tenant's address."""
    from django.db import connection
    from django.test import Client

    from tests.tenants import views

    found = {}
    for host in ("acme", "beta"):
        client = Client(headers={"Host": f"{host}.example.com", "Idempotency-Key": "invoice-0001"})
        addresses = {tenant: f"/idempotency/operations/{record}/" for tenant, record in views.PAID.items()}
        given = {"key": client.get("/idempotency/keys/?path=/pay")}
        given |= {tenant: client.get(address) for tenant, address in addresses.items()}
        found[host] = {
            name: json.loads(each.json()["response"]["body"])["schema"] if each.status_code == 200 else each.status_code
            for name, each in given.items()
        }
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    return found


def look_around() -> dict[str, list[str]]:
    """Whose responses the superuser at each host finds in the admin's list, and on their own pages."""
    from django.db import connection
    from django.test import Client

    from tests.tenants import views

    found = {}
    for host in ("acme", "beta", "public"):
        client = Client(headers={"Host": f"{host}.example.com"})
        page = client.get("/admin/django_idempotency/idempotencykey/").content.decode()
        opened = {
            tenant: client.get(f"/admin/django_idempotency/idempotencykey/{record}/change/").status_code
            for tenant, record in views.PAID.items()
        }
        listed = [tenant for tenant, record in views.PAID.items() if record in page]
        assert listed == [tenant for tenant, status in opened.items() if status == 200], opened
        found[host] = listed
    connection.set_schema_to_public()  # type: ignore[attr-defined]
    return found


def in_schemas(function: Callable[[], Any]) -> dict[str, Any]:
    from django_tenants.utils import schema_context

    found = {}
    for name in ("acme", "beta"):
        with schema_context(name):
            found[name] = function()
    return found


def prove() -> list[Any]:
    """What the doctor does not find to hold in the current schema."""
    from django_idempotency.monitoring.places import list_places
    from django_idempotency.monitoring.proof import prove

    return [dict(each.values) for each in prove("default", list_places("default", []), lambda name: None)]


def lose_leases() -> None:
    from tests.tenants import views

    in_schemas(views.lose_lease)


def main() -> dict[str, Any]:
    django.setup()
    make_tenants()
    from django.core.checks import run_checks

    from django_idempotency import maintenance, tasks
    from tests.tenants import views

    found: dict[str, Any] = {
        "checks": [each.id for each in run_checks() if "E040" in str(each.id) or "W041" in str(each.id)],
        "answers": [ask(host) for host in ("acme", "beta", "acme")],
    }
    if not TENANT:
        return found
    found["outcomes"] = ask_for_outcomes()
    if LAYOUT == "shared":  # where each tenant has a table, the public schema has none
        found["in the admin"] = look_around()
    found |= {
        "once": in_schemas(views.run_once),
        "enqueued": in_schemas(views.enqueue_work),
        "worked": dict(maintenance.work()),
        "message": tasks.run_operation.run(views.enqueue_for("beta"), "beta"),
        "performed": sorted(views.PERFORMED),
    }
    jobs: dict[str, Callable[[], Any]] = {
        "swept by the function": lambda: dict(maintenance.sweep()),
        "swept by the command": lambda: call_command("idempotency_sweep", "--json", "--max-runtime", "60"),
        "swept by the task": lambda: vars(tasks)["sweep_zombies"].run(),
    }
    for name, sweep in jobs.items():
        lose_leases()
        found[name] = [sweep(), in_schemas(views.count_unknown)]
    for job in ("reconcile", "resume", "reap"):
        found[job] = dict(getattr(maintenance, job)())
    found["asked"] = sorted(views.ASKED)
    found["held"] = in_schemas(views.outlive_lease)
    found["proved"] = in_schemas(prove)
    return found


if __name__ == "__main__":
    sys.stdout.write(f"RESULT {json.dumps(main())}\n")
