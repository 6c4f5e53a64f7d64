"""A few records with a past worth reading, told through requests to this service; only their times are moved back."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client, override_settings
from django.urls import reverse
from rest_framework.authtoken.models import Token

from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.reconciliation import NotLanded, resolve
from django_idempotency.signals import reserved
from django_idempotency.testing import grace_over
from testproject.gateway.ledger import Ledger
from testproject.gateway.provider import Provider
from testproject.gateway.server import GatewayServer
from testproject.gateway.switches import Switches
from testproject.payments.reconcilers import told

CUSTOMER = "carol"
ORDER = {"amount": 12500, "currency": "EUR", "customer": "ada"}
RIDE = {"origin": "Harbour", "target": "Airport", "amount": 2000}
NOBODY_LISTENS = "http://127.0.0.1:1"


def tell() -> int:
    """Tell each story once, and return how many were told: none if they are in the database already."""
    stories = (
        running,
        paid,
        refused,
        unanswered,
        given_up,
        settled_by_webhook,
        settled_by_hand,
        withdrawn,
        half_a_ride,
    )
    if IdempotencyKey.objects.filter(key__startswith="story-").exists():
        return 0
    with quiet(), gateway() as provider:
        for minutes, story in enumerate(stories, start=1):
            provider.switches = Switches()
            move_back(story(provider), timedelta(minutes=7 * minutes))
    return len(stories)


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing: these stories are about failures, and each of them is meant."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def gateway() -> Iterator[Provider]:
    """A payment provider in this process, with a ledger of its own, that the service talks to over HTTP."""
    with TemporaryDirectory() as folder:
        provider = Provider(Ledger(Path(folder) / "ledger.jsonl"))
        with GatewayServer(0, provider) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            with override_settings(GATEWAY_URL=f"http://127.0.0.1:{server.server_port}"):
                yield provider
            server.shutdown()


def post(key: str, path: str = "/payments/", body: Any = ORDER, **policy: Any) -> IdempotencyKey:
    """Send one request of the customer's; `policy` stands for entries of the IDEMPOTENCY setting."""
    user, _ = User.objects.get_or_create(username=CUSTOMER)
    token, _ = Token.objects.get_or_create(user=user)
    headers = {"Authorization": f"Token {token.key}", "Idempotency-Key": f'"story-{key}"'}
    with override_settings(IDEMPOTENCY={**settings.IDEMPOTENCY, **policy}):
        Client(SERVER_NAME="localhost").post(path, json.dumps(body), "application/json", headers=headers)
    return IdempotencyKey.objects.get(key=f"story-{key}")


def press(action: str, record: IdempotencyKey, reason: str, **answer: Any) -> None:
    """Press a button of the admin, and confirm it with a reason and, where it asks for one, an answer."""
    admin, _ = User.objects.get_or_create(username="admin", defaults={"is_staff": True, "is_superuser": True})
    client = Client(SERVER_NAME="localhost")
    client.force_login(admin)
    page = f"{reverse('admin:django_idempotency_act', args=[action])}?records={record.pk.hex}"
    seen = re.findall(r'name="(seen-[^"]+)" value="([^"]+)"', client.get(page).content.decode())
    client.post(page, {**dict(seen), **answer, "reason": reason})


def running(_provider: Provider) -> IdempotencyKey:
    """A request that has not ended: its record passes to another attempt, whose end is not told."""

    def pass_on(call: Any, **_payload: Any) -> None:
        IdempotencyKey.objects.filter(pk=call.id).update(attempt_token=uuid4())

    reserved.connect(pass_on)
    try:
        return post("running-47c3-9a15-e80b2d6f41ca", LEASE=timedelta(minutes=30))
    finally:
        reserved.disconnect(pass_on)


def paid(_provider: Provider) -> IdempotencyKey:
    return post("paid-41d0-8c55-aa21f00d7e11")


def refused(_provider: Provider) -> IdempotencyKey:
    with override_settings(GATEWAY_URL=NOBODY_LISTENS):
        return post("refused-4e7b-9f02-51c83ad0be72")


def unanswered(provider: Provider) -> IdempotencyKey:
    return hung_up(provider, "unanswered-4f0a-b1d4-07cc9e51a3f8")


def given_up(provider: Provider) -> IdempotencyKey:
    record = hung_up(provider, "given-up-4c19-8e3d-f6a2b7d90c14")
    IdempotencyKey.objects.filter(pk=record.pk).update(reconcile_attempts=9)  # the last of ten tries follows
    with override_settings(GATEWAY_URL=NOBODY_LISTENS):
        press("ask-reconciler", record, "The customer calls: was she charged?")
    return record


def settled_by_webhook(provider: Provider) -> IdempotencyKey:
    record = hung_up(provider, "webhook-4a6e-93b7-2d40c1e85f69")
    (charge,) = provider.find(record.derive("charge"))
    resolve(record.pk, told(record, charge), by="gateway webhook", reason=f"charge.succeeded {charge.id}")
    return record


def settled_by_hand(provider: Provider) -> IdempotencyKey:
    record = hung_up(provider, "by-hand-4d52-a7f1-90be63c7d824")
    grace_over(record)
    why = "The provider's ledger holds no charge for this key; asked their support, ticket 20931."
    resolve(record.pk, NotLanded(), by="admin", reason=why, operator=True)
    return record


def withdrawn(_provider: Provider) -> IdempotencyKey:
    record = post("withdrawn-4b88-8d06-3ea7f5c1b920", EXPIRY="soft")
    press("expire-now", record, "The stored answer named the wrong customer.")
    return record


def half_a_ride(provider: Provider) -> IdempotencyKey:
    return hung_up(provider, "ride-4399-b0c2-6f18d7a4e053", "/rides/", RIDE)


def hung_up(provider: Provider, *request: Any) -> IdempotencyKey:
    """Send a request during which the gateway charges and then hangs up, so that nobody here knows."""
    provider.switches = Switches(lose_answer=True)
    return post(*request)


def move_back(record: IdempotencyKey, by: timedelta) -> None:
    """As if it had begun then, with some minutes between what happened; the other times follow from these."""
    told = list(IdempotencyEvent.objects.filter(record_id=record.pk).order_by("id"))
    for number, event in enumerate(told, start=1):
        at_once = event.kind == "in doubt"  # the gateway's time limit is short
        back = by - timedelta(seconds=10) if at_once else by * (1 - number / (len(told) + 1))
        IdempotencyEvent.objects.filter(pk=event.pk).update(at=F("at") - back)
    row = IdempotencyKey.objects.get(pk=record.pk)
    row.created_at, ended = row.created_at - by, by / (len(told) + 1)
    row.last_run_at, lease = row.created_at, timedelta(seconds=row.lease_seconds)
    row.grace_until = row.created_at + lease + timedelta(seconds=row.grace_seconds)
    if row.locked_until is not None:
        row.locked_until = row.created_at + lease
    if row.completed_at is not None:
        landed = any(event.kind == "confirmed" for event in told)
        row.completed_at = row.completed_at - ended if landed else row.created_at + timedelta(seconds=1.4)
    if row.expires_at is not None:
        row.expires_at -= ended
    row.save()
