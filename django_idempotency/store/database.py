"""Which database holds the records."""

from django.db import router

from django_idempotency.models import IdempotencyKey


def alias() -> str:
    """The database of the records: always the one that is written to."""
    return router.db_for_write(IdempotencyKey)
