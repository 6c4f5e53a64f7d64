"""One endpoint for each kind of answer. The account in the query names what is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from django.conf import settings
from django.http import FileResponse, HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.template import engines
from django.template.response import SimpleTemplateResponse
from django.views.decorators.csrf import csrf_exempt

from django_idempotency import KeyRule, Profile, entropy
from django_idempotency.decorators import idempotent
from tests.kit.journal import Journal

RULES = "https://api.example/idempotency"


def protected(**arguments: Any) -> Callable[[Any], Any]:
    """Open to everybody, and counted."""

    def decorate(view: Any) -> Any:
        def counted(request: HttpRequest) -> Any:
            Journal(settings.VAR).note(request.GET["account"])
            return view(request)

        sharing = {"share_anonymous": True, "guessable_anonymous": True, "operation": view.__name__}
        return csrf_exempt(idempotent(**{**sharing, **arguments})(counted))

    return decorate


def pieces() -> Iterator[bytes]:
    yield b"one,"
    yield b"two"


@protected()
def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(pieces(), status=201, content_type="text/csv")


@protected(streaming="buffer")
def buffered(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(pieces(), status=201, content_type="text/csv")


@protected()
def file(request: HttpRequest) -> FileResponse:
    return FileResponse(BytesIO(b"content"), as_attachment=True, filename="invoice.pdf")


@protected()
def page(request: HttpRequest) -> SimpleTemplateResponse:
    template = engines["django"].from_string("<p>{{ name }}</p>")
    return SimpleTemplateResponse(template, {"name": "Ada & Grace"})


@protected(after_expiry="gone", expiry="soft")
def gone(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"kept", status=201)


@protected(profile=Profile(name="published", strict=True, documentation=RULES), receipts=True)
def strict(request: HttpRequest) -> HttpResponse:
    Journal(settings.VAR).pass_gate()
    return HttpResponse(b"strict", status=201)


@protected(guessable_anonymous=False, key=KeyRule(validator=entropy()))
def unguessable(request: HttpRequest) -> HttpResponse:
    return HttpResponse(b"unguessable", status=201)


@protected()
def cookie(request: HttpRequest) -> HttpResponse:
    response = HttpResponse(b"mine", headers={"ETag": '"1"', "X-Request-Id": "first", "WWW-Authenticate": "Token"})
    response.set_cookie("session", "secret")
    return response


@protected(on_error="store")
def fails(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("failed, as always")


@protected(store=lambda status: status != 422)
def corrected(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"amount": ["too small"]}, status=422) if request.body == b"0" else HttpResponse(status=201)
