"""One view of each framework, and the middleware for those that nothing else protects."""

from testproject.settings import *  # noqa: F403

ROOT_URLCONF = "tests.acceptance.served.frameworks_urls"
MIDDLEWARE = [*MIDDLEWARE, "django_idempotency.middleware.IdempotencyMiddleware"]  # noqa: F405
