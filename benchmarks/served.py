"""What `benchmarks.views` serves: one view, bare and protected. It reads a user and writes a ledger entry."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from django_idempotency.decorators import idempotent
from testproject.payments.models import LedgerEntry


def work(request: HttpRequest) -> HttpResponse:
    owner = User.objects.get(username="alice")
    entry = LedgerEntry.objects.create(owner=owner, reference="benchmark", account="current", amount=1)
    return JsonResponse({"id": entry.pk, "amount": entry.amount}, status=201)


anybody = {"share_anonymous": True}
bare = transaction.atomic(work)
leased = idempotent(operation="leased", **anybody)(work)
atomic = idempotent(operation="atomic", mode="atomic", **anybody)(work)

urlpatterns = [path("bare", bare), path("leased", leased), path("atomic", atomic)]
