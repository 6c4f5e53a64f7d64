"""What the system checks say of some views."""

from typing import Any

from django.core.checks import CheckMessage, run_checks
from django.urls import include, path

LAYER = path("idempotency/", include("django_idempotency.urls"))  # this project has operations, so W030 wants them


def found(settings: Any, *views: Any, silenced: bool = False) -> list[CheckMessage]:
    """What the checks say of these views, each under a URL of its own, below an include."""
    inner = [path(f"{number}/", view) for number, view in enumerate(views)]
    settings.SILENCED_SYSTEM_CHECKS = ["django_idempotency.W031"]  # most views here chose no mode
    settings.ROOT_URLCONF = type("Urls", (), {"urlpatterns": [path("api/", include((inner, "inner"))), LAYER]})
    return said(silenced=silenced)


def said(*, silenced: bool = False) -> list[CheckMessage]:
    """By our checks."""
    ours = [message for message in run_checks() if (message.id or "").startswith("django_idempotency.")]
    return [message for message in ours if message.is_silenced() is silenced]


def ids(messages: list[CheckMessage]) -> list[str]:
    assert all(message.hint for message in messages)
    return [str(message.id).removeprefix("django_idempotency.") for message in messages]
