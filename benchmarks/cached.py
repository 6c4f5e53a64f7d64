"""The WSGI application of `benchmarks.cache`: that of `benchmarks.views`, with a cache if CACHE_URL names one."""

import os

from django.conf import settings

from benchmarks.serving import application

__all__ = ["application"]

REDIS = "django.core.cache.backends.redis.RedisCache"
OPTIONS = {"socket_timeout": 5, "socket_connect_timeout": 5}
settings.IDEMPOTENCY = {"CLAIM_LIMIT": 30}  # other load on the machine must not end a round
if url := os.environ.get("CACHE_URL"):
    settings.CACHES = {**settings.CACHES, "replays": {"BACKEND": REDIS, "LOCATION": url, "OPTIONS": OPTIONS}}
    settings.IDEMPOTENCY |= {"CACHE_ALIAS": "replays"}
