"""POST /async/payments/"""

from __future__ import annotations

import asyncio

from django.http import HttpResponse
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from django_idempotency.decorators import IdempotentRequest, idempotent
from testproject.gateway.charges import Order
from testproject.payments import json_bodies, simulate
from testproject.payments.authentication import authenticated, by_token
from testproject.payments.charging import charge
from testproject.payments.errors import answering_refusals, had_no_effect
from testproject.payments.models import Payment
from testproject.payments.payments import PaymentSerializer


@csrf_exempt
@require_POST
@authenticated(by_token)
@idempotent(operation="payments.create_async", mode="leased", not_executed=had_no_effect)
@answering_refusals()
async def create(request: IdempotentRequest) -> HttpResponse:
    body = json_bodies.read(request)
    serializer = PaymentSerializer(data=body)
    serializer.is_valid(raise_exception=True)
    order = Order(**serializer.validated_data)
    simulation = simulate.requested(body)

    simulation.fail_before()
    charged = await asyncio.to_thread(charge, order, key=request.idempotency.derive("charge"))
    await simulation.apause()
    simulation.fail_after()

    def write() -> HttpResponse:
        record = request.idempotency.reference
        paid = {"charge": charged.id, "owner_id": request.user.pk, "idempotency_key_id": record}
        payment = Payment.objects.create(**serializer.validated_data, **paid)
        response = json_bodies.answer(*simulation.answer(201, PaymentSerializer(payment).data))
        response["Location"] = reverse("payment", args=[payment.pk])
        return response

    return await request.idempotency.afinish(write)
