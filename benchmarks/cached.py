"""The WSGI application of `benchmarks.cache`: that of `benchmarks.views`, with a Redis in front of its responses."""

import os

from django.conf import settings

from benchmarks.serving import application

OPTIONS = {"socket_timeout": 0.5, "socket_connect_timeout": 0.5}
REDIS = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": os.environ["CACHE_URL"]}
settings.CACHES = {**settings.CACHES, "replays": {**REDIS, "OPTIONS": OPTIONS}}
settings.IDEMPOTENCY = {**settings.IDEMPOTENCY, "CACHE_ALIAS": "replays"}

__all__ = ["application"]
