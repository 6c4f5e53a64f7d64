"""Work that leaves a trace, for `once`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from django_idempotency.core.calls import make_record_id
from django_idempotency.models import IdempotencyKey
from django_idempotency.once import Claim
from testproject.payments.models import LedgerEntry
from tests.kit import records

SCOPE = "tests.once"


class Work:
    """Books one entry for each run, then raises or gives a result."""

    def __init__(self, result: Any = None, raises: BaseException | None = None) -> None:
        self.key = uuid4().hex
        self.result = result
        self.raises = raises

    def __call__(self, claim: Claim) -> Any:
        LedgerEntry.objects.create(reference=self.key, account="work", amount=1)
        if self.raises is not None:
            raise self.raises
        return self.result

    @property
    def arguments(self) -> dict[str, Any]:
        return {"scope": SCOPE, "key": self.key, "run": self}

    @property
    def bookings(self) -> int:
        return LedgerEntry.objects.filter(reference=self.key).count()

    @property
    def record(self) -> IdempotencyKey:
        return IdempotencyKey.objects.get(id=make_record_id(f"once:{SCOPE}", self.key))

    def age(self, *columns: str) -> None:
        """These times of the record are long past."""
        records.age(self.record.id, *columns)


def finishing(write: Callable[[], Any]) -> Callable[[Claim], Any]:
    """Work that draws the line itself; what it returns after that does not count."""

    def run(claim: Claim) -> str:
        claim.finish(write)
        return "not the result"

    return run
