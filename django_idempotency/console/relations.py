"""Who and what a record is about: its principal's user, its scope in words, and rows that point at it."""

import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from django.apps import apps
from django.contrib.admin import AdminSite
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import CharField, ForeignKey, Min, Model, Value
from django.db.models.functions import Cast
from django.http import HttpRequest
from django.urls import reverse

from django_idempotency.models import IdempotencyKey

_PART: Final = re.compile(r"(\d+):")
_USER: Final = -1  # in place of the position of a foreign key


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


def find_principals(username: str) -> list[str]:
    """Return the principal of the user with this name."""
    model: Any = get_user_model()
    try:
        numbers = model._base_manager.filter(**{model.USERNAME_FIELD: username}).values_list("pk", flat=True)[:1]
        return [f"user:{number}" for number in numbers]
    except (ValueError, FieldDoesNotExist):
        return []


def find_related(row: IdempotencyKey, site: AdminSite, request: HttpRequest) -> tuple[Relation | None, list[Relation]]:
    """Return the user that the principal names, and of each model that points at the record one row and their list."""
    user, pointing = None, []
    for position, number in _read(row):
        if position == _USER:
            model, key = _parse_user(row.principal)
            user = Relation(number, _build_page_url(model, key, site, request))
            continue
        field = list_fields()[position]
        page = _build_page_url(field.model, number, site, request)
        listing = f"{_build_url(field.model, 'changelist', [], site)}?{field.name}={row.pk}" if page else ""
        pointing.append(Relation(f"{field.model._meta.verbose_name} {number}", page, listing))
    return user, pointing


def _read(row: IdempotencyKey) -> list[tuple[int, str]]:
    """Read the user's name and the first row that points at the record by each foreign key: one statement a database.

    It does not read the records. Citus would refuse to join them with the project's tables here.
    """
    asked: dict[str, list[Any]] = {}
    queries = [
        _first_text(field.model._base_manager.using(row._state.db).filter(**{field.name: row.pk}), position, "pk")
        for position, field in enumerate(list_fields())
    ]
    model, number = _parse_user(row.principal)
    if model is not None:
        with suppress(ValueError, ValidationError):
            queries.append(_first_text(model._base_manager.filter(pk=number), _USER, model.USERNAME_FIELD))
    for query in queries:
        asked.setdefault(query.db, []).append(query)
    found = [each for first, *others in asked.values() for each in first.union(*others, all=True).order_by()]
    return sorted((position, text) for position, text in found if text is not None)


def _first_text(rows: Any, position: int, column: str) -> Any:
    """Ask for the smallest value of a column as text, None without rows, marked by the position."""
    marked = rows.order_by().values(position=Value(position))
    return marked.annotate(text=Min(Cast(column, CharField(max_length=255)))).values_list("position", "text")


def _parse_user(principal: str) -> tuple[Any, str]:
    """Return the model and the primary key of the user that a principal names; None if it names none."""
    kind, _colon, name = principal.partition(":")
    label, _colon, number = name.rpartition(":")
    try:
        model: Any = apps.get_model(label) if label else get_user_model()
    except (LookupError, ValueError):
        return None, ""
    return (model, number) if kind == "user" and hasattr(model, "USERNAME_FIELD") else (None, "")


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
