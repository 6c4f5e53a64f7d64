"""From answers to responses, and from a view's response to what is stored of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from math import ceil
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase, StreamingHttpResponse
from django.urls import NoReverseMatch, reverse

from django_idempotency.conf import conf
from django_idempotency.core import problems
from django_idempotency.core.decisions import Call, Gone, InDoubt, InFlight, Mismatch
from django_idempotency.core.policy import Policy, Streaming
from django_idempotency.core.profiles import Profile
from django_idempotency.core.replies import Reply, capture
from django_idempotency.exceptions import UnstorableResponse

STATUS_ROUTE: Final = "django_idempotency:idempotency-operation"
OMITTED_HEADER: Final = "Idempotency-Replay"


def captured(
    response: Any, policy: Policy, request: HttpRequest, *, withhold: bool = False
) -> tuple[HttpResponseBase, Reply]:
    """What is sent, and what is stored of it. A template is rendered first; a stream is treated as the policy says."""
    if callable(getattr(response, "render", None)):
        response = response.render()  # which may give another one
    if isinstance(response, StreamingHttpResponse):
        body = _streamed(response, policy)
        if withhold or _holds_csrf_token(response, request):  # asked for while the stream was read
            body = None
    elif isinstance(response, HttpResponse):
        private = withhold or _no_store(response) or _holds_csrf_token(response, request)
        body = None if response.content and private else response.content
    else:
        body = None
    return response, capture(response.status_code, response.items(), body, policy.reply)


def _holds_csrf_token(response: HttpResponseBase, request: HttpRequest) -> bool:
    """A page whose forms carry the token of its reader; Django notes that somebody asked for it."""
    return "CSRF_COOKIE_NEEDS_UPDATE" in request.META and response.headers.get("Content-Type", "").startswith(
        "text/html"
    )


def _no_store(response: HttpResponseBase) -> bool:
    return "no-store" in response.headers.get("Cache-Control", "").lower()


def _streamed(response: StreamingHttpResponse, policy: Policy) -> bytes | None:
    if policy.streaming is Streaming.REFUSE:
        raise UnstorableResponse
    if policy.streaming is Streaming.OMIT or response.is_async or _no_store(response):
        return None
    head, rest = _up_to(iter(response), policy.reply.longest_body)
    response.streaming_content = chain(head, rest)
    return b"".join(head) if rest is _NOTHING else None


_NOTHING: Final[Iterator[bytes]] = iter(())


def _up_to(chunks: Iterator[Any], limit: int) -> tuple[list[bytes], Iterable[Any]]:
    """The chunks that fit, and the rest untouched."""
    head: list[bytes] = []
    size = 0
    for chunk in chunks:
        head.append(bytes(chunk))
        size += len(head[-1])
        if size > limit:
            return head, chunks
    return head, _NOTHING


def plain(reply: Reply) -> HttpResponse:
    """A reply as a response: status, headers, bytes and nothing of Django's own."""
    response = HttpResponse(reply.body or b"", status=reply.status)
    del response["Content-Type"]
    for name, value in reply.headers:
        response[name] = value
    if "Location" in response:
        response.url = response["Location"]  # type: ignore[attr-defined] # Django's redirects have it
    return response


def replay(reply: Reply, profile: Profile) -> HttpResponse:
    """The stored answer again, marked as such."""
    response = plain(reply)
    response[profile.replayed_header] = "true"
    if reply.omitted:
        response[OMITTED_HEADER] = "omitted"
    return response


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no answer of the endpoint's, before it has a shape."""

    problem: problems.Problem
    status: int
    detail: str = ""
    retry_after: int | None = None
    members: dict[str, Any] = field(default_factory=dict)


def refusal(refused: Refused, profile: Profile) -> HttpResponse:
    """An answer of the layer's own."""
    reply = problems.render(profile, refused.problem, refused.status, refused.detail, **refused.members)
    headers = dict(reply.headers) | headers_of(refused, profile)
    return HttpResponse(reply.body or b"", status=reply.status, headers=headers)


def headers_of(refused: Refused, profile: Profile) -> dict[str, str]:
    """What a refusal says outside its body."""
    wait = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    return {"Cache-Control": "no-store", **problems.build_link(profile), **wait}


def accepted(call: Call, retry_after: int | None = None) -> HttpResponse:
    """A worker does the work: the same answer to the first request and to every later one until it is done."""
    said = problems.ACCEPTED
    body = {"code": said.code, "title": said.title, "detail": said.detail, "operation_ref": str(call.id)}
    wait = call.policy.retry_hint.total_seconds() if retry_after is None else retry_after
    headers = {"Cache-Control": "no-store", "Retry-After": str(max(1, ceil(wait)))}
    address = location(call)
    return JsonResponse(body, status=202, headers=headers | ({"Location": address} if address else {}))


def location(call: Call) -> str | None:
    """Where the work tells how far it is; None where the project has no such route, or could not tell whose it is."""
    if call.policy.scope is not conf.SCOPE:
        return None
    try:
        return reverse(STATUS_ROUTE, args=[str(call.id)])
    except NoReverseMatch:
        return None


def refused(answer: Gone | InDoubt | InFlight | Mismatch, call: Call) -> Refused:
    """The refusal that a decision stands for."""
    profile = call.policy.profile
    same_key = {"safe_new_key": False, "operation_ref": str(call.id)}
    match answer:
        case Mismatch():
            return Refused(problems.MISMATCH, profile.mismatch, members={"safe_new_key": True})
        case InFlight(_, retry_after):
            return Refused(problems.IN_FLIGHT, profile.in_flight, "", retry_after, same_key)
        case InDoubt():
            return Refused(problems.UNKNOWN, profile.unknown, members=same_key)
        case Gone():
            return Refused(problems.EXPIRED, profile.gone, members={"safe_new_key": True})


def unavailable(policy: Policy) -> Refused:
    """The store did not answer, so nothing was executed."""
    return Refused(
        problems.UNAVAILABLE, policy.profile.unavailable, "", max(1, ceil(policy.retry_hint.total_seconds()))
    )


def upgraded(reply: Reply, policy: Policy) -> Reply:
    """A stored answer in today's shape, where the endpoint knows how."""
    if policy.upgrade is None or reply.schema_version == policy.reply.schema_version:
        return reply
    newer: Reply = policy.upgrade(reply)
    return newer
