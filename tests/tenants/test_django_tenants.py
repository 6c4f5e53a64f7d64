"""A project with the real django-tenants on PostgreSQL, with the records in the public schema and in every tenant's."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from psycopg import sql

from testproject.servers import ROOT

TENANT = "django_idempotency.tenants.schema_tenant"
pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="django-tenants needs PostgreSQL"),
    pytest.mark.skipif(
        find_spec("django_tenants") is None,
        reason="django-tenants is not installed: the project with tenants was NOT tried",
    ),
    pytest.mark.vendor,
]


@pytest.fixture(params=["shared", "tenant"])
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(layout: str) -> Iterator[str]:
    parts = urlsplit(settings.DATABASE_URL)
    name = sql.Identifier(f"{parts.path[1:]}_tenants_{layout}")
    with psycopg.connect(settings.DATABASE_URL, dbname="postgres", autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
        server.execute(sql.SQL("CREATE DATABASE {}").format(name))
        yield urlunsplit(parts._replace(path=f"{parts.path}_tenants_{layout}"))
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def run_project(layout: str, database: str, tenant: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.tenants.project", layout, database, tenant]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    result = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert result, done.stderr
    found: dict[str, Any] = json.loads(result[0].removeprefix("RESULT "))
    return found


def test_tenants_share_nothing_and_the_jobs_reach_each_of_them(layout: str, database: str) -> None:
    found = run_project(layout, database, TENANT)
    acme, beta = {"schema": "acme", "run": 1}, {"schema": "beta", "run": 2}
    assert found["checks"] == []
    assert found["answers"] == [[201, acme], [201, beta], [201, acme]]
    assert found["once"] == {"acme": "acme", "beta": "beta"}
    assert len(set(found["enqueued"].values())) == 2
    assert found["worked"] == {"landed": 2}
    assert found["message"] == "landed"
    assert found["performed"] == ["acme in acme", "beta in beta", "beta in beta"]

    assert found["outcomes"] == {
        "acme": {"key": "acme", "acme": "acme", "beta": 404},
        "beta": {"key": "beta", "acme": 404, "beta": "beta"},
    }
    if layout == "shared":
        both = ["acme", "beta"]
        assert found["in the admin"] == {"acme": ["acme"], "beta": ["beta"], "public": both}
    shared = layout == "shared"  # there each count is that of the one table
    for runs, how in enumerate(["function", "command", "task"], start=1):
        swept, unknown = found[f"swept by the {how}"]
        if how != "command":  # it prints what the others return
            assert swept == {"unknown": 2}
        assert unknown == dict.fromkeys(("acme", "beta"), runs * (2 if shared else 1))
    assert (
        found["reconcile"].get("failed", 0) == found["resume"].get("failed", 0) == found["reap"].get("failed", 0) == 0
    )
    assert found["asked"] == [*["acme"] * 3, *["beta"] * 3], "where the reconcilers ran"
    assert found["held"] == {"acme": True, "beta": True}, "by the heartbeat"
    assert found["proved"] == {"acme": [], "beta": []}


def test_without_the_setting_the_check_is_an_error(layout: str, database: str) -> None:
    found = run_project(layout, database, "")
    assert found["checks"] == ["django_idempotency.E040"]
    first, second = found["answers"][:2]
    assert (first == second) is (layout == "shared"), "what the check is about: beta's user gets acme's response"
