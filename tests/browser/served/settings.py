"""The payments service with an exporter, as it is in production: the alerts look at what it says."""

from testproject.settings import *  # noqa: F403

INSTALLED_APPS = [*INSTALLED_APPS, "django_idempotency.contrib.prometheus.PrometheusConfig"]  # noqa: F405
ROOT_URLCONF = "tests.browser.served.urls"
