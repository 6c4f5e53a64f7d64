"""The Django application."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class IdempotencyConfig(AppConfig):
    name = "django_idempotency"
    label = "django_idempotency"
    verbose_name = _("Idempotency")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        # These register themselves.
        from django_idempotency.checks import (  # noqa: F401
            cache,
            deferred,
            endpoints,
            middleware,
            operations,
            project,
            tenants,
        )
        from django_idempotency.monitoring import outcomes

        outcomes.install()
        autodiscover_modules("operations", "reconcilers")  # so that a worker that never imports a view knows them
