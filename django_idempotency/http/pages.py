"""The layer's error responses for people: as a page or as text, if the client prefers these to JSON."""

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers
from django.utils.translation import override

from django_idempotency.core import problems
from django_idempotency.core.profiles import Profile
from django_idempotency.http.responses import ProblemDetails, problem_headers, problem_response
from django_idempotency.monitoring.units import format_interval
from django_idempotency.signals import logger

_HTML: Final = "text/html"
_TEXT: Final = "text/plain"
_MEDIA_TYPES: Final = ("application/problem+json", "application/json", _HTML, _TEXT)  # the first one for */*
_MAY_BE_SENT_AGAIN: Final = {problems.IN_FLIGHT, problems.UNKNOWN, problems.NOTHING_DONE, problems.UNAVAILABLE}


def negotiated_response(details: ProblemDetails, profile: Profile, request: HttpRequest) -> HttpResponse:
    """Return problem details in the form that the client's Accept header prefers."""
    preferred = request.get_preferred_type(_MEDIA_TYPES)
    if preferred not in (_HTML, _TEXT):
        response = problem_response(details, profile)
    else:
        try:
            content = _render(details, request, page=preferred == _HTML)
            headers = {"Content-Type": f"{preferred}; charset=utf-8", **problem_headers(details, profile)}
            response = HttpResponse(content, status=details.status, headers=headers)
        except Exception:  # noqa: BLE001 - a failing template must not turn this response into a 500
            logger.exception("The template refusal.html failed. The error response was sent as JSON.")
            response = problem_response(details, profile)
    patch_vary_headers(response, ("Accept",))
    return response


def _render(details: ProblemDetails, request: HttpRequest, *, page: bool) -> str:
    title, detail = details.problem.title, details.detail or details.problem.detail
    reference = details.members.get("operation_ref", "")
    with override("en"):
        seconds = details.retry_after
        wait = "" if seconds is None else f"Wait {format_interval(seconds)} before you try again."
        if page:
            again = details.problem in _MAY_BE_SENT_AGAIN
            shown = {"title": title, "detail": detail, "wait": wait, "try_again": again, "reference": reference}
            return render_to_string("django_idempotency/refusal.html", shown, request)
    return "\n\n".join(filter(None, (title, detail, wait, reference and f"Reference: {reference}"))) + "\n"
