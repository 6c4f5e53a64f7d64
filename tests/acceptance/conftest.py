"""The payments service and a few endpoints more, behind gunicorn, with ATOMIC_REQUESTS off and on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from socket import create_connection
from urllib.parse import SplitResult, urlsplit, urlunsplit

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.kit.cable import Cable, laid
from tests.kit.journal import Journal
from tests.kit.processes import Site, running_site
from tests.kit.proxy import Proxy, proxied

ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "tests.acceptance.served.settings",
    "DATABASE_CONN_MAX_AGE": "0",  # 64 threads of two servers would keep more connections than PostgreSQL allows
    "GATEWAY_TIMEOUT_SECONDS": "60",
}


@pytest.fixture(scope="session")
def off(tmp_path_factory: pytest.TempPathFactory, http_database: str) -> Iterator[Site]:
    with served(tmp_path_factory.mktemp("off"), http_database) as site:
        yield site


@pytest.fixture(scope="session")
def on(tmp_path_factory: pytest.TempPathFactory, http_database: str) -> Iterator[Site]:
    with served(tmp_path_factory.mktemp("on"), http_database, DJANGO_ATOMIC_REQUESTS="1") as site:
        yield site


@contextmanager
def served(folder: Path, database: str, **more: str) -> Iterator[Site]:
    """Few workers, so that those which are killed are soon replaced, and many threads."""
    with running_site(folder, database, workers=2, threads=32, environment={**ENVIRONMENT, **more}) as site:
        yield site


@pytest.fixture(params=["off", pytest.param("on", marks=pytest.mark.soak)])
def site(request: pytest.FixtureRequest, django_db_blocker: DjangoDbBlocker) -> Iterator[Site]:
    """ATOMIC_REQUESTS off and, in the long run, on."""
    with ready(request.getfixturevalue(request.param), django_db_blocker) as site:
        yield site


@pytest.fixture
def asgi(uvicorn_site: Site, django_db_blocker: DjangoDbBlocker) -> Iterator[Site]:
    with ready(uvicorn_site, django_db_blocker) as site:
        yield site


@contextmanager
def ready(site: Site, blocker: DjangoDbBlocker) -> Iterator[Site]:
    site.reset()
    with blocker.unblock():
        yield site


@pytest.fixture
def journal(site: Site) -> Journal:
    return Journal(site.service.log.parent)


@dataclass(frozen=True)
class Wired:
    """A service whose database is at the far end of a cable; on PostgreSQL with a thief in between."""

    site: Site
    cable: Cable
    thief: Proxy | None


@pytest.fixture(scope="session")
def wired_site(tmp_path_factory: pytest.TempPathFactory, http_database: str) -> Iterator[Wired]:
    parts = urlsplit(http_database)
    if parts.scheme == "sqlite":
        pytest.skip("SQLite is a file: there is no line to it that could be cut")
    postgresql = parts.scheme.startswith("postgres")
    with ExitStack() as stack:
        end = parts.hostname or "127.0.0.1", parts.port or (5432 if postgresql else 3306)
        thief = stack.enter_context(proxied(*end)) if postgresql else None
        cable = stack.enter_context(laid(partial(create_connection, ("127.0.0.1", thief.port) if thief else end)))
        folder = tmp_path_factory.mktemp("wired")
        site = stack.enter_context(served(folder, through(parts, cable.port), DATABASE_CONN_MAX_AGE="60"))
        yield Wired(replace(site, database_url=http_database), cable, thief)


def through(parts: SplitResult, port: int) -> str:
    user = parts.netloc.rpartition("@")[0]
    plain = "sslmode=disable&gssencmode=disable" if parts.scheme.startswith("postgres") else ""
    query = "&".join(filter(None, (parts.query, plain)))
    return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}", query=query))


@pytest.fixture
def wired(wired_site: Wired, django_db_blocker: DjangoDbBlocker) -> Iterator[Wired]:
    wired_site.cable.repair()
    with ready(wired_site.site, django_db_blocker):
        yield wired_site
    wired_site.cable.repair()
