"""From a request to a call: its principal, its key and its fingerprint."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from django.core.files.uploadedfile import UploadedFile
from django.db.models.options import Options
from django.http import HttpRequest, QueryDict
from django.http.multipartparser import MultiPartParserError
from django.http.request import RawPostDataException
from django.utils.datastructures import MultiValueDict

from django_idempotency.conf import upload_limit, user_model
from django_idempotency.core.canonical import drop_fields
from django_idempotency.core.decisions import Call
from django_idempotency.core.fingerprint import URLENCODED, Part, RequestParts, seal
from django_idempotency.core.keys import digest_text, parse_key, unguessable
from django_idempotency.core.policy import Policy
from django_idempotency.exceptions import NoPrincipal, UnreadBody
from django_idempotency.http.private_names import forget_form, form_was_parsed, parsed_uploads, rewind_stream

LONGEST_SCOPE: Final = 255
LONGEST_FIELD_NAME: Final = 4096  # of a nested field, before it is replaced by its digest
FORM_FIELD: Final = "_idempotency_key"  # for HTML forms, which cannot send a header
CSRF_FIELD: Final = "csrfmiddlewaretoken"  # Django masks it anew for each page, so retries may carry another one
NOT_FINGERPRINTED: Final = (FORM_FIELD, CSRF_FIELD)
MULTIPART: Final = "multipart/form-data"
FORMS: Final = (URLENCODED, MULTIPART)
ANONYMOUS: Final = "anonymous"
UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def key_lines(request: HttpRequest, policy: Policy) -> list[str]:
    """Return the values of the key's header; for a form without that header, the value of its field."""
    line = header(request, policy.profile.header)
    if line is None and request.content_type in FORMS:
        line = _form(request).get(FORM_FIELD)
    return [] if line is None else [line]


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
    operation = policy.operation or route_name(request)
    parts = request_parts(request, policy, data)
    return Call(
        scope=scope_of(principal, operation),
        key=key,
        fingerprint=seal(parts, policy.fingerprint),
        policy=policy,
        principal=principal,
        operation=operation,
        method=request.method or "",
        path=request.path,
        parts=parts if policy.fingerprint.secrets else None,
    )


def principal_of(request: HttpRequest, policy: Policy) -> str | None:
    """Return the principal of this request; None for an anonymous caller, if the policy lets them share a scope."""
    if policy.scope is not None:
        principal = policy.scope(request)
        if not principal:
            raise NoPrincipal("The endpoint's scope function returned no principal for this request.")
        if UNSTORABLE.search(str(principal)):
            raise NoPrincipal(
                "The endpoint's scope function returned a principal with characters that cannot be stored."
            )
        return str(principal)
    user: Any = getattr(request, "user", None)
    known = user is not None and user.is_authenticated
    if known and (name := _primary_key(user, user_model())):
        return f"user:{name}"
    credential: Any = getattr(request, "auth", None)
    if name := _primary_key(credential):
        return f"auth:{name}"
    if policy.share_anonymous and not known and credential is None:
        return None
    raise NoPrincipal


def _primary_key(holder: Any, own_model: str = "") -> str:
    """Return the primary key, prefixed with the model's label. Empty if there is none.

    Without the label a customer and an employee with the same primary key would share a scope. Users of `own_model`,
    and of models that extend it, go without one: their primary key is that of their row in `own_model`.
    """
    models = [base._meta for base in holder.__class__.__mro__ if isinstance(getattr(base, "_meta", None), Options)]
    own = next((options for options in models if options.label.lower() == own_model), None)
    number = getattr(holder, "pk" if own is None else own.pk.attname, None)
    if number is None:
        return ""
    kind = holder.__class__  # unlike type(), the class behind a lazy object
    label = models[0].concrete_model._meta.label_lower if models else f"{kind.__module__}.{kind.__qualname__}"
    return f"{label}:{number}" if own is None else str(number)


def scope_of(principal: str, operation: str) -> str:
    """Return the scope of a principal and an operation. A scope that does not fit its column is replaced by its digest.

    The lengths keep two pairs from making the same scope.
    """
    scope = f"{len(principal)}:{principal}{len(operation)}:{operation}"
    return scope if len(scope) <= LONGEST_SCOPE else digest_text(scope)


def route_name(request: HttpRequest) -> str:
    """Return the name of the route, or its pattern if it has none."""
    match = request.resolver_match
    if match is None:
        return request.path
    if match.url_name is None and isinstance(match.func, partial):  # Django names the route "functools.partial"
        view = _unwrap(match.func)
        return ":".join([*match.namespaces, f"{view.__module__}.{view.__qualname__}"])
    return match.view_name or match.route


def _unwrap(view: Any) -> Any:
    return _unwrap(view.func) if isinstance(view, partial) else view


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


def _content(request: HttpRequest, data: Any) -> dict[str, Any]:
    if request.content_type == MULTIPART:
        if data is None:
            _keep_body(request)
        fields = request.POST if data is None else data
        if fields or request.FILES or data is not None:
            return {"parts": [*_fields(fields), *_files(request.FILES)]}
    try:
        body = request.body
    except RawPostDataException:
        raise UnreadBody from None
    boundary = (request.content_params or {}).get("boundary", "")
    if request.content_type == MULTIPART and body.strip() == f"--{boundary}--".encode():
        return {"parts": []}  # a form without fields
    return {"body": drop_fields(body, NOT_FINGERPRINTED) if request.content_type == URLENCODED else body}


def _form(request: HttpRequest) -> QueryDict:
    _keep_body(request)
    try:
        return request.POST
    except MultiPartParserError:
        forget_form(request)
        return QueryDict()


def _keep_body(request: HttpRequest) -> None:
    """Read the body before its form is parsed, so that the view may still read it, unless it is too large to keep."""
    limit = upload_limit()
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not form_was_parsed(request) and (limit is None or (length.isdecimal() and int(length) <= limit)):
        _ = request.body


def _fields(data: Any) -> Iterable[Part]:
    if isinstance(data, MultiValueDict):
        for name, values in data.lists():
            for value in values:
                if not isinstance(value, UploadedFile) and name not in NOT_FINGERPRINTED:
                    yield _field(name, value)
    elif isinstance(data, Mapping):  # from one of the project's own parsers
        yield from _leaves("", {name: data[name] for name in data if name not in NOT_FINGERPRINTED})
    else:
        yield from _leaves("", data)


def _leaves(name: str, value: Any) -> Iterable[Part]:
    """Yield the leaves of nested data, in order. No depth is too deep, and no name grows with it without end."""
    left = [(name, value)]
    while left:
        name, value = left.pop()
        if isinstance(value, UploadedFile):
            yield _file(name, value)
        elif isinstance(value, Mapping | list | tuple):
            name = name if len(name) <= LONGEST_FIELD_NAME else digest_text(name)
            inner = value.items() if isinstance(value, Mapping) else enumerate(value)
            left.extend(reversed([(f"{name}[{each}]", member) for each, member in inner]))
        else:
            yield _field(name, value)


def _field(name: str, value: Any) -> Part:
    return Part(name, None, "", str(value).encode("utf-8", "surrogatepass"))


def _files(files: Any) -> Iterable[Part]:
    for name, values in files.lists():
        for file in values:
            yield _file(name, file)


def _file(name: str, file: Any) -> Part:
    return Part(name, file.name, file.content_type or "", _Chunks(file))


class _Chunks:
    """The content of an upload, which can be iterated over several times."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __iter__(self) -> Any:
        yield from self._file.chunks()
        self._file.seek(0)
