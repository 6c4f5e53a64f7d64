"""Keys, scopes and bodies stay out of metrics, logs and error messages, and fingerprints out of most people's sight."""

import logging
import traceback
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import Error, IntegrityError, connection
from django.test import Client
from prometheus_client import CollectorRegistry, generate_latest

from django_idempotency import Status
from django_idempotency.contrib import prometheus
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.models import IdempotencyKey
from django_idempotency.monitoring.metrics import unsubscribe
from django_idempotency.once import once, once_per
from django_idempotency.operations import perform
from tests.kit import console as people
from tests.kit.console import client_of, page_of, person

pytestmark = pytest.mark.vendor

ALICE = "customer:alice@example.org"
KEY = "planted-key-4242"
UNKNOWN = "5a3f7d5e-0c69-4d26-9a53-1f0f5d9b3c11"


@pytest.fixture
def registry() -> Any:
    made = CollectorRegistry()
    prometheus.install(made, uid="private data")
    yield made
    unsubscribe("private data")


@pytest.mark.django_db(transaction=True)
def test_the_scope_of_once_is_no_label_of_a_metric(registry: CollectorRegistry) -> None:
    once(scope=ALICE, key=KEY, run=lambda claim: 1)
    once_per(ALICE, key=lambda event: str(event))(lambda claim, event: 1)(7)
    written = generate_latest(registry).decode()
    assert "alice" not in written
    assert 'api_idempotency_reserve_created_total{operation="once"} 2.0' in written
    assert 'api_idempotency_handler_duration_seconds_count{operation="once"} 2.0' in written


@pytest.mark.django_db(transaction=True)
def test_the_operation_of_once_is_its_label(registry: CollectorRegistry) -> None:
    once(scope=ALICE, key=KEY, run=lambda claim: 1, operation="invoices.send")
    assert 'api_idempotency_reserve_created_total{operation="invoices.send"} 1.0' in generate_latest(registry).decode()


@pytest.mark.django_db
def test_the_page_of_a_record_shows_its_fingerprint_with_its_content() -> None:
    found = people.record(Status.COMPLETED)
    IdempotencyKey.objects.update(fingerprint="v2::planted-fingerprint:")
    viewer = client_of(person("viewer", "view_idempotencykey"))
    reader = client_of(person("reader", "view_idempotencykey", "view_content"))
    assert shows(viewer, page_of(found)) is False
    assert shows(reader, page_of(found)) is True


def shows(client: Client, address: str) -> bool:
    page = client.get(address)
    assert page.status_code == 200
    return "planted-fingerprint" in page.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_inspect_command_prints_the_fingerprint_with_the_content(form: list[str]) -> None:
    found = people.record(Status.COMPLETED, response_headers='[["X-Planted","planted-header"]]')
    IdempotencyKey.objects.update(fingerprint="v2::planted-fingerprint:")
    plain, whole = StringIO(), StringIO()
    call_command("idempotency_inspect", str(found), *form, stdout=plain)
    call_command("idempotency_inspect", str(found), "--body", *form, stdout=whole)
    assert "planted" not in plain.getvalue()
    assert "planted-fingerprint" in whole.getvalue()
    assert "planted-header" in whole.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize("junk", [KEY, UNKNOWN, f"{UNKNOWN}-planted", "x" * 500])
def test_a_message_that_names_no_record_is_not_logged(junk: str, caplog: pytest.LogCaptureFixture) -> None:
    assert perform(junk) == "absent"
    assert "the message is dropped" in caplog.text
    assert junk[:16] not in caplog.text


@pytest.fixture
def refusing_table(transactional_db: None) -> Any:
    """A table that refuses the rows of one operation, as any failed constraint does."""
    table = connection.ops.quote_name(IdempotencyKey._meta.db_table)
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(
                f"CREATE TRIGGER planted BEFORE INSERT ON {table} WHEN NEW.operation = 'refused' "
                "BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )
        else:
            cursor.execute(f"ALTER TABLE {table} ADD CONSTRAINT planted CHECK (operation <> 'refused')")
    yield
    with connection.cursor() as cursor:
        cursor.execute(
            "DROP TRIGGER planted" if connection.vendor == "sqlite" else f"ALTER TABLE {table} DROP CONSTRAINT planted"
        )


@pytest.mark.usefixtures("refusing_table")
@pytest.mark.parametrize("mode", ["leased", "atomic"])
def test_an_error_of_the_database_does_not_repeat_the_row(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """PostgreSQL says: Failing row contains (…, the scope, the key, …)."""
    with pytest.raises((StoreUnavailable, IntegrityError)) as failed:
        once(scope=ALICE, key=KEY, run=lambda claim: 1, operation="refused", mode=mode)
    logging.getLogger("django_idempotency").error("As a project logs it.", exc_info=failed.value)
    printed = "".join(traceback.format_exception(failed.value)) + caplog.text
    assert "once(scope=ALICE, key=KEY" in printed, "the traceback is there"
    assert "alice" not in printed
    assert "planted-key" not in printed
    errors = [error for error in (failed.value, failed.value.__cause__) if isinstance(error, Error)]
    assert errors, "the cause is kept"
    if connection.vendor != "sqlite":
        assert "planted" in str(errors[0]), "the name of the constraint is kept"
