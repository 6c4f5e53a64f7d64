"""`idempotency_doctor --prove` holds on the engine that the suite runs on, over every node that it has."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow, pytest.mark.vendor, pytest.mark.soak]


def nodes() -> list[str]:
    """The addresses of Galera's nodes; of other engines the one that the settings name."""
    own = f"{connection.settings_dict['HOST']}:{connection.settings_dict['PORT']}"
    with connection.cursor() as cursor:
        if connection.vendor == "mysql" and cursor.execute("SHOW STATUS LIKE 'wsrep_incoming_addresses'"):
            return sorted(cursor.fetchone()[1].split(","))
    return [own]


def test_every_promise_holds() -> None:
    said = StringIO()
    call_command("idempotency_doctor", "--prove", "--json", *(f"--host={each}" for each in nodes()), stdout=said)
    found = json.loads(said.getvalue())
    assert found["healthy"] is True, found
