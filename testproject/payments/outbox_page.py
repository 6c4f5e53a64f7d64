"""GET /outbox/: a page that pays with the JavaScript client, also while it is offline, reloaded or open twice"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

# The service is on this origin, or on another one of the same machine, as the address of the page says with `?api=`.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self' http://127.0.0.1:*; base-uri 'none'"
)


@require_safe
def show(request: HttpRequest) -> HttpResponse:
    response = render(request, "payments/outbox.html")
    response["Content-Security-Policy"] = POLICY
    return response
