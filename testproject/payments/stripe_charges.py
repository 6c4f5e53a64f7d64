"""POST /v1/charges, GET /v1/charges/<id>: what Stripe's own client expects"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST
from rest_framework.exceptions import APIException, ValidationError

from django_idempotency import STRIPE
from django_idempotency.decorators import IdempotentRequest, idempotent
from testproject.gateway.charges import Order
from testproject.payments import json_bodies, simulate
from testproject.payments.authentication import authenticated, by_stripe_key
from testproject.payments.charging import charge
from testproject.payments.errors import answering_refusals, had_no_effect
from testproject.payments.models import Payment
from testproject.payments.payments import PaymentSerializer

View = Callable[..., HttpResponse]
BRACKETS = re.compile(r"(\w+)\[(\w+)\]")
MISSING = {"code": "resource_missing", "param": "id"}


def errors_as_stripe(view: View) -> View:
    @wraps(view)
    def wrapped(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except APIException as problem:
            return as_stripe(problem)

    return wrapped


def as_stripe(problem: APIException) -> JsonResponse:
    return invalid(problem) if isinstance(problem, ValidationError) else api_error(problem)


def invalid(problem: ValidationError) -> JsonResponse:
    detail = problem.detail if isinstance(problem.detail, dict) else {"": problem.detail}
    param, reasons = next(iter(detail.items()))
    return error(400, " ".join(map(str, reasons)), param=param)


def api_error(problem: APIException) -> JsonResponse:
    kinds = {401: "invalid_request_error", 402: "card_error"}
    kind = kinds.get(problem.status_code, "api_error")
    return error(problem.status_code, str(problem.detail), kind=kind, code=problem.default_code)


def error(status: int, message: str, *, kind: str = "invalid_request_error", **more: str) -> JsonResponse:
    return JsonResponse({"error": {"type": kind, "message": message, **more}}, status=status)


@csrf_exempt
@errors_as_stripe
@require_POST
@authenticated(by_stripe_key)
@idempotent(
    operation="charges.create",
    mode="leased",
    transaction="late",
    profile=STRIPE,
    required=False,
    not_executed=had_no_effect,
)
@answering_refusals(as_stripe)
def create(request: IdempotentRequest) -> HttpResponse:
    form = nested(request.POST.items())
    serializer = PaymentSerializer(data={**form, "customer": form.get("customer") or form.get("source")})
    serializer.is_valid(raise_exception=True)
    order = Order(**serializer.validated_data)
    simulation = simulate.requested(form)

    simulation.fail_before()
    charged = charge(order, key=request.idempotency.derive("charge"))
    simulation.pause()
    simulation.fail_after()

    def write() -> HttpResponse:
        record = request.idempotency.reference or None  # the key is optional here
        paid = {"charge": charged.id, "owner_id": request.user.pk, "idempotency_key_id": record}
        payment = Payment.objects.create(**serializer.validated_data, **paid)
        return json_bodies.answer(*simulation.answer(200, as_charge(payment)))

    return request.idempotency.finish(write)


@errors_as_stripe
@require_GET
@authenticated(by_stripe_key)
def retrieve(request: HttpRequest, charge_id: str) -> HttpResponse:
    payment = Payment.objects.filter(charge=charge_id, owner_id=request.user.pk).first()
    return JsonResponse(as_charge(payment)) if payment else error(404, f"No such charge: {charge_id}", **MISSING)


def nested(form: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """`simulate[sleep]=1` becomes `{"simulate": {"sleep": "1"}}`, one level deep."""
    result: dict[str, Any] = {}
    for name, value in form:
        if match := BRACKETS.fullmatch(name):
            inner = result.setdefault(match[1], {})
            if isinstance(inner, dict):
                inner[match[2]] = value
        else:
            result[name] = value
    return result


def as_charge(payment: Payment) -> dict[str, Any]:
    return {
        "id": payment.charge,
        "object": "charge",
        "amount": payment.amount,
        "amount_captured": payment.amount,
        "amount_refunded": 0,
        "captured": True,
        "created": int(payment.created_at.timestamp()),
        "currency": payment.currency.lower(),
        "customer": payment.customer,
        "livemode": False,
        "metadata": {},
        "paid": True,
        "refunded": False,
        "status": "succeeded",
    }
