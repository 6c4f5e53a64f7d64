"""The payments service with a few endpoints more."""

import os

from testproject.settings import *  # noqa: F403

ROOT_URLCONF = "tests.acceptance.served.urls"
if "ON_DISCONNECT" in os.environ:
    IDEMPOTENCY |= {"ON_DISCONNECT": os.environ["ON_DISCONNECT"]}  # type: ignore[dict-item] # noqa: F405
