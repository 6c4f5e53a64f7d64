"""The service as real processes on the database of this run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.kit.processes import Site


@pytest.fixture(scope="session", params=["gunicorn", "uvicorn"])
def running(request: pytest.FixtureRequest) -> Site:
    """gunicorn, then uvicorn."""
    site: Site = request.getfixturevalue(f"{request.param}_site")
    return site


@pytest.fixture
def site(running: Site, django_db_blocker: DjangoDbBlocker) -> Iterator[Site]:
    """The running service, its gateway without charges and without tricks."""
    running.reset()
    with django_db_blocker.unblock():
        yield running
