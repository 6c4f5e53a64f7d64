"""Users, clients and a provider for the endpoints of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from django_idempotency.testing import IdempotentClient
from tests.testing import home_made


@pytest.fixture(autouse=True)
def _own_urls(settings: Any) -> Iterator[None]:
    settings.ROOT_URLCONF = "tests.testing.views"
    yield
    home_made.KEPT.clear()
    home_made.PROVIDER.ledger.clear()
    home_made.PROVIDER.keys.clear()


@pytest.fixture
def alice(db: None) -> IdempotentClient:
    return logged_in("alice")


@pytest.fixture
def bob(db: None) -> IdempotentClient:
    return logged_in("bob")


def logged_in(name: str) -> IdempotentClient:
    client = IdempotentClient()
    client.force_login(User.objects.create_user(name))
    return client
