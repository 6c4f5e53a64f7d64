"""Registers the admin of the records. See docs/how-to/admin.md.

Its pages are imported when the admin is used, so a worker or a command that shows no page does not load them.
"""

from typing import Any

from django.contrib import admin
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from django_idempotency.models import IdempotencyKey


def _make_when_used(*arguments: Any) -> Any:
    return SimpleLazyObject(
        lambda: import_string("django_idempotency.console.model_admin.IdempotencyKeyAdmin")(*arguments)
    )


admin.site.register(IdempotencyKey, _make_when_used)  # type: ignore[arg-type] # Django calls it, as it would a class
