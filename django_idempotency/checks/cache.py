"""System checks of the cache in front of completed responses."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.apps.config import AppConfig
from django.core.cache import caches
from django.core.checks import CheckMessage, Error, Warning

from django_idempotency.conf import conf

_BACKENDS: Final = "django.core.cache.backends."
_USELESS: Final = {
    "locmem.LocMemCache": "is the memory of one process: a response that an operator expires in another process may be "
    "replayed for five minutes",
    "dummy.DummyCache": "stores nothing",
    "db.DatabaseCache": "asks a database, as the table does",
}
_REDIS: Final = "redis.RedisCache"


def check_cache(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """E050, W051, W052: the cache that CACHE_ALIAS names. It is not asked."""
    try:
        alias = conf.CACHE_ALIAS
    except (TypeError, ValueError):  # checks E001 and E003 report it
        return []
    if alias is None:
        return []
    if alias not in caches.settings:
        return [
            Error(
                f"IDEMPOTENCY['CACHE_ALIAS'] is {alias!r}, which is not an alias in CACHES.",
                hint=f"Use one of: {', '.join(caches.settings)}.",
                id="django_idempotency.E050",
            )
        ]
    return list(_weaknesses(alias, caches.settings[alias]))


def _weaknesses(alias: str, configuration: Mapping[str, Any]) -> Iterator[CheckMessage]:
    backend = configuration.get("BACKEND", "").removeprefix(_BACKENDS)
    if backend in _USELESS:
        yield Warning(
            f"IDEMPOTENCY['CACHE_ALIAS']: the cache {alias!r} {_USELESS[backend]}.",
            hint="Use a cache that all processes share and that answers faster than the database, such as Redis.",
            id="django_idempotency.W051",
        )
    options = [*configuration.get("OPTIONS", {}), configuration.get("LOCATION")]  # a URL may hold some
    if backend == _REDIS and "socket_timeout" not in str(options):
        yield Warning(
            f"IDEMPOTENCY['CACHE_ALIAS']: the cache {alias!r} has no socket_timeout: a Redis that hangs would hold "
            "every protected request.",
            hint='Add "OPTIONS": {"socket_timeout": 0.1, "socket_connect_timeout": 0.1} to this cache.',
            id="django_idempotency.W052",
        )
