"""The page of one record: its state, what happened, request and response, and what an operator can do."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Q, Subquery, Value
from django.db.models.functions import Coalesce, Length
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.console import actions
from django_idempotency.console.bodies import describe_all_json, describe_bytes, describe_json, replace_surrogates
from django_idempotency.console.columns import describe_next, is_late
from django_idempotency.console.keyset import Rows
from django_idempotency.console.timeline import build_timeline, load_steps
from django_idempotency.console.wording import STATES, badge, format_size, shorten_key
from django_idempotency.core.states import Status
from django_idempotency.flow.unattended import is_unattended
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.monitoring.units import format_interval
from django_idempotency.store import records
from django_idempotency.store.records import alias

MAY_SEE_CONTENT: Final = "django_idempotency.view_content"
EVENTS_SHOWN: Final = 200
AROUND: Final = 500  # how many records before and after are looked at for neighbours
NEIGHBOURS: Final = 3
A_CENTURY: Final = timedelta(days=36_500)  # no record is so far from another
NO_RECONCILER: Final = gettext_lazy("waits for an operator, because its operation has no reconciler")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A record of the same principal and operation that was created just before or after."""

    row: IdempotencyKey

    @property
    def badge(self) -> SafeString:
        return badge(self.row.status)

    @property
    def short(self) -> str:
        return shorten_key(self.row.key)


def build_url(record: UUID, site: str) -> str:
    return reverse("admin:django_idempotency_idempotencykey_change", args=[record], current_app=site)


def find_row(rows: Rows, record: UUID) -> Any:
    """Return the record with what its page shows, and without what only some may see."""
    annotated = rows.annotate(body_size=Length("response_body"))
    return annotated.defer(None).defer("response_body", "response_headers").filter(pk=record).first()


def build_context(row: Any, user: Any) -> dict[str, Any]:
    found = IdempotencyEvent.objects.using(alias()).filter(record_id=row.pk).order_by("-id")[:EVENTS_SHOWN]
    unattended = is_unattended(row)
    return {
        "title": shorten_key(row.key),
        "row": row,
        "badge": badge(row.status),
        "meaning": STATES[Status(row.status)].meaning,
        "next": NO_RECONCILER if unattended else describe_next(row),
        "late": unattended or is_late(row),
        "bar": measure_lease(row),
        "timeline": build_timeline(row, reversed(found)),
        "content": _load_content(row) if user.has_perm(MAY_SEE_CONTENT) else None,
        "body_size": None if row.body_size is None else format_size(row.body_size),
        "neighbours": find_neighbours(row),
        "actions": [each for each in actions.list_offered(row.status, user) if not (each.polls and unattended)],
    }


def _load_content(row: IdempotencyKey) -> dict[str, Any]:
    """Return the stored response, arguments and results. The store reads them as for a replay."""
    record = records.find(row.ref)
    reply = record.reply if record is not None else None
    headers = reply.headers if reply is not None else ()
    with_result = [step for step in load_steps(row) if step.result is not None]
    results = describe_all_json(json.dumps(step.result) for step in with_result)
    kind = next((value for name, value in headers if name.lower() == "content-type"), "")
    return {
        "headers": [(replace_surrogates(name), replace_surrogates(value)) for name, value in headers],
        "body": describe_bytes(reply.body, kind) if reply is not None else None,
        "arguments": describe_json(row.arguments),
        "results": list(zip((step.name for step in with_result), results, strict=True)),
    }


def measure_lease(row: Any) -> dict[str, Any] | None:
    """Return how much of the lease is used up; None without a lease."""
    if row.locked_until is None:
        return None
    whole = max(1, row.lease_seconds)
    left = (row.locked_until - row.now).total_seconds()
    if left <= 0:
        text = _("expired %s ago") % format_interval(-left, units=1)
    else:
        text = _("%(left)s of %(whole)s left") % {
            "left": format_interval(left),
            "whole": format_interval(whole),
        }
    return {"whole": whole, "used": min(whole, max(0, int(whole - left))), "text": text, "over": left <= 0}


def find_neighbours(row: Any) -> dict[str, list[Neighbour]]:
    """Return records of the same principal and operation, among those created just before and just after."""
    if not row.principal:
        return {"before": [], "after": []}
    base = IdempotencyKey.objects.using(alias())
    times = base.order_by().values("created_at")
    older = times.filter(created_at__lt=row.created_at).order_by("-created_at")[AROUND : AROUND + 1]
    newer = times.filter(created_at__gt=row.created_at).order_by("created_at")[AROUND : AROUND + 1]
    near = base.only("id", "key", "status", "created_at", "attempts").filter(
        ~Q(pk=row.pk),
        principal=row.principal,
        operation=row.operation,
        created_at__gte=Coalesce(Subquery(older), Value(row.created_at - A_CENTURY)),
        created_at__lte=Coalesce(Subquery(newer), Value(row.created_at + A_CENTURY)),
    )
    found = list(near.order_by("created_at", "pk")[: 2 * AROUND])
    before = [Neighbour(each) for each in found if each.created_at <= row.created_at]
    after = [Neighbour(each) for each in found if each.created_at > row.created_at]
    return {"before": before[-NEIGHBOURS:], "after": after[:NEIGHBOURS]}
