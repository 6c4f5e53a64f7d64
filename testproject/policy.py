"""The Content-Security-Policy of every page: nothing inline, nothing from elsewhere."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.deprecation import MiddlewareMixin
from django.utils.module_loading import import_string

POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'"


class StrictPolicy(MiddlewareMixin):
    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if response.headers.get("Content-Type", "").startswith("text/html"):
            response.headers.setdefault("Content-Security-Policy", POLICY)
        return response


def with_nonces() -> dict[str, list[Any]]:
    """The same for Django's own middleware, which came with Django 6: scripts and styles need the answer's nonce."""
    nonce = import_string("django.utils.csp.CSP").NONCE
    own = ["'self'"]
    nothing = ["'none'"]
    return {
        "default-src": nothing,
        "script-src": [nonce],
        "style-src": [nonce],
        "img-src": own,
        "form-action": own,
        "base-uri": nothing,
    }
