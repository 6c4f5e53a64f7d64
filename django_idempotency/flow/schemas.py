"""The schemas of django-tenants, where each tenant has tables of its own. The only module that imports it."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import wraps
from time import monotonic
from typing import Any, Final, TypeVar, cast

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_idempotency.conf import is_in, tenant_model
from django_idempotency.models import IdempotencyKey
from django_idempotency.signals import logger
from django_idempotency.store.records import alias

J = TypeVar("J", bound=Callable[..., Counter[str]])  # takes `maintenance.Bounds` or nothing

_APP: Final = "django_idempotency"


def current_schema(using: str | None = None) -> str:
    """Return the schema that django-tenants has chosen for this connection; empty without django-tenants."""
    return getattr(connections[using or alias()], "schema_name", None) or ""


def enter_schema(name: str) -> AbstractContextManager[Any]:
    """Return a context in which the records of this schema are read and written; an empty name changes nothing."""
    if not name:
        return nullcontext()
    from django_tenants.utils import schema_context

    context: AbstractContextManager[Any] = schema_context(name)
    return context


def enter_schema_of(row: IdempotencyKey) -> AbstractContextManager[Any]:
    """Return a context in which this record's work runs: its tenant's schema, in which its request ran.

    Where the table is shared, the tenant is known from the record alone; it may be no schema, but the project's name.
    """
    if tenant_model() is None or has_schemas() or row.tenant in ("", current_schema(row.ref.using)):
        return nullcontext()
    from django_tenants.utils import get_tenant_model

    tenants = get_tenant_model()._default_manager.using(row.ref.using)
    return enter_schema(row.tenant if tenants.filter(schema_name=row.tenant).exists() else "")


def copy_connection(connection: BaseDatabaseWrapper, using: str | None = None) -> BaseDatabaseWrapper:
    """Return a connection with the same settings, which reads and writes the same schema."""
    copied: Any = connection.copy(using)
    if hasattr(copied, "set_tenant"):
        copied.set_tenant(cast("Any", connection).tenant)
    return cast("BaseDatabaseWrapper", copied)


def has_schemas() -> bool:
    """True if each tenant has a table of records of its own."""
    return tenant_model() is not None and is_in("TENANT_APPS", _APP)


def is_in_public_schema() -> bool:
    """True if this code works for the whole installation of django-tenants, and for no tenant."""
    return tenant_model() is not None and _is_public(current_schema())


def in_every_schema(job: J) -> J:
    """Make a maintenance job run for every tenant when it is called in the public schema.

    A schema in which it fails is logged and counted, and the others have their turn. `max_runtime` is for all of them.
    """

    @wraps(job)
    def run(bounds: Any = None) -> Counter[str]:
        using = alias() if bounds is None else bounds.using
        if not has_schemas() or not _is_public(current_schema(using)):
            return job(bounds)
        counts, began = Counter[str](), monotonic()
        for name in _find_schemas(using):
            given = bounds
            if bounds is not None and bounds.max_runtime is not None:
                given = replace(bounds, max_runtime=bounds.max_runtime - (monotonic() - began))
                if given.max_runtime <= 0:
                    break
            if bounds is not None and bounds.stopped():
                break
            try:
                with enter_schema(name):
                    counts += job(given)
            except Exception:  # noqa: BLE001 - whatever it is, the other tenants must have their turn
                logger.exception("%s failed in the schema %r; its next run tries again.", job.__name__, name)
                counts["failed"] += 1
        return counts

    return cast("J", run)


def _is_public(schema: str) -> bool:
    from django_tenants.utils import get_public_schema_name

    return bool(schema == get_public_schema_name())


def _find_schemas(using: str) -> Iterator[str]:
    from django_tenants.utils import get_public_schema_name, get_tenant_model

    public = get_public_schema_name()
    if is_in("SHARED_APPS", _APP):
        yield public
    tenants = get_tenant_model()._default_manager.using(using).exclude(schema_name=public)
    yield from list(tenants.order_by("schema_name").values_list("schema_name", flat=True))
