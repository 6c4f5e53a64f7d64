"""The app with the table for calls to other services: `django_idempotency.contrib.outbox` in `INSTALLED_APPS`."""

from django.apps import AppConfig


class OutboxConfig(AppConfig):
    name = "django_idempotency.contrib.outbox"
    label = "idempotency_outbox"
    verbose_name = "idempotency: calls to other services"
    default_auto_field = "django.db.models.BigAutoField"
