"""The Django application. Most of the package is imported by those who use it: URLs, workers, commands, the admin."""

from collections.abc import Mapping
from importlib import import_module
from itertools import product
from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.signals import setting_changed
from django.utils.module_loading import module_has_submodule
from django.utils.translation import gettext_lazy as _


class IdempotencyConfig(AppConfig):
    name = "django_idempotency"
    label = "django_idempotency"
    verbose_name = _("Idempotency")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_idempotency.checks import registry  # noqa: F401 - registers them

        setting_changed.connect(_count_outcomes, dispatch_uid=__name__)
        _count_outcomes(setting="IDEMPOTENCY")
        self._import_operations()

    def _import_operations(self) -> None:
        """Import the operations and reconcilers of the project, so that a worker knows them without its views."""
        others = (app for app in apps.get_app_configs() if app is not self)
        for app, name in product(others, ("operations", "reconcilers")):
            if module_has_submodule(app.module, name):
                import_module(f"{app.name}.{name}")


def _count_outcomes(*, setting: str, **kwargs: Any) -> None:
    """Import the counters if the project counts. `conf` would import the policies to say so."""
    given = getattr(settings, "IDEMPOTENCY", None)
    if setting == "IDEMPOTENCY" and isinstance(given, Mapping) and "COUNT_OUTCOMES" in given:
        from django_idempotency.monitoring import outcomes

        outcomes.install()
