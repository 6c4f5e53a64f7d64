"""What the checks say of the cache in front of completed responses."""

from typing import Any

import pytest

from django_idempotency.checks.cache import check_cache
from tests.checks.messages import ids, said

BACKENDS = "django.core.cache.backends"
URL = "redis://127.0.0.1:6379/5"


def configure(settings: Any, backend: str, **more: Any) -> None:
    settings.CACHES = {"default": settings.CACHES["default"], "replays": {"BACKEND": backend, **more}}
    settings.IDEMPOTENCY = {"CACHE_ALIAS": "replays"}


def test_no_cache_is_fine(settings: Any) -> None:
    settings.IDEMPOTENCY = {}
    assert check_cache(None) == []


def test_e050_an_alias_that_does_not_exist(settings: Any) -> None:
    settings.IDEMPOTENCY = {"CACHE_ALIAS": "replays"}
    assert ids(said()) == ["E050"]


@pytest.mark.parametrize("backend", ["locmem.LocMemCache", "dummy.DummyCache", "db.DatabaseCache"])
def test_w051_a_cache_that_cannot_help(settings: Any, backend: str) -> None:
    configure(settings, f"{BACKENDS}.{backend}", LOCATION="replays")
    assert ids(said()) == ["W051"]


def test_w052_redis_without_a_time_limit(settings: Any) -> None:
    configure(settings, f"{BACKENDS}.redis.RedisCache", LOCATION=URL)
    assert ids(said()) == ["W052"]


@pytest.mark.parametrize(
    ("backend", "more"),
    [
        (f"{BACKENDS}.redis.RedisCache", {"LOCATION": URL, "OPTIONS": {"socket_timeout": 0.1}}),
        (f"{BACKENDS}.redis.RedisCache", {"LOCATION": [f"{URL}?socket_timeout=0.1"]}),
        (f"{BACKENDS}.filebased.FileBasedCache", {"LOCATION": "/var/cache/replays"}),
        ("tests.kit.caches.Chaos", {}),
    ],
)
def test_a_shared_cache_is_fine(settings: Any, backend: str, more: dict[str, Any]) -> None:
    configure(settings, backend, **more)
    assert said() == []


@pytest.mark.parametrize("given", [{"CACHE_ALIAS": 5}, ["CACHE_ALIAS"]])
def test_a_wrong_setting_is_reported_once(settings: Any, given: Any) -> None:
    settings.IDEMPOTENCY = given
    assert set(ids(said())) <= {"E001", "E003"}
    assert check_cache(None) == []
