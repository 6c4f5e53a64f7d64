"""Fingerprints that this process cannot compare, because it lacks the secret that made them."""

from contextlib import suppress
from typing import Any, Final

from django.db.models.functions import Left

from django_idempotency.conf import conf
from django_idempotency.core.comparison import LONGEST_MAKER, read_secret_id
from django_idempotency.http.inventory import take_inventory
from django_idempotency.models import IdempotencyKey

SAMPLE: Final = 5000  # newest records, and as many of all: ids are digests, so the first ones are a fair sample


def has_secret(secret: str) -> bool:
    """True if the settings have the secret with this id, or an endpoint's own rule."""
    if not secret or secret in conf.SECRETS:
        return True
    with suppress(TypeError, ValueError):  # `manage.py check` reports it
        return any(secret in entry.policy.fingerprint.secrets for entry in take_inventory() if entry.policy)
    return False


def find_missing_secrets(using: str) -> list[str]:
    """Return the ids of secrets that made fingerprints of records, and that this process does not have.

    Two short reads, along the index of creation and along the primary key.
    """
    found: set[str] = set()
    for order in ("-created_at", "pk"):
        rows: Any = IdempotencyKey.objects.using(using).with_time().annotate(maker=Left("fingerprint", LONGEST_MAKER))
        seen = rows.only("status", "expires_at").order_by(order)[:SAMPLE]
        found |= {read_secret_id(row.maker) or "" for row in seen if not row.retention_over}
    return sorted(secret for secret in found if not has_secret(secret))
