"""POST /rides/: a ride, its audit trail, its charge and its receipt, in steps that survive their process."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.generics import GenericAPIView

from django_idempotency.rest_framework import IdempotentMixin, IdempotentRequest
from testproject.payments import simulate
from testproject.payments.errors import had_no_effect
from testproject.payments.killing import points, simulating
from testproject.payments.operations import RIDE_STEPS, create_ride

KILLED_AT = points(*RIDE_STEPS)


class RideSerializer(serializers.Serializer[Any]):
    origin = serializers.CharField(max_length=100)
    target = serializers.CharField(max_length=100)
    amount = serializers.IntegerField(min_value=1, max_value=99_999_999, default=2000)


class RideView(IdempotentMixin, GenericAPIView[Any]):
    idempotency = {
        "operation": "rides.create",
        "mode": "leased",
        "transaction": "late",
        "on_lost_lease": "resume",
        "not_executed": had_no_effect,
    }
    serializer_class = RideSerializer

    def post(self, request: IdempotentRequest) -> HttpResponse:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        simulation = simulate.requested(request.data, KILLED_AT)
        if request.idempotency.is_repeat:
            simulation = simulate.Simulation()  # a repeat goes on undisturbed
        simulation.fail_before()
        with simulating(simulation):
            return request.idempotency.run(create_ride, owner=request.user.pk, **serializer.validated_data)
