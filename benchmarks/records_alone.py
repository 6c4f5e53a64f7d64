"""Settings of a project whose rows do not point at records, so that the reaper deletes in plain batches."""

from testproject.settings import *  # noqa: F403 - Django's way to vary settings

INSTALLED_APPS = ["django_idempotency"]
MIDDLEWARE = []
ROOT_URLCONF = "django_idempotency.urls"
