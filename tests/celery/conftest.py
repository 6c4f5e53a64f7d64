"""The service with leases of one second, as real processes on the database of this run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from django.db import connection
from pytest_django.plugin import DjangoDbBlocker

from tests.kit.celery_processes import Broker, broker
from tests.kit.processes import Site, running_site

QUICK = {f"IDEMPOTENCY_{name}_SECONDS": "1" for name in ("LEASE", "GRACE", "PICK_UP", "EVERY")}


@pytest.fixture(scope="package")
def quick_database(own_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with own_database("life") as url:
        yield url


@pytest.fixture(scope="package")
def quick_site(tmp_path_factory: pytest.TempPathFactory, quick_database: str) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("site"), quick_database, environment=QUICK) as site:
        yield site


@pytest.fixture
def site(quick_site: Site, django_db_blocker: DjangoDbBlocker) -> Iterator[Site]:
    quick_site.reset()
    with django_db_blocker.unblock():
        yield quick_site


@pytest.fixture
def quick(site: Site) -> dict[str, str]:
    """The environment in which a worker, beat and the commands see what the service sees."""
    return {**QUICK, "DATABASE_URL": site.database_url, "GATEWAY_URL": site.gateway.url}


SERVERS = [pytest.param(name, marks=pytest.mark.soak) for name in ("redis", "rabbitmq")]


@pytest.fixture(params=["filesystem", *SERVERS])
def any_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    """A broker knows nothing of the database: each is tried with PostgreSQL, and one with every database."""
    if request.param != "filesystem" and connection.vendor != "postgresql":
        pytest.skip(f"worker and beat are tried on {request.param} together with PostgreSQL")
    with broker(request.param, tmp_path) as used:
        yield used
