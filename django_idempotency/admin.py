"""Registers the admin of the records. See docs/how-to/admin.md.

Its pages are imported when the admin is used, so a worker or a command that shows no page does not load them.
"""

from typing import Any

from django.contrib import admin
from django.utils.functional import SimpleLazyObject
from django.utils.module_loading import import_string

from django_idempotency.models import Dashboard, IdempotencyKey


def _make_when_used(path: str) -> Any:
    def make(*arguments: Any) -> Any:
        return SimpleLazyObject(lambda: import_string(f"django_idempotency.console.{path}")(*arguments))

    return make  # Django calls it, as it would a class


admin.site.register(IdempotencyKey, _make_when_used("model_admin.IdempotencyKeyAdmin"))
admin.site.register(Dashboard, _make_when_used("dashboard.page.DashboardAdmin"))
