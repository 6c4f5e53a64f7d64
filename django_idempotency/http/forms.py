"""The key and the contents of HTML forms and uploads."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from django.core.exceptions import BadRequest
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, QueryDict
from django.http.multipartparser import MultiPartParserError
from django.utils.datastructures import MultiValueDict

from django_idempotency.conf import upload_limit
from django_idempotency.core.fingerprint import URLENCODED, Part
from django_idempotency.core.keys import digest_text
from django_idempotency.http.private_names import forget_form, form_was_parsed

LONGEST_FIELD_NAME: Final = 4096  # of a nested field, before it is replaced by its digest
FORM_FIELD: Final = "_idempotency_key"  # for HTML forms, which cannot send a header
CSRF_FIELD: Final = "csrfmiddlewaretoken"  # Django masks it anew for each page, so retries may carry another one
NOT_FINGERPRINTED: Final = (FORM_FIELD, CSRF_FIELD)
MULTIPART: Final = "multipart/form-data"
FORMS: Final = (URLENCODED, MULTIPART)
_TEXT_ENCODINGS: Final = ("utf-8", "utf8", "us-ascii", "iso-8859-1", "latin-1")  # these decode every form

F = TypeVar("F")


def read_form(request: HttpRequest) -> QueryDict:
    """Return the form; an empty one if it cannot be parsed."""
    keep_body(request)
    try:
        return parse_form(request, lambda: request.POST)
    except MultiPartParserError:
        forget_form(request)
        return QueryDict()


def parse_form(request: HttpRequest, parse: Callable[[], F]) -> F:
    """Return the parsed form; BadRequest if the client named a charset that is no text encoding, such as base64."""
    try:
        return parse()
    except (LookupError, UnicodeError) as error:
        if request.encoding is None or request.encoding.lower() in _TEXT_ENCODINGS:
            raise
        raise BadRequest("The charset in the Content-Type is not one that a form can have.") from error


def keep_body(request: HttpRequest) -> None:
    """Read the body before its form is parsed, so that the view may still read it, unless it is too large to keep."""
    limit = upload_limit()
    length = request.META.get("CONTENT_LENGTH") or "0"
    if not form_was_parsed(request) and (limit is None or (length.isdecimal() and int(length) <= limit)):
        _ = request.body


def read_fields(data: Any) -> Iterable[Part]:
    """Yield the fields of a multipart body as parts."""
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


def read_files(files: Any) -> Iterable[Part]:
    """Yield the uploads as parts."""
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
