"""POST /webhooks/gateway/"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied

from django_idempotency.decorators import deliver_again
from django_idempotency.exceptions import StillRunning
from django_idempotency.once import Claim, once_per
from django_idempotency.reconciliation import Outcome, find_record, resolve
from testproject.gateway.charges import Charge
from testproject.gateway.signatures import HEADER, verify
from testproject.payments import json_bodies, simulate
from testproject.payments.models import LedgerEntry, Payment
from testproject.payments.reconcilers import told
from testproject.payments.simulate import Simulation

REMEMBERED = timedelta(days=30)  # longer than the gateway ever delivers an event again


class ChargeSerializer(serializers.Serializer[dict[str, Any]]):
    id = serializers.CharField(max_length=100)
    amount = serializers.IntegerField(min_value=1)
    key = serializers.CharField(max_length=100, default=None, allow_null=True)
    currency = serializers.CharField(max_length=3, default="")
    customer = serializers.CharField(max_length=100, default="")
    fingerprint = serializers.CharField(default="")
    time = serializers.CharField(default="")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["key"] and not (attrs["currency"] and attrs["customer"]):
            raise serializers.ValidationError("A charge with a key needs its currency and its customer.")
        return attrs


class EventSerializer(serializers.Serializer[dict[str, Any]]):
    id = serializers.CharField(max_length=100)
    type = serializers.ChoiceField(["charge.succeeded"])
    charge = ChargeSerializer()


@csrf_exempt
@require_POST
@deliver_again
@transaction.non_atomic_requests
def receive(request: HttpRequest) -> HttpResponse:
    if not verify(settings.GATEWAY_WEBHOOK_SECRET, request.body, request.headers.get(HEADER, "")):
        raise PermissionDenied("The signature is missing, wrong or too old.")
    body = json_bodies.read(request)
    serializer = EventSerializer(data=body)
    serializer.is_valid(raise_exception=True)
    event = serializer.validated_data
    simulation = simulate.requested(body)

    simulation.fail_before()
    simulation.pause()
    if settle(Charge(**event["charge"])) is Outcome.RUNNING:
        raise StillRunning("The request behind this charge is still running.")
    return json_bodies.answer(*simulation.answer(200, {"received": book(event, simulation)}))


def settle(charge: Charge) -> Outcome:
    """The charge's key leads to the record of the request that asked for it, where there is one."""
    record = find_record(charge.key) if charge.key else None
    if charge.key is None or record is None:
        return Outcome.ABSENT
    return resolve(charge.key, told(record, charge), by="gateway")


@once_per("gateway", key=lambda event, _: event["id"], mode="atomic", retention=REMEMBERED)
def book(claim: Claim, event: dict[str, Any], simulation: Simulation) -> Any:
    """Once per event: the record, the payment and the booking are one transaction."""
    charged = event["charge"]
    Payment.objects.filter(charge=charged["id"], settled_at=None).update(settled_at=timezone.now())
    LedgerEntry.objects.create(reference=event["id"], account="gateway", amount=charged["amount"])
    simulation.fail_after()
    return event["id"]
