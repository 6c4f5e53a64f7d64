"""The fixtures, in a pytest of a project's own that has opted in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = """
SECRET_KEY = "tests"
ROOT_URLCONF = "test_it"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "django_idempotency"]
MIDDLEWARE = ["django.contrib.messages.middleware.MessageMiddleware"][:0]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "OPTIONS": {"transaction_mode": "IMMEDIATE"}}}
"""
TESTS = """
import pytest
from django.http import JsonResponse
from django.urls import path
from django_idempotency.decorators import idempotent
from django_idempotency.testing import assert_replayed

@idempotent(operation="own", share_anonymous=True)
def view(request):
    return JsonResponse({}, status=201)

urlpatterns = [path("it", view)]

@pytest.mark.django_db
@pytest.mark.parametrize("name", ["idempotent_client", "idempotent_api_client"])
def test_clients(name, request):
    client = request.getfixturevalue(name)
    assert client.post("/it").status_code == 201
    assert_replayed(client.repeat())

@pytest.mark.django_db
def test_a_client_without_keys(client):
    assert client.post("/it").status_code == 400

@pytest.mark.django_db
@pytest.mark.usefixtures("idempotency_keys")
def test_keys_for_every_client(client):
    assert client.post("/it").status_code == 201

def test_others(fake_provider, async_idempotent_client):
    assert fake_provider.ledger == []
    assert async_idempotent_client.with_key("a")
"""
OPTED_IN = 'pytest_plugins = ["django_idempotency.testing.plugin"]\n'


@pytest.mark.processes
@pytest.mark.parametrize(
    ("conftest", "arguments"),
    [
        pytest.param(OPTED_IN, [], id="conftest"),
        pytest.param("", ["-p", "django_idempotency.testing.plugin"], id="option", marks=pytest.mark.soak),
    ],
)
def test_a_project_opts_in(tmp_path: Path, conftest: str, arguments: list[str]) -> None:
    for name, text in (("settings", SETTINGS), ("test_it", TESTS), ("conftest", conftest)):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\nDJANGO_SETTINGS_MODULE = settings\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "pytest_django.plugin", "--ds=settings", *arguments],
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # the plugins of other packages take long to import
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "5 passed" in ran.stdout, ran.stdout + ran.stderr
