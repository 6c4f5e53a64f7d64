"""Whose records an admin shows: those of the tenant that its request belongs to."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest

from django_idempotency.conf import conf
from django_idempotency.core.keys import fit_name
from django_idempotency.core.validation import discard_awaitable
from django_idempotency.flow.schemas import is_in_public_schema
from django_idempotency.signals import logger


def find_tenant(request: HttpRequest) -> str | None:
    """Return the tenant whose records may be shown; None if all may be. PermissionDenied if that is not known.

    The admin of django-tenants' public schema belongs to the installation, as the jobs that run there do.
    """
    given = conf.is_given("ADMIN_TENANT")
    function = conf.ADMIN_TENANT if given else conf.TENANT
    if function is None or (not given and is_in_public_schema()):
        return None
    tenant: Any = function(request)
    discard_awaitable(tenant)
    if given and tenant is None:
        return None
    if not isinstance(tenant, str) or not tenant:
        logger.error("The admin shows no records: the function of ADMIN_TENANT or TENANT returned %r.", tenant)
        raise PermissionDenied
    return fit_name(tenant)
