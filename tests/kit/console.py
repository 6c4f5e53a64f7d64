"""Who looks at the console, and what there is to be seen."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_idempotency import Status
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from tests.kit.rows import SCOPE, a_row, put

LIST = "/admin/django_idempotency/idempotencykey/"
SHOWN = {"operation": "payments.create", "principal": "user:7"}
RIGHTS = (
    "view_content",
    "ask_reconciler",
    "resolve_landed",
    "resolve_not_executed",
    "try_again",
    "enqueue",
    "expire_now",
)


def person(name: str, *rights: str) -> User:
    """Somebody of the staff who may see the records, and what else is said."""
    user = User.objects.create_user(name, password=name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=("view_idempotencykey", *rights)))
    return user


def client_of(user: User, **options: Any) -> Client:
    client = Client(**options)
    client.force_login(user)
    return client


def record(status: Status, key: str = "key", events: Iterable[str] = (), **columns: Any) -> UUID:
    found = put(status, key, **SHOWN | columns)
    kinds = [*events, *(["dead letter"] if status is Status.DEAD_LETTER else [])]
    for kind in kinds:
        IdempotencyEvent.objects.create(record_id=found, kind=kind)
    return found


def many(count: int, status: Status, **columns: Any) -> list[UUID]:
    """One each second, the newest now."""
    now, row = timezone.now(), a_row(status) | SHOWN
    rows = [
        IdempotencyKey(
            id=uuid4(),
            scope=SCOPE,
            key=f"{status}-{number}",
            **row | {"created_at": now - timedelta(seconds=number)} | columns,
        )
        for number in range(count)
    ]
    IdempotencyKey.objects.bulk_create(rows, batch_size=200)
    if status is Status.DEAD_LETTER:
        IdempotencyEvent.objects.bulk_create(IdempotencyEvent(record_id=row.id, kind="dead letter") for row in rows)
    return [row.id for row in rows]


def page_of(found: UUID) -> str:
    return reverse("admin:django_idempotency_idempotencykey_change", args=[found])


def act(name: str, *records: UUID) -> str:
    path = reverse("admin:django_idempotency_act", args=[name])
    return f"{path}?records={','.join(each.hex for each in records)}"


def confirm(client: Client, address: str, **given: Any) -> Any:
    """Open the page that asks, and send its form as a browser would."""
    asked = client.get(address)
    assert asked.status_code == 200
    return send(client, address, asked, **given)


def send(client: Client, address: str, asked: Any, **given: Any) -> Any:
    seen = {f"seen-{choice.row.pk}": choice.seen for choice in asked.context["choices"]}
    form = {name: field.initial for name, field in asked.context["form"].fields.items() if field.initial is not None}
    if "no_body" in asked.context["form"].fields and "body" not in given:
        form |= {"status": 200, "no_body": "on"}
    entered = {**form, **seen, "reason": "asked the bank", **given}
    answer = client.post(address, entered, follow=True)
    if answer.context is not None and "preview" in answer.context:
        return client.post(address, {**entered, "confirmed": "1"}, follow=True)
    return answer


def said(response: Any) -> str:
    return " | ".join(str(message) for message in response.context["messages"])


def levels(response: Any) -> list[str]:
    return [message.level_tag for message in response.context["messages"]]
