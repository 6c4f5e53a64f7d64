"""What a person may type: the client's key, a record's id, a derived key, or a principal; always the whole of it."""

from uuid import UUID

from django.db.models import Q

from django_idempotency.console.walking import Rows


def named(rows: Rows, term: str) -> Rows | None:
    """The records that this key or id names; None when it names none."""
    condition = Q(key=term.strip('"'))
    record = record_in(term)
    if record is not None:
        condition |= Q(pk=record)
    found = rows.filter(condition)
    return found if found.exists() else None


def record_in(term: str) -> UUID | None:
    """The record that an id or a derived key leads to."""
    if len(term) > 36 and term[36] != "-":
        return None
    try:
        return UUID(term[:36])
    except ValueError:
        return None


def of_principal(rows: Rows, term: str) -> Rows:
    return rows.filter(principal=term)
