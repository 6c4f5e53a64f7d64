"""A template tag for forms, which cannot send a header."""

from uuid import uuid4

from django.template import Library
from django.utils.html import format_html
from django.utils.safestring import SafeString

from django_idempotency.http.forms import FORM_FIELD

register = Library()


@register.simple_tag
def idempotency_key() -> SafeString:
    """Render the hidden field with a new key: one rendering of a form is one order, however often it is sent."""
    return format_html('<input type="hidden" name="{}" value="{}">', FORM_FIELD, uuid4())
