"""Each command takes each way to name a record."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest
from django.core.management import CommandError

from django_idempotency.flow.attempt import Attempt
from django_idempotency.reconciliation import Inconclusive, reconciler
from tests.kit.records import OPERATION, change, doubtful, id_of
from tests.kit.registrations import temporary_registrations
from tests.management.terminals import said

pytestmark = [pytest.mark.django_db, pytest.mark.vendor]

WHO = ("--by=ada", "--reason=seen")
COMMANDS = [
    ("idempotency_inspect",),
    ("idempotency_resolve", "--not-executed", "--dry-run", *WHO),
    ("idempotency_reconcile", "--dry-run"),
]
FORMS: dict[str, Callable[[Attempt], list[str]]] = {
    "id": lambda attempt: [str(id_of(attempt))],
    "downstream key": lambda attempt: [attempt.derive("charge")],
    "client's key": lambda attempt: [attempt.call.key],
    "client's key in quotes": lambda attempt: [f'"{attempt.call.key}"'],
    "scope and key": lambda attempt: [attempt.call.key, f"--scope={attempt.call.scope}"],
}


@pytest.fixture
def _reconciled() -> Iterator[None]:
    with temporary_registrations():
        reconciler(OPERATION)(lambda record: Inconclusive())
        yield


@pytest.mark.usefixtures("_reconciled")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_record_is_named_by(form: str, command: tuple[str, ...]) -> None:
    attempt = doubtful()
    doubtful()
    found = json.loads(said(*command, *FORMS[form](attempt), "--json"))
    assert found["id"] == str(id_of(attempt))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_key_of_several_scopes_names_none(command: tuple[str, ...]) -> None:
    one, other = doubtful(), doubtful()
    change(other, scope="another scope", key=one.call.key)
    with pytest.raises(CommandError, match="2 records, in several scopes: give an id, or --scope") as caught:
        said(*command, one.call.key)
    assert all(str(id_of(each)) in str(caught.value) for each in (one, other))
    assert said("idempotency_inspect", one.call.key, "--scope=another scope").count(str(id_of(other))) > 0


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("reference", [str(uuid4()), "nothing-here", f"{uuid4()}-000000000000-charge"])
def test_what_names_no_record_is_an_error(command: tuple[str, ...], reference: str) -> None:
    doubtful()
    with pytest.raises(CommandError, match="No record has this id, downstream key or idempotency key"):
        said(*command, reference)


def test_an_id_in_another_scope_names_none() -> None:
    with pytest.raises(CommandError, match="No record has this id"):
        said("idempotency_inspect", str(id_of(doubtful())), "--scope=another")
