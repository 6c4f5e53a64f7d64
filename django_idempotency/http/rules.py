"""The rules page: what clients of the protected endpoints have to know, in HTML and JSON."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.defaultfilters import filesizeformat
from django.urls import get_script_prefix, get_urlconf
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override
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
    OnError.DOUBT: gettext_lazy("The outcome is unknown."),
    OnError.STORE: gettext_lazy("The error response is stored, and a retry gets it."),
    OnError.RELEASE: gettext_lazy("A retry runs the request again."),
}
_UNDONE: Final = gettext_lazy("All changes of the request are undone, and a retry runs it again.")
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
    yield _("The key"), _describe_key(policy), problems.INVALID_KEY
    yield from _describe_missing_key(policy)
    yield _("Whose key it is"), _describe_owner(policy), problems.NO_PRINCIPAL
    yield from _describe_retries(policy)
    is_undone = policy.mode is Mode.ATOMIC
    error: str | Promise = _UNDONE if is_undone else _AFTER_AN_ERROR[policy.on_error]
    yield _("After an unexpected error"), str(error), None
    text = _(
        "A retry gets %(status)s until the outcome is settled. Send it again after the seconds in Retry-After, and do "
        "not use another key."
    )
    yield _("An unknown outcome"), text % {"status": policy.profile.unknown}, problems.UNKNOWN
    yield _("What is stored"), _describe_stored(policy, policy.profile), None
    if policy.profile.codes:
        renamed = _("%(code)s is sent as %(name)s")
        own = "; ".join(renamed % {"code": ours, "name": theirs} for ours, theirs in policy.profile.codes.items())
        yield _("Error codes"), _("Some have names of their own here: %(names)s.") % {"names": own}, None
    gone = policy.after_expiry is AfterExpiry.GONE
    yield _("For how long"), _describe_lifetime(policy, gone=gone), problems.EXPIRED if gone else None


def _describe_missing_key(policy: Policy) -> Iterator[tuple[str, str, problems.Problem | None]]:
    if policy.required:
        text = _("The request is rejected with %(status)s.") % {"status": policy.profile.missing}
        yield _("Without a key"), text, problems.MISSING_KEY
    else:
        yield _("Without a key"), _("The request runs, and a retry runs it again."), None
    if policy.skip is not None:
        text = _("Some requests run without protection, and a retry runs them again.")
        yield _("Requests that need no key"), text, None


def _describe_retries(policy: Policy) -> Iterator[tuple[str, str, problems.Problem | None]]:
    profile = policy.profile
    header = {"header": profile.replayed_header}
    text = _(
        "Send the same request with the same key. It gets the stored response, with the header %(header)s: true, and "
        "is not executed again."
    )
    first = _("The first response has %(header)s: false.") if profile.mark_first else ""
    yield _("A retry"), " ".join(filter(None, (text, first))) % header, None
    text = _("A retry gets %(status)s. Send it again after the seconds in Retry-After.")
    if policy.wait:
        text = _("A retry gets %(status)s after up to %(time)s. Send it again after the seconds in Retry-After.")
    values = {"status": profile.in_flight, "time": format_interval(policy.wait or 0)}
    yield _("While the first request is running"), text % values, problems.IN_FLIGHT
    text = _(
        "It gets %(status)s, and nothing is executed. The error response names the parts that differ, as far as they "
        "are known."
    )
    comparison = _describe_comparison(policy.fingerprint)
    sentences = f"{text % {'status': profile.mismatch}} {comparison}"
    yield _("The same key with another request"), sentences, problems.MISMATCH


def _describe_key(policy: Policy) -> str:
    rule, example = policy.key, {"key": problems.EXAMPLE_KEY}
    where = _("Send it in the header %(header)s.") % {"header": policy.profile.header}
    if policy.key_source is not None:
        where = _("The documentation of the operation says where to send it.")
    length = _("It has %(least)d to %(most)d visible ASCII characters.")
    quotes = _(
        "For example: %(key)s. A key that contains a space, a comma, a semicolon or a double quote must be in double "
        "quotes."
    )
    if rule.strict:
        quotes = _('It must be in double quotes: "%(key)s".')
    sentences = [where, length % {"least": rule.min_length, "most": rule.max_length}, quotes % example]
    if rule.validator is not None:
        sentences.append(_("It is checked further, and the error response gives the reason."))
    return " ".join(sentences)


def _describe_owner(policy: Policy) -> str:
    if policy.scope is None:
        owner = _("The key belongs to the authenticated caller and to this operation.")
    elif isinstance(policy.scope, str):
        owner = _("The key belongs to the session and to this operation.")
    else:
        owner = _("The server decides from the request whose key it is. The key belongs to this operation.")
    tenants = _("The keys of each tenant are separate.") if policy.tenant else ""
    return " ".join(filter(None, (owner, tenants, *_describe_anonymous(policy))))


def _describe_anonymous(policy: Policy) -> Iterator[str]:
    if policy.anonymous_unprotected:
        yield _("Without credentials the request runs, and a retry runs it again.")
    elif policy.share_anonymous:
        yield _("Callers without credentials share theirs.")
        yield "" if policy.guessable_anonymous else _("Their keys must be random.")
    elif policy.scope is None:
        yield _("Without credentials the request is rejected.")


def _describe_comparison(rule: FingerprintRule) -> str:
    if rule.custom is not None:
        return _("The method, the path and what the server considers relevant are compared.")
    headers = (_("the header %(name)s") % {"name": name} for name in rule.headers)
    compared = [_("the method"), _("the path"), _("the query string"), *headers]
    if rule.fields is not None:
        compared.append(_("of the body %(fields)s") % {"fields": ", ".join(rule.fields)})
    elif rule.body and rule.ignored:
        text = _("the body, except for %(fields)s and its content type")
        compared.append(text % {"fields": ", ".join(rule.ignored)})
    elif rule.body:
        compared.append(_("the body and its content type"))
    return _("Compared are: %(parts)s.") % {"parts": ", ".join(compared)}


def _describe_stored(policy: Policy, profile: Profile) -> str:
    rule = policy.reply
    errors = _("Error responses are stored too.")
    if profile.release_invalid or policy.store is not None or policy.is_error is not None:
        errors = _("Of the error responses, some are not stored; then the same key may be used again.")
    stored = _("The status and the headers.")
    if rule.body:
        stored = _(
            "The status, the headers and the body, if it has no more than %(size)s. A retry that gets no body has the "
            "header %(header)s: omitted."
        ) % {"size": filesizeformat(rule.longest_body), "header": OMITTED_HEADER}
    return f"{stored} {errors}"


def _describe_lifetime(policy: Policy, *, gone: bool) -> str:
    if policy.retention is None:
        return _("Responses are kept for ever.")
    text = _("Responses are kept for %(time)s. After that, the same key runs as a new request.")
    if gone:
        text = _("Responses are kept for %(time)s. After that, a retry is rejected with %(status)s.")
    return text % {"time": format_interval(policy.retention), "status": policy.profile.gone}
