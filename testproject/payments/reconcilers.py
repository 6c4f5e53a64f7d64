"""Finding out what became of a payment that nobody knows about: ask the gateway for the key the view derived."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.urls import reverse
from rest_framework.renderers import JSONRenderer

from django_idempotency import Reply, json_reply
from django_idempotency.models import IdempotencyKey
from django_idempotency.reconciliation import Landed, NotLanded, StepLanded, Verdict, reconciler
from testproject.gateway.charges import Charge
from testproject.payments.charging import gateway
from testproject.payments.models import Payment
from testproject.payments.payments import PaymentSerializer
from testproject.payments.stripe_charges import as_charge

Answer = Callable[[Payment], Reply]


@reconciler("payments.create")
@reconciler("payments.create_async")
def ask_about_payment(record: IdempotencyKey) -> Verdict:
    return ask(record, as_payment)


@reconciler("charges.create")
def ask_about_charge(record: IdempotencyKey) -> Verdict:
    return ask(record, as_stripe_charge)


def ask(record: IdempotencyKey, answer: Answer) -> Verdict:
    found = gateway().find(record.derive("charge"))
    return Landed(write=partial(book, record, found[0], answer)) if found else NotLanded()


def told(record: IdempotencyKey, charge: Charge) -> Landed | StepLanded:
    """What the gateway's webhook tells: the same as what it would have answered.

    About an operation it tells of one step: the charge is not the whole ride, and other steps come after it.
    """
    if record.run_name:
        return StepLanded({"charge": charge.id})
    answer = as_stripe_charge if record.operation == "charges.create" else as_payment
    return Landed(write=partial(book, record, charge, answer))


def book(record: IdempotencyKey, charge: Charge, answer: Answer) -> Reply:
    """The domain write that the view did not get to; it commits with the key's completion."""
    payment = Payment.objects.create(
        owner_id=int(record.principal.removeprefix("user:")),
        amount=charge.amount,
        currency=charge.currency,
        customer=charge.customer,
        charge=charge.id,
        idempotency_key=record,
    )
    return answer(payment)


def as_payment(payment: Payment) -> Reply:
    data: dict[str, Any] = PaymentSerializer(payment).data
    headers = (("Content-Type", "application/json"), ("Location", reverse("payment", args=[payment.pk])))
    return Reply(201, headers, JSONRenderer().render(data))


def as_stripe_charge(payment: Payment) -> Reply:
    return json_reply(200, as_charge(payment))
