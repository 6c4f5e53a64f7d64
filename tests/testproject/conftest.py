"""The service as real processes on the database of this run, and inside this process."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.test import Client
from pytest_django.plugin import DjangoDbBlocker

from tests.kit.processes import Site


@pytest.fixture(scope="session")
def running(request: pytest.FixtureRequest) -> Site:
    """Behind gunicorn, unless the test says otherwise."""
    site: Site = request.getfixturevalue(f"{getattr(request, 'param', 'gunicorn')}_site")
    return site


@pytest.fixture
def site(running: Site, django_db_blocker: DjangoDbBlocker) -> Iterator[Site]:
    """The running service, its gateway without charges and without tricks."""
    running.reset()
    with django_db_blocker.unblock():
        yield running


@pytest.fixture
def alice(db: None) -> Client:
    """With a token and a key of her own, inside this process."""
    call_command("seed", verbosity=0)
    return Client(headers={"Authorization": "Token alice-token", "Idempotency-Key": str(uuid4())})
