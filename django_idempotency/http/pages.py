"""The layer's error responses for people: as a page or as text, if the client prefers these to JSON."""

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
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
            content = _render_page(details, request) if preferred == _HTML else _render_text(details)
            headers = {"Content-Type": f"{preferred}; charset=utf-8", **problem_headers(details, profile)}
            response = HttpResponse(content, status=details.status, headers=headers)
        except Exception:  # noqa: BLE001 - a failing template must not turn this response into a 500
            logger.exception("The template refusal.html failed. The error response was sent as JSON.")
            response = problem_response(details, profile)
    patch_vary_headers(response, ("Accept",))
    return response


def _render_page(details: ProblemDetails, request: HttpRequest) -> str:
    """Return the page in the language of the request."""
    shown = {
        "title": _(details.problem.title),
        "detail": _translate_detail(details.detail or details.problem.detail),
        "wait": _describe_wait(details),
        "try_again": details.problem in _MAY_BE_SENT_AGAIN,
        "reference": _reference(details),
    }
    return render_to_string("django_idempotency/refusal.html", shown, request)


@override("en")
def _render_text(details: ProblemDetails) -> str:
    """Return a text for scripts and terminals, in English as problem bodies are."""
    reference = _reference(details)
    parts = (details.problem.title, details.detail or details.problem.detail, _describe_wait(details))
    return "\n\n".join(filter(None, (*parts, reference and f"Reference: {reference}"))) + "\n"


def _reference(details: ProblemDetails) -> str:
    return str(details.members.get("operation_ref", ""))


def _describe_wait(details: ProblemDetails) -> str:
    if details.retry_after is None:
        return ""
    return _("Wait %(time)s before you try again.") % {"time": format_interval(details.retry_after)}


def _translate_detail(detail: str) -> str:
    """Return the detail with its sentences translated. What it adds for developers stays as it is."""
    known = next((text for text in problems.DETAILS if detail.startswith(text)), "")
    return (_(known) if known else "") + detail.removeprefix(known)
