"""A row of one's own that points at the record, written with the work."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError

from django_idempotency.once import Claim, once
from testproject.payments.models import Payment
from tests.once.works import SCOPE, Work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.vendor]


def pay(claim: Claim) -> str:
    owner = User.objects.create(username="ada")
    order = {"amount": 5, "currency": "EUR", "customer": "ada", "charge": "ch_1"}
    Payment.objects.create(owner=owner, idempotency_key_id=UUID(claim.reference), **order)
    return "paid"


def test_in_leased_mode_the_record_is_there_first() -> None:
    work = Work()
    assert once(scope=SCOPE, key=work.key, run=lambda claim: claim.finish(lambda: pay(claim))) == "paid"
    assert Payment.objects.get().idempotency_key == work.record


def test_in_atomic_mode_it_comes_last_and_only_some_databases_wait_for_it(vendor: str) -> None:
    work = Work()
    if vendor == "mysql":
        with pytest.raises(IntegrityError):
            once(scope=SCOPE, key=work.key, mode="atomic", run=pay)
        assert not Payment.objects.exists()
    else:
        assert once(scope=SCOPE, key=work.key, mode="atomic", run=pay) == "paid"
        assert Payment.objects.get().idempotency_key == work.record
