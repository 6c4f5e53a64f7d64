"""URLs of a project that defers work and does not include the status of it. No Celery application is known."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path

from django_idempotency.decorators import idempotent


def work(op: Any) -> Any:
    raise AssertionError


@idempotent(transaction="late")
def plain(request: HttpRequest) -> HttpResponse:
    return request.idempotency.defer(work)  # type: ignore[attr-defined,no-any-return]


urlpatterns = [path("plain", plain)]
