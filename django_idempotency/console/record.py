"""The page of one record: its state, what happened, request and response, and what an operator can do."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.contrib.admin import AdminSite
from django.db.models import Q, Subquery, Value
from django.db.models.functions import Coalesce, Length
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from django_idempotency.conf import conf
from django_idempotency.console import actions
from django_idempotency.console.bodies import describe_all_json, describe_bytes, describe_json, replace_surrogates
from django_idempotency.console.downstream import list_downstream
from django_idempotency.console.keyset import Rows
from django_idempotency.console.outlook import describe_outlook
from django_idempotency.console.relations import decode_scope, find_related
from django_idempotency.console.sight import hide_key, may_see_content
from django_idempotency.console.timeline import build_story, count_mismatches, load_steps
from django_idempotency.console.wording import EFFECTS, badge, format_size, shorten_key
from django_idempotency.core.links import docs_url
from django_idempotency.core.progress import Step
from django_idempotency.core.states import Status
from django_idempotency.models import IdempotencyEvent, IdempotencyKey
from django_idempotency.monitoring.units import format_interval
from django_idempotency.store import records
from django_idempotency.store.records import alias

EVENTS_SHOWN: Final = 200
AROUND: Final = 500  # how many records before and after are looked at for neighbours
NEIGHBOURS: Final = 3
A_CENTURY: Final = timedelta(days=36_500)  # no record is so far from another


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


def find_row(rows: Rows, record: UUID, *, with_content: bool) -> Any:
    """Return the record with what its page shows, and without what this person may not see."""
    annotated = rows.annotate(body_size=Length("response_body")).defer(None)
    shown = annotated if with_content else annotated.defer("response_body", "response_headers")
    return shown.filter(pk=record).first()


def build_context(row: Any, request: HttpRequest, site: AdminSite) -> dict[str, Any]:
    may_see, outlook = may_see_content(request.user), describe_outlook(hide_key(row, request.user))
    context, (user, related) = build_story_context(row), find_related(row, site, request)
    offered = [each for each in actions.list_offered(row.status, request.user) if outlook.allows(each)]
    return {
        **context,
        "title": shorten_key(row.key),
        "row": row,
        "badge": badge(row.status),
        "outlook": outlook,
        "effect": EFFECTS[records.read_effect(row)],
        "bar": measure_lease(row),
        "may_see_content": may_see,
        "content": _load_content(row, context["steps"]) if may_see else None,
        "body_size": None if row.body_size is None else format_size(row.body_size),
        "neighbours": find_neighbours(row, request.user),
        "scope": decode_scope(row.scope),
        "principal": user,
        "related": related,
        "tries": conf.RECONCILE_TRIES,
        "actions": offered,
        "runbook": offered if outlook.needs_verdict else [],  # each follows from what a person found out
    }


def build_story_context(row: Any) -> dict[str, Any]:
    """Return what happened to a record, and the downstream keys that it sent."""
    latest = IdempotencyEvent.objects.using(alias()).filter(record_id=row.pk).order_by("-id")[:EVENTS_SHOWN]
    events, steps = list(latest)[::-1], load_steps(row)
    return {
        "story": build_story(row, events, steps),
        "steps": steps,
        "downstream": list_downstream(row, steps, events),
        "mismatches": count_mismatches(row, events),
        "states_url": docs_url("reference/states"),
    }


def _load_content(row: IdempotencyKey, steps: Sequence[Step]) -> dict[str, Any]:
    """Return the stored response, arguments and results. The store reads them as for a replay."""
    reply = records.reply_of(row)
    headers = reply.headers if reply is not None else ()
    with_result = [step for step in steps if step.result is not None]
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
    if row.locked_until is None or row.status == Status.PENDING:
        return None
    whole = max(1, row.lease_seconds)
    left = (row.locked_until - row.read_at).total_seconds()
    if left <= 0:
        text = _("expired %s ago") % format_interval(-left, units=1)
    else:
        text = _("%(left)s of %(whole)s left") % {
            "left": format_interval(left),
            "whole": format_interval(whole),
        }
    used = min(whole, max(0, int(whole - left)))
    return {"whole": whole, "last": whole - 1, "used": used, "text": text, "over": left <= 0}


def find_neighbours(row: Any, user: Any) -> dict[str, list[Neighbour]]:
    """Return records of the same principal and operation, among those created just before and just after."""
    if not row.principal:
        return {"before": [], "after": []}
    base = IdempotencyKey.objects.using(alias())
    times = base.order_by().values("created_at")
    older = times.filter(created_at__lt=row.created_at).order_by("-created_at")[AROUND : AROUND + 1]
    newer = times.filter(created_at__gt=row.created_at).order_by("created_at")[AROUND : AROUND + 1]
    near = base.only("id", "key", "principal", "status", "created_at", "attempts").filter(
        ~Q(pk=row.pk),
        tenant=row.tenant,
        principal=row.principal,
        operation=row.operation,
        created_at__gte=Coalesce(Subquery(older), Value(row.created_at - A_CENTURY)),
        created_at__lte=Coalesce(Subquery(newer), Value(row.created_at + A_CENTURY)),
    )
    found = list(near.order_by("created_at", "pk")[: 2 * AROUND])
    before = [Neighbour(hide_key(each, user)) for each in found if each.created_at <= row.created_at]
    after = [Neighbour(hide_key(each, user)) for each in found if each.created_at > row.created_at]
    return {"before": before[-NEIGHBOURS:], "after": after[:NEIGHBOURS]}
