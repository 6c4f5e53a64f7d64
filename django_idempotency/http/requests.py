"""From a request to a call: its principal, its key and its fingerprint."""

import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from django.core.exceptions import BadRequest
from django.http import HttpRequest
from django.http.request import RawPostDataException

from django_idempotency.conf import conf, user_model
from django_idempotency.core.calls import ANONYMOUS, Call
from django_idempotency.core.canonical import drop_fields
from django_idempotency.core.fingerprint import URLENCODED, RequestParts, seal
from django_idempotency.core.keys import LONGEST, digest_text, fit_name, parse_key, unguessable
from django_idempotency.core.policy import Policy
from django_idempotency.core.validation import discard_awaitable
from django_idempotency.exceptions import InvalidKey, NoPrincipal, UnreadBody
from django_idempotency.http.forms import (
    FORM_FIELD,
    FORMS,
    MULTIPART,
    NOT_FINGERPRINTED,
    keep_body,
    parse_form,
    read_fields,
    read_files,
    read_form,
)
from django_idempotency.http.private_names import body_was_read, drain_stream, parsed_uploads, rewind_stream
from django_idempotency.http.sessions import earlier_session_principals, session_principal
from django_idempotency.http.users import primary_key
from django_idempotency.signals import logger

UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")
# Cookies in which an authentication that the package does not know may find its caller.
_TOKEN_NAME: Final = re.compile(
    r"(?:^|[-_])(?:jwt|auth|(?:auth|access|refresh|id|api)[-_]?(?:token|key))(?:$|[-_])|^(?:access|refresh)$",
    re.IGNORECASE,
)
_JWT: Final = re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]*")


def key_lines(request: HttpRequest, policy: Policy) -> list[str]:
    """Return the values of the key's header; for a form without that header, the value of its field.

    If the policy has a source for keys, return what that says instead.
    """
    if policy.key_source is not None:
        return _lines_from(policy.key_source(request), request, policy)
    line = header(request, policy.profile.header)
    if line is None and request.content_type in FORMS:
        line = read_form(request).get(FORM_FIELD)
    return [] if line is None else [line]


def _lines_from(found: Any, request: HttpRequest, policy: Policy) -> list[str]:
    """Return what the policy's source found as a list. Two different keys are refused like two header lines."""
    discard_awaitable(found)
    lines = [found] if isinstance(found, str) else found or []
    if not isinstance(lines, Collection) or not all(isinstance(line, str) for line in lines):
        operation = operation_of_request(request, policy)
        logger.error("The `key_source` of the operation %r returned no text but %r.", operation, found)
        raise InvalidKey("not_a_string", "The key of this request could not be read.")
    return list(dict.fromkeys(lines))


def may_have_key(request: HttpRequest, policy: Policy) -> bool:
    """True if the request has a key in its header, or is a form: uploads are parsed when the caller is known."""
    return header(request, policy.profile.header) is not None or request.content_type in FORMS


def header(request: HttpRequest, name: str) -> str | None:
    """Return one header, or None. Building `request.headers` would cost more time than the fingerprint."""
    value: str | None = request.META.get("HTTP_" + name.upper().replace("-", "_"))
    return value


def call_from(request: HttpRequest, lines: list[str], policy: Policy, principal: str | None, data: Any = None) -> Call:
    """Return the call that this request makes. InvalidKey and NoPrincipal are raised before any query.

    `data` is a multipart body that the framework has parsed.
    """
    guessable = principal is not None or policy.guessable_anonymous
    key = parse_key(lines, policy.key, first=None if guessable else unguessable)
    if principal is None:
        principal = ANONYMOUS
    operation = fit_name(operation_of_request(request, policy))
    tenant = tenant_of(request, policy)
    parts = request_parts(request, policy, data)
    return Call(
        scope=scope_of(principal, operation, tenant),
        key=key,
        fingerprint=seal(parts, policy.fingerprint),
        policy=policy,
        tenant=tenant,
        principal=principal,
        operation=operation,
        method=request.method or "",
        path=request.path,
        parts=parts if policy.fingerprint.secrets else None,
    )


def principal_of(request: HttpRequest, policy: Policy) -> str | None:
    """Return the principal of this request; None for an anonymous caller, if the policy lets them share a scope."""
    principal = _principal_of(request, policy)
    if principal is not None and UNSTORABLE.search(principal):
        raise NoPrincipal("The principal of this request has characters that cannot be stored.")
    return None if principal is None else fit_name(principal)


def _principal_of(request: HttpRequest, policy: Policy) -> str | None:
    if isinstance(policy.scope, str):
        return session_principal(request, policy.scope)
    if policy.scope is not None:
        return _call_scope(policy.scope, request, policy)
    user: Any = getattr(request, "user", None)
    known = user is not None and user.is_authenticated
    if known and (name := primary_key(user, user_model())):
        return f"user:{name}"
    credential: Any = getattr(request, "auth", None)
    if credential is not None and (name := primary_key(credential)):
        return f"auth:{name}"
    if credential is not None:
        raise _nameless(request, policy, credential)
    if not policy.share_anonymous:
        raise NoPrincipal
    if not _is_anonymous(request):
        raise NoPrincipal(
            "The request has credentials, such as an Authorization header, that no authentication of this view has "
            "turned into a user. It is not treated as anonymous, because the view may know whose they are.",
            unknown_credentials=True,
        )
    return None


def runs_unprotected(request: HttpRequest, policy: Policy, lines: list[str]) -> bool:
    """True if the policy lets this request through without a record: it has no key, or the caller is anonymous."""
    if not lines and not policy.required:
        return True
    if not policy.anonymous_unprotected or isinstance(policy.scope, str) or not _is_anonymous(request):
        return False
    return policy.scope is None or _is_no_principal(policy.scope(request))


def _is_no_principal(principal: Any) -> bool:
    return not discard_awaitable(principal) and (principal is None or principal == "")


def _is_anonymous(request: HttpRequest) -> bool:
    """True if the request has no credentials, not even unchecked ones: the view may know whose those are."""
    user: Any = getattr(request, "user", None)
    return (
        (user is None or not user.is_authenticated)
        and getattr(request, "auth", None) is None
        and "HTTP_AUTHORIZATION" not in request.META
        and not any(_TOKEN_NAME.search(name) or _JWT.fullmatch(value) for name, value in request.COOKIES.items())
    )


def _call_scope(scope: Callable[[HttpRequest], Any], request: HttpRequest, policy: Policy) -> str:
    """Return what the project's scope function says. Nothing is turned into a text: callers could share that text."""
    principal = scope(request)
    if _is_no_principal(principal):
        raise NoPrincipal("The endpoint's scope function returned no principal for this request.")
    if not isinstance(principal, str):
        raise _misconfigured(request, policy, "scope", f"returned a {type(principal).__name__}, not a str")
    if principal == ANONYMOUS:
        raise _misconfigured(request, policy, "scope", f"returned {ANONYMOUS!r}, which is reserved")
    return principal


def _nameless(request: HttpRequest, policy: Policy, credential: Any) -> NoPrincipal:
    """Log that the project's authentication names nobody, and return the error that refuses the request."""
    message = (
        f"The operation {operation_of_request(request, policy)!r} refuses requests: request.auth is a "
        f"{type(credential).__name__}, which has no primary key, so it does not tell whose key it is. Let the "
        "authentication set request.user or return a model's row, or give the policy a `scope` function."
    )
    logger.error(message)
    return NoPrincipal(message)


def _misconfigured(request: HttpRequest, policy: Policy, name: str, mistake: str) -> NoPrincipal:
    """Log a mistake of one of the project's functions, and return the error that refuses the request."""
    from_settings = getattr(policy, name) is getattr(conf, name.upper())
    source = f"IDEMPOTENCY[{name.upper()!r}]" if from_settings else f"the `{name}` of its policy"
    operation = operation_of_request(request, policy)
    message = f"The operation {operation!r} refuses requests: `{name}` ({source}) {mistake}."
    logger.error(message)
    return NoPrincipal(message)


def tenant_of(request: HttpRequest, policy: Policy) -> str:
    """Return the tenant of this request; empty if the policy has no function that tells it."""
    if policy.tenant is None:
        return ""
    tenant: Any = policy.tenant(request)
    discard_awaitable(tenant)
    if not isinstance(tenant, str) or not tenant or UNSTORABLE.search(tenant):
        raise _misconfigured(request, policy, "tenant", f"returned no text that can be stored but {tenant!r}")
    return tenant


def scope_of(principal: str, operation: str, tenant: str = "") -> str:
    """Return the scope of these. A scope that does not fit its column is replaced by its digest.

    The lengths keep two of them from making the same scope.
    """
    parts = (tenant, principal, operation) if tenant else (principal, operation)
    scope = "".join(f"{len(part)}:{part}" for part in parts)
    return scope if len(scope) <= LONGEST else digest_text(scope)


def scopes_of_caller(request: HttpRequest, policy: Policy, principal: str | None) -> list[str]:
    """Return the scopes of this caller's keys: a guest has another for each of SECRET_KEY_FALLBACKS."""
    principals = [principal, *earlier_session_principals(request, policy.scope)]
    return [scope_of_request(request, policy, each) for each in principals]


def scope_of_request(request: HttpRequest, policy: Policy, principal: str | None) -> str:
    """Return the scope of the keys of this principal; without one, the scope that anonymous callers share."""
    operation = fit_name(operation_of_request(request, policy))
    return scope_of(principal or ANONYMOUS, operation, tenant_of(request, policy))


def operation_of_request(request: HttpRequest, policy: Policy) -> str:
    """Return the operation that the policy names; else the name of the route, or its pattern if it has none."""
    match = request.resolver_match
    if policy.operation or match is None:
        return policy.operation or request.path
    if match.url_name is None and isinstance(match.func, partial):  # Django names the route "functools.partial"
        view: Any = match.func
        while isinstance(view, partial):
            view = view.func
        return ":".join([*match.namespaces, f"{view.__module__}.{view.__qualname__}"])
    return match.view_name or match.route


def rewind(request: HttpRequest) -> None:
    """Make the body and the uploads readable from their start again."""
    rewind_stream(request)
    for file in parsed_uploads(request):
        if not file.closed:
            file.seek(0)


def request_parts(request: HttpRequest, policy: Policy, data: Any = None) -> RequestParts:
    """Return the parts of the request that its fingerprint is made of."""
    wanted = {name: header(request, name) for name in (*policy.fingerprint.headers, "content-encoding")}
    return RequestParts(
        method=request.method or "",
        path=request.path,
        query=request.META.get("QUERY_STRING", ""),
        content_type=request.META.get("CONTENT_TYPE", ""),
        headers={name: value for name, value in wanted.items() if value is not None},
        **_content(request, data),
    )


def require_whole_body(request: HttpRequest, size: int | None) -> None:
    """Raise BadRequest if the connection ended before the body did: WSGI servers then end the stream without an error.

    A key that was claimed with a part of the body would reject the whole request as another one.
    """
    length = request.META.get("CONTENT_LENGTH") or "0"
    if size is not None and length.isdecimal() and size < int(length):
        raise BadRequest(f"The body has {size} bytes, and the Content-Length is {length}. Send the request again.")


def _content(request: HttpRequest, data: Any) -> dict[str, Any]:
    if request.content_type == MULTIPART:
        if data is None:
            keep_body(request)
        fields = parse_form(request, lambda: request.POST) if data is None else data
        require_whole_body(request, len(request.body) if body_was_read(request) else drain_stream(request))
        if fields or request.FILES or data is not None:
            return {"parts": [*read_fields(fields), *read_files(request.FILES)]}
    try:
        body = request.body
    except RawPostDataException:
        raise UnreadBody from None
    require_whole_body(request, len(body))
    boundary = (request.content_params or {}).get("boundary", "")
    if request.content_type == MULTIPART and body.strip() == f"--{boundary}--".encode():
        return {"parts": []}  # a form without fields
    return {"body": drop_fields(body, NOT_FINGERPRINTED) if request.content_type == URLENCODED else body}
