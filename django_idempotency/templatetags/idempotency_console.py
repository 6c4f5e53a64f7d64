"""A template tag for the console's pages."""

from typing import Any

from django.template import Context, Library
from django.utils.module_loading import import_string

try:
    _with_nonce: Any = import_string("django.utils.csp.nonce_attr")
except ImportError:  # before Django 6.1, whose admin is the first with nonces
    _with_nonce = None

register = Library()


@register.simple_tag(takes_context=True)
def with_nonce(context: Context, media: Any = None) -> Any:
    """Return the response's CSP nonce as an attribute, or render scripts and style sheets with it."""
    if _with_nonce is None:
        return "" if media is None else media
    return _with_nonce(context, media)
