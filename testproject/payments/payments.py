"""POST /payments/, GET /payments/, GET /payments/<id>/"""

from __future__ import annotations

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from django_idempotency.rest_framework import IdempotentMixin, IdempotentRequest
from testproject.gateway.charges import Order
from testproject.payments import simulate
from testproject.payments.charging import charge
from testproject.payments.errors import CardDeclined, had_no_effect
from testproject.payments.models import Payment

NEWEST = 100


class PaymentSerializer(serializers.ModelSerializer[Payment]):
    amount = serializers.IntegerField(min_value=1, max_value=99_999_999)
    currency = serializers.RegexField(r"^[A-Za-z]{3}$")

    class Meta:
        model = Payment
        fields = ["id", "amount", "currency", "customer", "charge", "created_at", "settled_at"]
        read_only_fields = ["charge", "settled_at"]


class PaymentViewSet(IdempotentMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Payment]):
    idempotency = {
        "operation": "payments.create",
        "mode": "leased",
        "transaction": "late",
        "not_executed": had_no_effect,
        "refusals": [CardDeclined],  # the provider's word, although it is raised after `derive`
    }
    serializer_class = PaymentSerializer

    def get_queryset(self) -> QuerySet[Payment]:
        return Payment.objects.filter(owner_id=self.request.user.pk)

    def list(self, request: Request) -> Response:
        return Response(self.get_serializer(self.get_queryset()[:NEWEST], many=True).data)

    def create(self, request: IdempotentRequest) -> Response:
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        order = Order(**serializer.validated_data)
        simulation = simulate.requested(request.data)

        simulation.fail_before()
        charged = charge(order, key=request.idempotency.derive("charge"))
        simulation.pause()
        simulation.fail_after()

        def write() -> Response:
            paid = {
                "charge": charged.id,
                "owner_id": request.user.pk,
                "idempotency_key_id": request.idempotency.reference,
            }
            payment = Payment.objects.create(**serializer.validated_data, **paid)
            status, data = simulation.answer(201, self.get_serializer(payment).data)
            return Response(data, status, headers={"Location": reverse("payment", args=[payment.pk])})

        return request.idempotency.finish(write)
