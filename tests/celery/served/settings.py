"""The payments service, and reports that stop at a gate until a test opens it."""

from testproject.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "tests.celery.served.apps.Served"]  # noqa: F405
ROOT_URLCONF = "tests.celery.served.urls"
