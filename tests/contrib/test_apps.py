"""The apps of `contrib` are loaded as a project loads them: by their names, before there are models."""

from __future__ import annotations

import subprocess
import sys

import pytest

SETUP = """
import django
from django.conf import settings

settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django_idempotency", {app!r}], ROOT_URLCONF=__name__)
urlpatterns = []
django.setup()
{after}
"""
EXPORT = "import prometheus_client; print(prometheus_client.generate_latest().decode())"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("app", "after", "said"),
    [
        ("prometheus.PrometheusConfig", EXPORT, "api_idempotency_handler_duration_seconds"),
        ("opentelemetry.OpenTelemetryConfig", "print('ready')", "ready"),
    ],
)
def test_a_project_can_install_it(app: str, after: str, said: str) -> None:
    program = SETUP.format(app=f"django_idempotency.contrib.{app}", after=after)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stderr
    assert said in found.stdout
