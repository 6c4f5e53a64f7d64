"""What a fresh process finds where the environment says nothing."""

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


def default_settings(*names: str) -> dict[str, Any]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "IDEMPOTENCY_"))}
    variables = {**clean, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    command = [sys.executable, "-c", SCRIPT, *names]
    finished = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, check=True)
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def test_defaults_protect_and_need_no_server() -> None:
    found = default_settings("DEBUG", "PRODUCTION", "IDEMPOTENCY", "GATEWAY_URL", "CELERY_BROKER_URL", "DATABASES")
    databases = found.pop("DATABASES")
    assert databases["default"]["ATOMIC_REQUESTS"] is False
    assert found == {
        "DEBUG": False,
        "PRODUCTION": False,
        "IDEMPOTENCY": {},
        "GATEWAY_URL": "",
        "CELERY_BROKER_URL": "filesystem://",
    }


@pytest.mark.soak
def test_maintenance_jobs_have_a_queue_of_their_own_and_a_plain_worker_reads_it() -> None:
    found = default_settings("CELERY_TASK_ROUTES", "CELERY_TASK_DEFAULT_QUEUE", "CELERY_BEAT_SCHEDULE")
    queues = {route["queue"] for route in found["CELERY_TASK_ROUTES"].values()}
    assert found["CELERY_TASK_ROUTES"].keys() == {each["task"] for each in found["CELERY_BEAT_SCHEDULE"].values()}
    assert found["CELERY_TASK_DEFAULT_QUEUE"] not in queues
    script = "from testproject.celery import app; print(*app.amqp.queues)"
    variables = {**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings"}
    read = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=variables, capture_output=True, check=True)
    assert queues < set(read.stdout.decode().split())
