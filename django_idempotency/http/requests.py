"""From a request to a call: whose key it is, which one, and what the request means."""

import re
from collections.abc import Iterable, Mapping
from functools import partial
from io import BytesIO
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
from django_idempotency.core.keys import KeyRule, all_of, digest_text, parse_key, unguessable
from django_idempotency.core.policy import Policy
from django_idempotency.exceptions import NoPrincipal, UnreadBody

LONGEST_SCOPE: Final = 255
FORM_FIELD: Final = "_idempotency_key"  # for HTML forms, which cannot send a header
CSRF_FIELD: Final = "csrfmiddlewaretoken"  # Django masks it anew for each page: it says nothing about the request
APART: Final = (FORM_FIELD, CSRF_FIELD)  # of a form's fields: what belongs to its sending, not to its meaning
MULTIPART: Final = "multipart/form-data"
FORMS: Final = (URLENCODED, MULTIPART)
ANONYMOUS: Final = "anonymous"
UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


def key_lines(request: HttpRequest, policy: Policy) -> list[str]:
    """The key's header lines as they came in; for a form without them, its field."""
    line = header(request, policy.profile.header)
    if line is None and request.content_type in FORMS:
        line = _form(request).get(FORM_FIELD)
    return [] if line is None else [line]


def header(request: HttpRequest, name: str) -> str | None:
    """One header as it came in; building Django's mapping of all of them costs more than the fingerprint."""
    value: str | None = request.META.get("HTTP_" + name.upper().replace("-", "_"))
    return value


def call_from(request: HttpRequest, lines: list[str], policy: Policy, principal: str | None, data: Any = None) -> Call:
    """Everything about a request that its record has to know. InvalidKey and NoPrincipal come before any query."""
    key = parse_key(lines, _key_rule(policy, anonymous=principal is None))
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
    """Who is asking; None for a caller without credentials where the endpoint lets them share a scope."""
    if policy.scope is not None:
        principal = policy.scope(request)
        if not principal:
            raise NoPrincipal("The endpoint's scope function gave no principal for this request.")
        if UNSTORABLE.search(str(principal)):
            raise NoPrincipal("The endpoint's scope function gave a principal with characters that cannot be stored.")
        return str(principal)
    user: Any = getattr(request, "user", None)
    known = user is not None and user.is_authenticated
    if known and (name := _named(user, user_model())):
        return f"user:{name}"
    credential: Any = getattr(request, "auth", None)
    if name := _named(credential):
        return f"auth:{name}"
    if policy.share_anonymous and not known and credential is None:
        return None
    raise NoPrincipal


def _named(holder: Any, own: str = "") -> str:
    """A number, with what it is a number of: a customer and an employee may have the same. "" without a number.

    A row of `own`, or of a model that extends it, goes by the number that it has there.
    """
    models = [base._meta for base in holder.__class__.__mro__ if isinstance(getattr(base, "_meta", None), Options)]
    there = next((options for options in models if options.label.lower() == own), None)
    number = getattr(holder, "pk" if there is None else there.pk.attname, None)
    if number is None:
        return ""
    kind = holder.__class__  # of what a lazy object stands for
    name = models[0].concrete_model._meta.label_lower if models else f"{kind.__module__}.{kind.__qualname__}"
    return f"{name}:{number}" if there is None else str(number)


def scope_of(principal: str, operation: str) -> str:
    """Length-prefixed, so that no two pairs make one scope; a long one is replaced by its digest."""
    scope = f"{len(principal)}:{principal}{len(operation)}:{operation}"
    return scope if len(scope) <= LONGEST_SCOPE else digest_text(scope)


def route_name(request: HttpRequest) -> str:
    """The name of the route, or its pattern when it has none."""
    match = request.resolver_match
    if match is None:
        return request.path
    if match.url_name is None and isinstance(match.func, partial):  # Django would call it "functools.partial"
        view = unwrapped(match.func)
        return ":".join([*match.namespaces, f"{view.__module__}.{view.__qualname__}"])
    return match.view_name or match.route


def unwrapped(view: Any) -> Any:
    return unwrapped(view.func) if isinstance(view, partial) else view


def rewind(request: HttpRequest) -> None:
    """Back to where a view finds it: the body and the uploads are read from their start again."""
    if hasattr(request, "_body"):
        request._stream = BytesIO(request._body)
    uploads: Any = getattr(request, "_files", {})
    for name in uploads:
        for file in uploads.getlist(name):
            if not file.closed:
                file.seek(0)


def request_parts(request: HttpRequest, policy: Policy, data: Any = None) -> RequestParts:
    """The request without its framework. `data` is a multipart body that somebody has parsed already."""
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
    return {"body": drop_fields(body, APART) if request.content_type == URLENCODED else body}


def _form(request: HttpRequest) -> QueryDict:
    _keep_body(request)
    try:
        return request.POST
    except MultiPartParserError:
        for attribute in ("_post", "_files"):  # the view shall find out by itself
            delattr(request, attribute)
        return QueryDict()


def _keep_body(request: HttpRequest) -> None:
    """Read it before its form is parsed, so that the view may still read it, unless it is too large to be kept."""
    limit = upload_limit()
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not hasattr(request, "_post") and (limit is None or (length.isdecimal() and int(length) <= limit)):
        _ = request.body


def _fields(data: Any) -> Iterable[Part]:
    if isinstance(data, MultiValueDict):
        for name, values in data.lists():
            for value in values:
                if not isinstance(value, UploadedFile) and name not in APART:
                    yield _field(name, value)
    elif isinstance(data, Mapping):  # from a parser of the project's own
        yield from _leaves("", {name: data[name] for name in data if name not in APART})
    else:
        yield from _leaves("", data)


def _leaves(name: str, value: Any) -> Iterable[Part]:
    """What nests, taken apart."""
    if isinstance(value, UploadedFile):
        yield _file(name, value)
    elif isinstance(value, Mapping | list | tuple):
        for each, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(f"{name}[{each}]", inner)
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
    """The content of an upload, read from its start each time."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __iter__(self) -> Any:
        yield from self._file.chunks()
        self._file.seek(0)


def _key_rule(policy: Policy, *, anonymous: bool) -> KeyRule:
    rule = policy.key
    strict = rule.strict or policy.profile.strict
    validator = rule.validator
    if anonymous and not policy.guessable_anonymous:
        validator = unguessable if validator is None else all_of(unguessable, validator)
    return KeyRule(strict=strict, min_length=rule.min_length, max_length=rule.max_length, validator=validator)
