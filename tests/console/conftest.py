"""Somebody who may do everything, and somebody who may only look."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.kit.console import RIGHTS, client_of, person


@pytest.fixture
def operator(db: None) -> Client:
    return client_of(person("operator", *RIGHTS))


@pytest.fixture
def viewer(db: None) -> Client:
    return client_of(person("viewer"))
