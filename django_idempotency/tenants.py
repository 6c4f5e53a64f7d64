"""Ready-made functions for the setting `TENANT`, which returns the tenant that a request belongs to::

    IDEMPOTENCY = {"TENANT": "django_idempotency.tenants.schema_tenant"}

You can also write a function of the request that returns a text.
"""

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.http.request import split_domain_port

__all__ = ["host_tenant", "schema_tenant"]


def schema_tenant(request: HttpRequest | None = None) -> str:
    """Return the schema that django-tenants has chosen. It is known outside HTTP too, for `once` and `enqueue`."""
    from django_idempotency.flow.schemas import current_schema  # settings may name this module before apps are loaded

    schema = current_schema()
    if not schema:
        raise ImproperlyConfigured("schema_tenant needs a database with django-tenants' engine, and a chosen schema.")
    return schema


def host_tenant(request: HttpRequest) -> str:
    """Return the host that the client requested, in lower case and without its port. It is not known outside HTTP."""
    return split_domain_port(request.get_host())[0]
