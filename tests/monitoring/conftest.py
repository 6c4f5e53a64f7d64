"""Servers of PostgreSQL that replicate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.kit.databases import default_database
from tests.kit.replication import PostgreSQL, primary_and_standby


@pytest.fixture(scope="session")
def replicated(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[tuple[PostgreSQL, PostgreSQL]]:
    servers = primary_and_standby()
    with django_db_blocker.unblock():
        both = servers.__enter__()
    yield both
    servers.__exit__(None, None, None)


@pytest.fixture
def primary(request: pytest.FixtureRequest, vendor: str, transactional_db: None) -> Iterator[PostgreSQL]:
    """The records are here."""
    if vendor != "postgresql":
        pytest.skip("PostgreSQL's replication")
    servers = request.getfixturevalue("replicated")
    with default_database(**servers[0].settings()):
        yield servers[0]


@pytest.fixture
def standby(primary: PostgreSQL, request: pytest.FixtureRequest) -> PostgreSQL:
    both: tuple[PostgreSQL, PostgreSQL] = request.getfixturevalue("replicated")
    return both[1]
