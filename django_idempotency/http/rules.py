"""The rules page: what clients of the protected endpoints have to know, in HTML and JSON."""

import json
import re
from typing import Any, Final

from django.apps import apps
from django.contrib.admin.sites import all_sites
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import get_script_prefix, get_urlconf
from django.utils.translation import gettext as _
from django.utils.translation import override
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from django_idempotency.conf import urlconf
from django_idempotency.core import problems
from django_idempotency.core.policy import AfterExpiry, Policy
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.http.inventory import ListedEndpoint, list_endpoints
from django_idempotency.http.rule_sentences import sentences

_MAX_AGE: Final = 300  # seconds: the rules change with the code and the settings
_MEDIA_TYPES: Final = ("text/html", "application/json")
_CONVERTER: Final = re.compile(r"<(?:\w+:)?(\w+)>")


@opt_out_of_atomic_requests  # it opens no database
@cache_control(max_age=_MAX_AGE)
@vary_on_headers("Accept")
@require_safe
def rules_view(request: HttpRequest) -> HttpResponse:
    """Publish the rules of the project's protected endpoints: the page in the reader's language, JSON in English."""
    if request.get_preferred_type(_MEDIA_TYPES) == "application/json":
        with override("en"):
            return JsonResponse(build_page(request))
    return render(request, "django_idempotency/rules.html", build_page(request))


def build_page(request: HttpRequest) -> dict[str, Any]:
    return {
        "rules": list_rules(get_urlconf() or urlconf(), get_script_prefix()),
        "problems": [describe_problem(each, request) for each in problems.PROBLEMS],
    }


def describe_problem(problem: problems.Problem, request: HttpRequest) -> dict[str, str]:
    return {
        "type": f"{request.path}#{problem.code}",
        "code": problem.code,
        "title": _(problem.title),
        "detail": _(problem.detail),
    }


def list_rules(root: Any, prefix: str) -> list[dict[str, Any]]:
    """Return the rules of the protected endpoints. Endpoints with the same rules share an entry.

    `root` is the URLconf of the request, and `prefix` what the server puts before its paths.
    """
    found: dict[str, dict[str, Any]] = {}
    for entry in list_endpoints(root):
        if entry.policy is not None and entry.policy.published and not (entry.is_foreign or _is_in_admin(entry)):
            rules = describe_rules(entry.policy)
            shared = found.setdefault(json.dumps(rules), {"endpoints": [], **rules})
            shared["endpoints"].append(describe_endpoint(entry, prefix))
    return list(found.values())


def _is_in_admin(entry: ListedEndpoint) -> bool:
    """True if the endpoint is below an admin, whose address may be a secret."""
    namespaces = entry.endpoint.name.split(":")[:-1]
    return apps.is_installed("django.contrib.admin") and any(site.name in namespaces for site in all_sites)


def describe_endpoint(entry: ListedEndpoint, prefix: str) -> dict[str, Any]:
    path = _CONVERTER.sub(r"{\1}", entry.paths[0])
    return {"methods": entry.methods, "path": prefix.rstrip("/") + path}


def describe_rules(policy: Policy) -> dict[str, Any]:
    """Return the rules of an endpoint: fields for machines, sentences for people, and no name of the project's code."""
    profile = policy.profile
    return {
        "header": profile.header if policy.key_source is None else None,
        "required": policy.required,
        "mode": policy.mode,
        "min_length": policy.key.min_length,
        "max_length": policy.key.max_length,
        "quotes_required": policy.key.strict,
        "lifetime": policy.retention and policy.retention.total_seconds(),
        "after_lifetime": policy.after_expiry,
        "replayed_header": profile.replayed_header,
        "statuses": list_statuses(policy),
        "codes": dict(profile.codes),
        "sentences": [
            {"about": about, "text": text, "code": problem.code if problem else None}
            for about, text, problem in sentences(policy)
        ],
    }


def list_statuses(policy: Policy) -> dict[str, int]:
    """Return the status of each error response that depends on the profile."""
    profile = policy.profile
    statuses = {
        problems.INVALID_KEY: profile.invalid,
        problems.MISMATCH: profile.mismatch,
        problems.IN_FLIGHT: profile.in_flight,
        problems.UNKNOWN: profile.unknown,
        problems.NOTHING_DONE: profile.unavailable,
        problems.UNAVAILABLE: profile.unavailable,
    }
    if policy.required:
        statuses[problems.MISSING_KEY] = profile.missing
    if policy.after_expiry is AfterExpiry.GONE:
        statuses[problems.EXPIRED] = profile.gone
    return {problem.code: status for problem, status in statuses.items()}
