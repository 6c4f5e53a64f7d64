"""The payments service's routes, and one that defers."""

import json

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from django_idempotency.decorators import idempotent
from testproject.payments.authentication import authenticated, by_token
from testproject.urls import urlpatterns as payments
from tests.celery.served.operations import report


@csrf_exempt
@authenticated(by_token)
@idempotent(transaction="late", receipts=True)
def create(request: HttpRequest) -> HttpResponse:
    title = json.loads(request.body)["title"]
    return request.idempotency.defer(report, title=title)  # type: ignore[attr-defined,no-any-return]


urlpatterns = [*payments, path("reports/", create)]
