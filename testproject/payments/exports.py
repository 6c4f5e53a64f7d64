"""POST /exports/: a report over all payments of whoever asks, made by a worker."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.generics import GenericAPIView

from django_idempotency.rest_framework import IdempotentMixin, IdempotentRequest
from testproject.payments import simulate
from testproject.payments.models import Export
from testproject.payments.operations import export_payments


class ExportSerializer(serializers.Serializer[Any]):
    page = serializers.IntegerField(min_value=1, max_value=1000, default=100)


class ExportView(IdempotentMixin, GenericAPIView[Any]):
    idempotency = {"operation": "exports.create", "mode": "leased", "transaction": "late", "on_lost_lease": "resume"}
    serializer_class = ExportSerializer

    def post(self, request: IdempotentRequest) -> HttpResponse:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        pause = simulate.requested(request.data).sleep
        wanted = {**serializer.validated_data, "owner": request.user.pk, "pause": pause}

        def write() -> dict[str, int]:
            return {"export": Export.objects.create(owner_id=wanted["owner"]).pk}

        return request.idempotency.defer(export_payments, write, **wanted)
