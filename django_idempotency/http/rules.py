"""The rules page: what clients of the protected endpoints have to know, in HTML and JSON."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.defaultfilters import filesizeformat
from django.urls import get_script_prefix, get_urlconf
from django.utils.translation import override
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from django_idempotency.conf import urlconf
from django_idempotency.core import problems
from django_idempotency.core.fingerprint import FingerprintRule
from django_idempotency.core.policy import AfterExpiry, Mode, OnError, Policy
from django_idempotency.core.profiles import Profile
from django_idempotency.http.atomic_requests import opt_out_of_atomic_requests
from django_idempotency.http.inventory import ListedEndpoint, list_endpoints
from django_idempotency.http.responses import OMITTED_HEADER
from django_idempotency.monitoring.units import format_interval

_MAX_AGE: Final = 300  # seconds: the rules change with the code and the settings
_MEDIA_TYPES: Final = ("text/html", "application/json")
_AFTER_AN_ERROR: Final = {
    OnError.DOUBT: "The outcome is unknown.",
    OnError.STORE: "The error response is stored, and a retry gets it.",
    OnError.RELEASE: "A retry runs the request again.",
}
_UNDONE: Final = "All changes of the request are undone, and a retry runs it again."
_CONVERTER: Final = re.compile(r"<(?:\w+:)?(\w+)>")


@opt_out_of_atomic_requests  # it opens no database
@cache_control(max_age=_MAX_AGE)
@vary_on_headers("Accept")
@require_safe
def rules_view(request: HttpRequest) -> HttpResponse:
    """Publish the rules of the project's protected endpoints."""
    with override("en"):
        page = {
            "rules": list_rules(get_urlconf() or urlconf(), get_script_prefix()),
            "problems": [describe_problem(each, request) for each in problems.PROBLEMS],
        }
        if request.get_preferred_type(_MEDIA_TYPES) == "application/json":
            return JsonResponse(page)
        return render(request, "django_idempotency/rules.html", page)


def describe_problem(problem: problems.Problem, request: HttpRequest) -> dict[str, str]:
    return {
        "type": f"{request.path}#{problem.code}",
        "code": problem.code,
        "title": problem.title,
        "detail": problem.detail,
    }


def list_rules(root: Any, prefix: str) -> list[dict[str, Any]]:
    """Return the rules of the protected endpoints. Endpoints with the same rules share an entry.

    `root` is the URLconf of the request, and `prefix` what the server puts before its paths.
    """
    found: dict[str, dict[str, Any]] = {}
    for entry in list_endpoints(root):
        if entry.policy is not None and entry.policy.published and not entry.is_foreign:
            rules = describe_rules(entry.policy)
            shared = found.setdefault(json.dumps(rules), {"endpoints": [], **rules})
            shared["endpoints"].append(describe_endpoint(entry, prefix))
    return list(found.values())


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
            for about, text, problem in _sentences(policy)
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


def _sentences(policy: Policy) -> Iterator[tuple[str, str, problems.Problem | None]]:
    """Yield what a sentence is about, the sentence, and the problem that a client may get."""
    profile = policy.profile
    yield "The key", _describe_key(policy), problems.INVALID_KEY
    if policy.required:
        yield "Without a key", f"The request is rejected with {profile.missing}.", problems.MISSING_KEY
    else:
        yield "Without a key", "The request runs, and a retry runs it again.", None
    if policy.skip is not None:
        yield "Requests that need no key", "Some requests run without protection, and a retry runs them again.", None
    yield "Whose key it is", _describe_owner(policy), problems.NO_PRINCIPAL
    first = f" The first response has {profile.replayed_header}: false." if profile.mark_first else ""
    yield (
        "A retry",
        "Send the same request with the same key. It gets the stored response, with the header "
        f"{profile.replayed_header}: true, and is not executed again.{first}",
        None,
    )
    wait = f" after up to {format_interval(policy.wait)}" if policy.wait else ""
    yield (
        "While the first request is running",
        f"A retry gets {profile.in_flight}{wait}. Send it again after the seconds in Retry-After.",
        problems.IN_FLIGHT,
    )
    yield (
        "The same key with another request",
        f"It gets {profile.mismatch}, and nothing is executed. The error response names the parts that differ, as far "
        f"as they are known. {_describe_comparison(policy.fingerprint)}",
        problems.MISMATCH,
    )
    is_undone = policy.mode is Mode.ATOMIC
    yield "After an unexpected error", _UNDONE if is_undone else _AFTER_AN_ERROR[policy.on_error], None
    yield (
        "An unknown outcome",
        f"A retry gets {profile.unknown} until the outcome is settled. Send it again after the seconds in Retry-After, "
        "and do not use another key.",
        problems.UNKNOWN,
    )
    yield "What is stored", _describe_stored(policy, profile), None
    if profile.codes:
        own = "; ".join(f"{ours} is sent as {theirs}" for ours, theirs in profile.codes.items())
        yield "Error codes", f"Some have names of their own here: {own}.", None
    gone = policy.after_expiry is AfterExpiry.GONE
    yield "For how long", _describe_lifetime(policy, gone=gone), problems.EXPIRED if gone else None


def _describe_key(policy: Policy) -> str:
    rule = policy.key
    where = f"Send it in the header {policy.profile.header}."
    if policy.key_source is not None:
        where = "The documentation of the operation says where to send it."
    sentences = [
        where,
        f"It has {rule.min_length} to {rule.max_length} visible ASCII characters.",
    ]
    if rule.strict:
        sentences.append(f'It must be in double quotes: "{problems.EXAMPLE_KEY}".')
    else:
        sentences.append(
            f"For example: {problems.EXAMPLE_KEY}. A key that contains a space, a comma, a semicolon or a double quote "
            "must be in double quotes."
        )
    if rule.validator is not None:
        sentences.append("It is checked further, and the error response gives the reason.")
    return " ".join(sentences)


def _describe_owner(policy: Policy) -> str:
    if policy.scope is None:
        owner = "The key belongs to the authenticated caller and to this operation."
    elif isinstance(policy.scope, str):
        owner = "The key belongs to the session and to this operation."
    else:
        owner = "The server decides from the request whose key it is. The key belongs to this operation."
    if policy.tenant:
        owner += " The keys of each tenant are separate."
    if policy.anonymous_unprotected:
        return f"{owner} Without credentials the request runs, and a retry runs it again."
    if policy.share_anonymous:
        guess = "" if policy.guessable_anonymous else " Their keys must be random."
        return f"{owner} Callers without credentials share theirs.{guess}"
    return f"{owner} Without credentials the request is rejected." if policy.scope is None else owner


def _describe_comparison(rule: FingerprintRule) -> str:
    if rule.custom is not None:
        return "The method, the path and what the server considers relevant are compared."
    compared = ["the method", "the path", "the query string", *(f"the header {name}" for name in rule.headers)]
    if rule.fields is not None:
        compared.append(f"of the body {', '.join(rule.fields)}")
    elif rule.body:
        ignored = f", except for {', '.join(rule.ignored)}" if rule.ignored else ""
        compared.append(f"the body{ignored} and its content type")
    return f"Compared are: {', '.join(compared)}."


def _describe_stored(policy: Policy, profile: Profile) -> str:
    rule = policy.reply
    stored = "The status and the headers" if not rule.body else "The status, the headers and the body"
    errors = "Error responses are stored too."
    if profile.release_invalid or policy.store is not None or policy.is_error is not None:
        errors = "Of the error responses, some are not stored; then the same key may be used again."
    if not rule.body:
        return f"{stored}. {errors}"
    return (
        f"{stored}, if it has no more than {filesizeformat(rule.longest_body)}. A retry that gets no body has the "
        f"header {OMITTED_HEADER}: omitted. {errors}"
    )


def _describe_lifetime(policy: Policy, *, gone: bool) -> str:
    if policy.retention is None:
        return "Responses are kept for ever."
    after = f"a retry is rejected with {policy.profile.gone}" if gone else "the same key runs as a new request"
    return f"Responses are kept for {format_interval(policy.retention)}. After that, {after}."
