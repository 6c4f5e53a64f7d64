"""Shared by every test. The database is the one that DATABASE_URL names; SQLite when it names none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.contenttypes.management import create_contenttypes
from django.db import connection
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from pytest_django.plugin import DjangoDbBlocker

from django_idempotency.monitoring.outcomes import COUNTERS
from tests.kit import sent
from tests.kit.processes import Site, database_beside, running_site
from tests.kit.proxy import Proxy, alias_through_proxy
from tests.kit.registrations import temporary_registrations

FOLDERS_OF_PROCESSES = {"acceptance", "browser", "celery", "clients"}
FIXTURES_OF_PROCESSES = {"own_database", "running"}  # the database of servers; the servers of testproject
KEPT = {"django_content_type", "auth_permission"}  # what migrating puts there
connection_created.connect(sent.watch)
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the real ones are slow on purpose


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """On further databases, do not import the modules without a test for them: that takes longer than many tests."""
    only_vendor = config.getoption("markexpr").startswith("vendor and ")
    is_module = collection_path.match("test_*.py")
    return (only_vendor and is_module and "mark.vendor" not in collection_path.read_text()) or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what starts processes by its folder and by its fixtures; other modules say it themselves."""
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder in FOLDERS_OF_PROCESSES or FIXTURES_OF_PROCESSES.intersection(getattr(item, "fixturenames", ())):
        item.add_marker("processes")


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> None:
    """After a test with real transactions its rows are deleted.

    Django would truncate every table, make the content types and permissions anew, and take many times as long.
    """

    def deletions(style: Any, tables: Iterable[str], **_options: Any) -> list[str]:
        emptied = [f"DELETE FROM {connection.ops.quote_name(table)}" for table in tables if table not in KEPT]
        if connection.vendor == "mysql":  # it asks after each statement whether every foreign key leads somewhere
            return ["SET FOREIGN_KEY_CHECKS = 0", *emptied, "SET FOREIGN_KEY_CHECKS = 1"]
        return emptied

    connection.ops.sql_flush = deletions  # type: ignore[method-assign]
    post_migrate.disconnect(create_contenttypes)
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")


@pytest.fixture(autouse=True)
def _counts_end_with_their_test() -> Iterator[None]:
    """Else a later test, or the end of the run, would write them."""
    yield
    if COUNTERS._timer is not None:
        COUNTERS._timer.cancel()
    COUNTERS.reset()


@pytest.fixture(autouse=True)
def _every_engine_takes_what_the_package_sent(django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """PostgreSQL takes it: the test has shown that."""
    yield
    if sent.has_fresh():
        with django_db_blocker.unblock():
            assert sent.take_refused() == {}


@pytest.fixture
def registrations(settings: Any) -> Iterator[None]:
    """Undo at the end what the test registers. The URLs come first: what they register has to stay."""
    import_module(settings.ROOT_URLCONF)
    with temporary_registrations():
        yield


@pytest.fixture
def vendor() -> str:
    """Which database this run is about."""
    return connection.vendor


@pytest.fixture
def proxy(vendor: str) -> Iterator[Proxy]:
    """Between this test and its database, under an alias of its own."""
    if vendor != "postgresql":
        pytest.skip("the proxy speaks PostgreSQL's protocol")
    with alias_through_proxy() as between:
        yield between


@pytest.fixture(scope="session")
def own_database(
    tmp_path_factory: pytest.TempPathFactory, django_db_blocker: DjangoDbBlocker
) -> Callable[[str], AbstractContextManager[str]]:
    """Makes a database for server processes, beside the one of this process."""

    @contextmanager
    def made(name: str) -> Iterator[str]:
        context = database_beside(settings.DATABASE_URL, name, tmp_path_factory.mktemp("database"))
        with django_db_blocker.unblock():
            url = context.__enter__()
        yield url
        with django_db_blocker.unblock():
            context.__exit__(None, None, None)

    return made


@pytest.fixture(scope="session")
def http_database(own_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with own_database("http") as url:
        yield url


@pytest.fixture(scope="session")
def uvicorn_site(tmp_path_factory: pytest.TempPathFactory, http_database: str) -> Iterator[Site]:
    with running_site(tmp_path_factory.mktemp("uvicorn"), http_database, kind="uvicorn") as site:
        yield site


@pytest.fixture(scope="session")
def gunicorn_site(tmp_path_factory: pytest.TempPathFactory, http_database: str) -> Iterator[Site]:
    """4 workers of 16 threads."""
    with running_site(tmp_path_factory.mktemp("gunicorn"), http_database) as site:
        yield site
