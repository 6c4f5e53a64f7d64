"""The environment decides; read by a fresh process, as a server would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from testproject.servers import ROOT

pytestmark = pytest.mark.processes

SCRIPT = """
import json, sys
from django.conf import settings
print(json.dumps({name: getattr(settings, name) for name in sys.argv[1:]}, default=str))
"""


def settings_with(*names: str, **environment: str) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "IDEMPOTENCY_"))}
    variables = {**clean, "DJANGO_SETTINGS_MODULE": "testproject.settings", **environment}
    command = [sys.executable, "-c", SCRIPT, *names]
    finished = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, check=True)
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def test_defaults_protect_and_need_no_server() -> None:
    found = settings_with("DEBUG", "PRODUCTION", "IDEMPOTENCY", "GATEWAY_URL", "CELERY_BROKER_URL", "DATABASES")
    databases = found.pop("DATABASES")
    assert databases["default"]["ATOMIC_REQUESTS"] is False
    assert found == {
        "DEBUG": False,
        "PRODUCTION": False,
        "IDEMPOTENCY": {},
        "GATEWAY_URL": "",
        "CELERY_BROKER_URL": "filesystem://",
    }


def test_the_environment_changes_them() -> None:
    found = settings_with(
        *("DEBUG", "IDEMPOTENCY", "GATEWAY_URL", "CELERY_BROKER_URL", "CELERY_BROKER_TRANSPORT_OPTIONS", "DATABASES"),
        DJANGO_DEBUG="1",
        DJANGO_ATOMIC_REQUESTS="true",
        IDEMPOTENCY_LEASE_SECONDS="3",
        IDEMPOTENCY_GRACE_SECONDS="4.5",
        IDEMPOTENCY_RETENTION_SECONDS="5",
        GATEWAY_URL="http://127.0.0.1:9000",
        CELERY_BROKER_URL="redis://127.0.0.1/0",
    )
    databases = found.pop("DATABASES")
    assert databases["default"]["ATOMIC_REQUESTS"] is True
    assert found == {
        "DEBUG": True,
        "IDEMPOTENCY": {"LEASE": 3, "GRACE": 4.5, "RETENTION": 5},
        "GATEWAY_URL": "http://127.0.0.1:9000",
        "CELERY_BROKER_URL": "redis://127.0.0.1/0",
        "CELERY_BROKER_TRANSPORT_OPTIONS": {},
    }
