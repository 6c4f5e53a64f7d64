"""The same, and Redis soon gives back what a killed worker had taken."""

from tests.celery.served.settings import *  # noqa: F403

if CELERY_BROKER_URL.startswith("redis:"):  # noqa: F405
    CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 0.5}  # less than a worker takes to start
