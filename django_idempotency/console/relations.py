"""Who and what a record is about: its principal's user, its scope in words, and rows that point at it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from django.apps import apps
from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import ForeignKey, Model, OuterRef, Subquery
from django.http import HttpRequest
from django.urls import reverse

from django_idempotency.console.keyset import Rows
from django_idempotency.models import IdempotencyKey

_PART: Final = re.compile(r"(\d+):")
_COLUMN: Final = "related_%d"


@dataclass(frozen=True, slots=True)
class Relation:
    """A row of the project: its name, its page and, for rows that point at the record, the list of all of them."""

    text: str
    url: str = ""
    all_url: str = ""


def decode_scope(scope: str) -> list[str]:
    """Return the parts of a request's scope; the scope itself if it is not made of parts."""
    parts, position = [], 0
    while position < len(scope):
        length = _PART.match(scope, position)
        if length is None or length.end() + int(length[1]) > len(scope):
            return [scope]
        parts.append(scope[length.end() : length.end() + int(length[1])])
        position = length.end() + int(length[1])
    return parts


def find_user(principal: str, site: AdminSite, request: HttpRequest) -> Relation | None:
    """Return the user that a principal names; None if it names none, or one that is gone."""
    kind, _colon, name = principal.partition(":")
    if kind != "user":
        return None
    label, _colon, number = name.rpartition(":")
    try:
        model: Any = apps.get_model(label) if label else get_user_model()
        row = model._base_manager.filter(pk=number).first()
    except (LookupError, ValueError, ValidationError):
        return None
    return None if row is None else Relation(str(row), _build_page_url(model, row.pk, site, request))


def find_principals(username: str) -> list[str]:
    """Return the principal of the user with this name."""
    model: Any = get_user_model()
    try:
        numbers = model._base_manager.filter(**{model.USERNAME_FIELD: username}).values_list("pk", flat=True)[:1]
        return [f"user:{number}" for number in numbers]
    except (ValueError, FieldDoesNotExist):
        return []


def annotate_related(rows: Rows) -> Rows:
    """Read with each record one row of each model that points at it. Costs no statement of its own."""
    found = {
        _COLUMN % position: Subquery(
            field.model._base_manager.filter(**{field.name: OuterRef("pk")}).order_by("pk").values("pk")[:1]
        )
        for position, field in enumerate(list_fields())
    }
    return rows.annotate(**found)


def list_related(row: Any, site: AdminSite, request: HttpRequest) -> Iterator[Relation]:
    """Return links to the rows that point at a record."""
    for position, field in enumerate(list_fields()):
        number = getattr(row, _COLUMN % position, None)
        if number is None:
            continue
        model = field.model
        text = f"{model._meta.verbose_name} {number}"
        page = _build_page_url(model, number, site, request)
        listing = f"{_build_url(model, 'changelist', [], site)}?{field.name}={row.pk}" if page else ""
        yield Relation(text, page, listing)


@lru_cache(maxsize=1)
def list_fields() -> tuple["ForeignKey[Any, Any]", ...]:
    """Return the project's foreign keys to records."""
    relations = IdempotencyKey._meta.related_objects
    return tuple(each.field for each in relations if isinstance(each.field, ForeignKey))


def _build_page_url(model: type[Model], number: Any, site: AdminSite, request: HttpRequest) -> str:
    """Return the page of a row in the admin; empty if there is none, or this person may not see it."""
    if not site.is_registered(model) or not site._registry[model].has_view_permission(request):
        return ""
    return _build_url(model, "change", [number], site)


def _build_url(model: type[Model], page: str, arguments: list[Any], site: AdminSite) -> str:
    options = model._meta
    return reverse(f"admin:{options.app_label}_{options.model_name}_{page}", args=arguments, current_app=site.name)
