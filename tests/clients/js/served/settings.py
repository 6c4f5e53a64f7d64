"""The payments service for clients of other origins, with work that a command performs."""

from testproject.settings import *  # noqa: F403

ALLOWED_HOSTS += ["shop.test"]  # noqa: F405
IDEMPOTENCY |= {"ENQUEUE": None}  # type: ignore[dict-item] # noqa: F405

# What docs/how-to/browser-client.md tells readers to set.
from corsheaders.defaults import default_headers  # noqa: E402

INSTALLED_APPS += ["corsheaders"]  # noqa: F405
MIDDLEWARE.insert(0, "corsheaders.middleware.CorsMiddleware")  # noqa: F405
CORS_ALLOWED_ORIGIN_REGEXES = [r"^http://localhost:\d+$"]
CORS_ALLOW_HEADERS = [*default_headers, "idempotency-key"]
CORS_EXPOSE_HEADERS = ["idempotency-replayed", "retry-after", "location", "link"]
