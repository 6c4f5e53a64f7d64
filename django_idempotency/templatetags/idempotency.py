"""A template tag for forms, which cannot send a header."""

from contextlib import suppress
from typing import Any
from uuid import uuid4

from django.template import Context, Library
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_idempotency.core.validation import SESSION_SCOPES
from django_idempotency.http.forms import FORM_FIELD
from django_idempotency.http.inventory import take_inventory
from django_idempotency.http.sessions import begin_session

register = Library()


@register.simple_tag(takes_context=True)
def idempotency_key(context: Context) -> SafeString:
    """Render the hidden field with a new key: one rendering of a form is one order, however often it is sent.

    If an endpoint of the project knows its callers by their session, a guest who has none gets one with this page.
    """
    session: Any = getattr(context.get("request"), "session", None)
    if session is not None and _knows_guests():
        begin_session(session)
    return format_html('<input type="hidden" name="{}" value="{}">', FORM_FIELD, uuid4())


def _knows_guests() -> bool:
    with suppress(ValueError):  # the checks report what is wrong with a policy
        return any(each.policy is not None and each.policy.scope in SESSION_SCOPES for each in take_inventory())
    return False
