"""System checks of the CORS headers that pages of other origins need."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.apps import apps
from django.apps.config import AppConfig
from django.core.checks import CheckMessage, Warning

from django_idempotency.conf import cors_headers, default_policy
from django_idempotency.core.profiles import Profile

_READ: Final = ("Retry-After", "Location", "Link")


def check_cors(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """W060, W061: the settings of django-cors-headers, where it is installed."""
    if not apps.is_installed("corsheaders"):
        return []
    try:
        return list(_unreachable(default_policy().profile))
    except (TypeError, ValueError):  # checks E001-E004 report it
        return []


def _unreachable(profile: Profile) -> Iterator[CheckMessage]:
    if missing := _missing("CORS_ALLOW_HEADERS", profile.header):
        yield Warning(
            f"CORS_ALLOW_HEADERS does not allow {missing}: browsers refuse to send a key to this origin from another.",
            hint=f'Set CORS_ALLOW_HEADERS = [*corsheaders.defaults.default_headers, "{profile.header.lower()}"].',
            id="django_idempotency.W060",
        )
    if missing := _missing("CORS_EXPOSE_HEADERS", profile.replayed_header, *_READ):
        yield Warning(
            f"CORS_EXPOSE_HEADERS does not name {missing}: pages of other origins cannot read them, so their retries "
            "ignore how long to wait.",
            hint=f"Add {missing} to CORS_EXPOSE_HEADERS.",
            id="django_idempotency.W061",
        )


def _missing(setting: str, *names: str) -> str:
    given = {name.lower() for name in cors_headers(setting)}
    return "" if "*" in given else ", ".join(name for name in names if name.lower() not in given)
