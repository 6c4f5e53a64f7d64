"""POST /transfers/"""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from rest_framework import serializers

from django_idempotency.decorators import idempotent
from testproject.payments import json_bodies, simulate
from testproject.payments.authentication import authenticated, by_token
from testproject.payments.errors import answering_refusals
from testproject.payments.models import LedgerEntry


class TransferSerializer(serializers.Serializer[Any]):
    to = serializers.CharField(max_length=100)
    amount = serializers.IntegerField(min_value=1, max_value=99_999_999)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """`from` is a word of Python's, so it cannot be the name of an attribute."""
        return {"from": serializers.CharField(max_length=100), **super().get_fields()}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["from"] == attrs["to"]:
            raise serializers.ValidationError("from and to are the same account.")
        return attrs


@csrf_exempt
@require_POST
@authenticated(by_token)
@idempotent(operation="transfers.create", mode="atomic")
@answering_refusals()
def create(request: HttpRequest) -> HttpResponse:
    body = json_bodies.read(request)
    serializer = TransferSerializer(data=body)
    serializer.is_valid(raise_exception=True)
    transfer = serializer.validated_data
    simulation = simulate.requested(body)

    simulation.fail_before()
    simulation.pause()
    reference = str(uuid.uuid4())
    for account, amount in ((transfer["from"], -transfer["amount"]), (transfer["to"], transfer["amount"])):
        LedgerEntry.objects.create(owner_id=request.user.pk, reference=reference, account=account, amount=amount)
    simulation.fail_after()
    return json_bodies.answer(*simulation.answer(201, {"reference": reference, **transfer}))
