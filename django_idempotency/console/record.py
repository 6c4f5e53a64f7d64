"""The page of one record: where it stands, what happened, what was asked and answered, and what can be done."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import Length
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_idempotency.console import actions
from django_idempotency.console.bodies import of_bytes, of_json, readable
from django_idempotency.console.columns import is_late, next_event
from django_idempotency.console.keyset import Rows
from django_idempotency.console.timeline import steps, timeline
from django_idempotency.console.wording import MEANINGS, badge, duration, short, size
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.store import records
from django_idempotency.store.database import alias

MAY_SEE_CONTENT: Final = "django_idempotency.view_content"
EVENTS_SHOWN: Final = 200
AROUND: Final = 500  # how many records before and after are looked at for neighbours
NEIGHBOURS: Final = 3


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A record that stands nearby."""

    row: IdempotencyKey

    @property
    def badge(self) -> SafeString:
        return badge(self.row.status)

    @property
    def short(self) -> str:
        return short(self.row.key)


def url(record: UUID, site: str) -> str:
    return reverse("admin:django_idempotency_idempotencykey_change", args=[record], current_app=site)


def one(rows: Rows, record: UUID) -> Any:
    """The record with what its page has to know, and without what only some may see."""
    others = IdempotencyKey.objects.using(rows.db).order_by().values("created_at")
    older = others.filter(created_at__lt=OuterRef("created_at")).order_by("-created_at")[AROUND : AROUND + 1]
    newer = others.filter(created_at__gt=OuterRef("created_at")).order_by("created_at")[AROUND : AROUND + 1]
    told = rows.annotate(
        body_size=Length("response_body"),
        around_from=Subquery(older),
        around_to=Subquery(newer),
    )
    return told.defer(None).defer("response_body", "response_headers").filter(pk=record).first()


def context(row: Any, user: Any) -> dict[str, Any]:
    open_book = user.has_perm(MAY_SEE_CONTENT)
    found = IdempotencyEvent.objects.using(alias()).filter(record_id=row.pk).order_by("-id")[:EVENTS_SHOWN]
    return {
        "title": short(row.key),
        "row": row,
        "badge": badge(row.status),
        "meaning": MEANINGS.get(row.status, ""),
        "next": next_event(row),
        "late": is_late(row),
        "bar": lease_bar(row),
        "timeline": timeline(row, reversed(found)),
        "content": _content(row) if open_book else None,
        "body_size": None if row.body_size is None else size(row.body_size),
        "neighbours": neighbours(row),
        "actions": actions.offered(row.status, user),
    }


def _content(row: IdempotencyKey) -> dict[str, Any]:
    """Read by the store, like a replay."""
    record = records.find(row.ref)
    reply = record.reply if record is not None else None
    headers = reply.headers if reply is not None else ()
    kind = next((value for name, value in headers if name.lower() == "content-type"), "")
    return {
        "headers": [(readable(name), readable(value)) for name, value in headers],
        "body": of_bytes(reply.body, kind) if reply is not None else None,
        "arguments": of_json(row.arguments),
        "results": [(step.name, of_json(json.dumps(step.result))) for step in steps(row) if step.result is not None],
    }


def lease_bar(row: Any) -> dict[str, Any] | None:
    """How much of the lease is used up."""
    if row.locked_until is None:
        return None
    whole = max(1, row.lease_seconds)
    left = (row.locked_until - row.now).total_seconds()
    if left <= 0:
        text = _("over for %s") % duration(timedelta(seconds=-left))
    else:
        text = _("%(left)s of %(whole)s left") % {
            "left": duration(timedelta(seconds=left)),
            "whole": duration(timedelta(seconds=whole)),
        }
    return {"whole": whole, "used": min(whole, max(0, int(whole - left))), "text": text, "over": left <= 0}


def neighbours(row: Any) -> dict[str, list[Neighbour]]:
    """What the same principal did with the same operation just before and just after, among the records around."""
    if not row.principal:
        return {"before": [], "after": []}
    base = IdempotencyKey.objects.using(alias()).only("id", "key", "status", "created_at", "attempts")
    same = Q(principal=row.principal, operation=row.operation) & ~Q(pk=row.pk)
    around = {"created_at__gte": row.around_from, "created_at__lte": row.around_to}
    near = base.filter(same, **{bound: moment for bound, moment in around.items() if moment is not None})
    found = list(near.order_by("created_at", "pk")[: 2 * AROUND])
    before = [Neighbour(each) for each in found if each.created_at <= row.created_at]
    after = [Neighbour(each) for each in found if each.created_at > row.created_at]
    return {"before": before[-NEIGHBOURS:], "after": after[:NEIGHBOURS]}
