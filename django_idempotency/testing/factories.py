"""Records in every state, for factory-boy; the only module that imports it."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import factory
from django.utils import timezone

from django_idempotency.core.calls import digest_namespace, make_record_id
from django_idempotency.core.fingerprint import FingerprintRule, RequestParts, seal
from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyKey

_RESPONSES = {Status.COMPLETED: 201, Status.FAILED: 500, Status.EXPIRED: 201}
_KEPT = Status.ENDED | {Status.PENDING, Status.FAILED_RETRYABLE}


def _if_in(statuses: Any, value: Any) -> Any:
    """Return a column that exists only in these states, because the table refuses it in the others."""
    return factory.LazyAttribute(lambda record: value() if record.status in statuses else None)


class RecordFactory(factory.django.DjangoModelFactory):  # type: ignore[misc] # factory-boy has no types
    """Makes records in any state: `RecordFactory(status="unknown")` sets the columns that the state needs."""

    class Meta:
        model = IdempotencyKey

    status = Status.COMPLETED.value
    key = factory.LazyFunction(lambda: str(uuid4()))
    scope = "tests"
    id = factory.LazyAttribute(lambda record: make_record_id(record.scope, record.key))
    operation = "tests.operation"
    namespace = digest_namespace("tests")
    request_method = "POST"
    request_path = "/"
    fingerprint = seal(RequestParts("POST", "/", "", "application/json", b"{}"), FingerprintRule())
    attempt_token = factory.LazyFunction(uuid4)
    lease_seconds = 300
    grace_seconds = 300
    retention_seconds = 86400
    created_at = factory.LazyFunction(timezone.now)
    last_run_at = factory.SelfAttribute("created_at")
    grace_until = factory.LazyAttribute(lambda record: record.created_at + timedelta(minutes=10))
    deferred = factory.LazyAttribute(lambda record: record.status == Status.PENDING)
    locked_until = _if_in(Status.LEASED, lambda: timezone.now() + timedelta(minutes=5))
    reconcile_after = _if_in({Status.UNKNOWN}, timezone.now)
    expires_at = _if_in(_KEPT, lambda: timezone.now() + timedelta(days=1))
    completed_at = _if_in(Status.ENDED, timezone.now)
    response_status = factory.LazyAttribute(lambda record: _RESPONSES.get(record.status))
    response_schema_version = _if_in(Status.ENDED, lambda: 1)
    response_headers = factory.LazyAttribute(
        lambda record: '[["Content-Type", "application/json"]]' if record.status in Status.ENDED else ""
    )
    response_body = _if_in(Status.ENDED, lambda: b"{}")
