"""The sentences of the rules page about one endpoint."""

from collections.abc import Iterator
from typing import Final

from django.template.defaultfilters import filesizeformat
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_idempotency.core import problems
from django_idempotency.core.fingerprint import FingerprintRule
from django_idempotency.core.policy import AfterExpiry, Mode, OnError, Policy
from django_idempotency.core.profiles import Profile
from django_idempotency.monitoring.units import format_interval

_AFTER_AN_ERROR: Final = {
    OnError.DOUBT: gettext_lazy("The outcome is unknown."),
    OnError.STORE: gettext_lazy("The error response is stored, and a retry gets it."),
    OnError.RELEASE: gettext_lazy("A retry runs the request again."),
}
_UNDONE: Final = gettext_lazy("All changes of the request are undone, and a retry runs it again.")


def sentences(policy: Policy) -> Iterator[tuple[str, str, problems.Problem | None]]:
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
            "The status, the headers and the body, if it has no more than %(size)s. If the body of a success is not "
            "stored, a retry gets %(status)s."
        ) % {"size": filesizeformat(rule.longest_body), "status": profile.not_stored}
    return f"{stored} {errors}"


def _describe_lifetime(policy: Policy, *, gone: bool) -> str:
    if policy.retention is None:
        return _("Responses are kept for ever.")
    text = _("Responses are kept for %(time)s. After that, the same key runs as a new request.")
    if gone:
        text = _("Responses are kept for %(time)s. After that, a retry is rejected with %(status)s.")
    return text % {"time": format_interval(policy.retention), "status": policy.profile.gone}
