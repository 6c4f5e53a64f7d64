"""What a client sent cannot steer the terminal of the operator who looks at it, nor forge lines in it."""

from __future__ import annotations

import pytest
from django.core.management import CommandError

from tests.kit.records import change, completed, dead_letter, id_of, row_of
from tests.management.terminals import said

pytestmark = pytest.mark.django_db

FORGED = "manage.py idempotency_resolve --not-executed"
HOSTILE = f"/pay\x1b[2J\x1b[8m\r\x07\u202e\x9b\n{FORGED}"
ALLOWED = {"\n"}


@pytest.mark.parametrize(
    "line", ["inspect {id}", "inspect {id} --all --body", "inspect {key}", "list", "doctor", "stats", "resolve {id}"]
)
def test_no_text_of_a_client_reaches_the_terminal_as_it_came(line: str) -> None:
    columns = dict.fromkeys(("request_path", "principal", "tenant", "operation", "last_error_code"), HOSTILE)
    first, second = dead_letter(key=HOSTILE), completed()
    for each in (first, second):
        change(each, **columns)
    change(second, key=HOSTILE, scope=HOSTILE)
    words = [each.format(id=id_of(first), key=row_of(first).key) for each in line.split(" ")]
    if words[0] == "resolve":
        words += ["--not-executed", "--by", "ada", "--reason", "checked"]
    try:
        shown = said(f"idempotency_{words[0]}", *words[1:])
    except CommandError as error:
        shown = str(error)
    assert shown
    assert [each for each in shown if not each.isprintable() and each not in ALLOWED] == []
    assert [each for each in shown.splitlines() if each.lstrip().startswith(FORGED)] == []
