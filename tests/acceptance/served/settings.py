"""The payments service with a few endpoints more."""

from testproject.settings import *  # noqa: F403

ROOT_URLCONF = "tests.acceptance.served.urls"
