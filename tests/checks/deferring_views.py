"""Views that hand work over in every way there is, and one that only looks like it. No Celery application is known."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views import View
from rest_framework.views import APIView

from django_idempotency.decorators import idempotent
from django_idempotency.models import IdempotencyKey
from django_idempotency.rest_framework import IdempotentMixin


def work(op: Any) -> Any:
    raise AssertionError


@idempotent(transaction="late")
def plain(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(work)  # type: ignore[attr-defined,no-any-return]


@idempotent(transaction="late")
async def asynchronous(request: HttpRequest) -> HttpResponse:
    return await request.idempotency.adefer(work)  # type: ignore[attr-defined,no-any-return]


class OfClass(View):
    @idempotent(transaction="late")
    def post(self, request: HttpRequest) -> HttpResponse:
        return request.idempotency.defer(work)  # type: ignore[attr-defined,no-any-return]


class OfRest(IdempotentMixin, APIView):
    idempotency = {"transaction": "late"}

    def post(self, request: Any) -> HttpResponse:
        return request.idempotency.defer(work)  # type: ignore[no-any-return]


@idempotent(transaction="late")
def queries(request: HttpRequest) -> HttpResponse:
    IdempotencyKey.objects.defer("response_body")
    return request.idempotency.finish(HttpResponse)  # type: ignore[attr-defined,no-any-return]


urlpatterns = [path("queries", queries), path("plain", plain), path("class", OfClass.as_view())]
