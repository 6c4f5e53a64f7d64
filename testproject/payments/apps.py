"""The Django application."""

from importlib import import_module

from django.apps import AppConfig


class PaymentsConfig(AppConfig):
    name = "testproject.payments"
    label = "payments"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Tasks that the service sends go to this project's broker."""
        import_module("testproject.celery")
