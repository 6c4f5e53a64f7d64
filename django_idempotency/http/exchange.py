"""One request under one key: what the layer asks of it, stores of its response, and answers in the view's place.

Django REST framework's views need another way in some of these; `rest_framework.RestExchange` overrides them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase, StreamingHttpResponse

from django_idempotency.conf import Arguments, conf
from django_idempotency.core.calls import Call
from django_idempotency.core.links import docs_url
from django_idempotency.core.policy import OnError, Policy, Streaming
from django_idempotency.core.replies import Reply, capture, unfold
from django_idempotency.core.validation import OBJECT, is_true
from django_idempotency.exceptions import (
    InvalidKey,
    Misplaced,
    NoPrincipal,
    NotAResponse,
    NotExecuted,
    StoreUnavailable,
    UnstorableResponse,
)
from django_idempotency.flow.attempt import Attempt
from django_idempotency.flow.cache import CachedReplay
from django_idempotency.flow.claim import has_record, tell
from django_idempotency.flow.finish import is_about_another_key, is_mistake, proves_nothing_happened
from django_idempotency.http.atomic_requests import check_for_rollback, open_atomic_requests, open_in_time
from django_idempotency.http.context import NONE, attach, is_protected
from django_idempotency.http.doors import require_verification
from django_idempotency.http.own_responses import OwnResponses
from django_idempotency.http.private_names import CSRF_META
from django_idempotency.http.requests import (
    call_from,
    key_lines,
    operation_of_request,
    principal_of,
    rewind,
    runs_unprotected,
    scope_of_request,
)
from django_idempotency.http.sessions import earlier_session_principals
from django_idempotency.signals import logger
from django_idempotency.store.limits import in_transaction
from django_idempotency.store.records import alias
from django_idempotency.store.server import takes_body

Handler = Callable[[], Any]
# Django turns these exceptions into a 400, 403 or 404.
ERROR_RESPONSES: Final = (Http404, PermissionDenied, SuspiciousOperation, BadRequest, MultiPartParserError)


class NotKept(Exception):
    """The policy does not store this response: the view's writes are rolled back, and the key is free again."""

    def __init__(self, response: HttpResponseBase) -> None:
        self.response = response


class Exchange(OwnResponses):
    """A request, its policy, and the view that answers it."""

    def __init__(self, request: HttpRequest, policy: Policy, handler: Handler, view: Any, owner: Any = None) -> None:
        if policy.authorize == OBJECT and not hasattr(owner, "get_object"):
            raise Misplaced(
                f"authorize='object' asks the get_object() of a view of Django REST framework; what answers "
                f"{request.path} has none. Write a function: authorize=lambda request, record: …"
            )
        self.owner = owner  # the view's instance, in Django REST framework
        self.request = request
        self.policy = policy
        self.using = alias()
        self.handler = handler  # the view, with its arguments
        self.view = view  # carries the opt-outs from ATOMIC_REQUESTS

    # Overridden for Django REST framework, as `problem_response` and `answer` are

    def finalize(self, response: HttpResponseBase) -> HttpResponseBase:
        """Return the response that the framework makes of what the view returned. NotAResponse if it is none."""
        if not isinstance(response, HttpResponseBase):
            raise NotAResponse(response, operation_of_request(self.request, self.policy))
        return response

    def capture(self, response: HttpResponseBase) -> tuple[HttpResponseBase, Reply]:
        """Return the response as it is sent, and the reply to store of it."""
        return capture_response(response, self.policy, self.request)

    def explain(self, error: Exception) -> HttpResponseBase:
        """Return the project's own response to an exception."""
        return response_for_exception(self.request, error)

    def stores_response_to(self, error: Exception, attempt: Attempt) -> bool:
        """True if the project's response to this exception is stored: the view meant it as an error response.

        After a downstream key was derived, only the policy counts: the service may have been called since.
        """
        if is_mistake(error, attempt):
            return False
        if isinstance(error, tuple(self.policy.refusals)):
            return True
        if self.is_refusal(error) and not attempt.derived and not is_about_another_key(error, attempt):
            return True
        return self.policy.on_error is OnError.STORE and not proves_nothing_happened(error, attempt)

    def is_refusal(self, error: Exception) -> bool:
        """True if the framework answers this exception with an error response below 500."""
        return isinstance(error, ERROR_RESPONSES)

    def misleads(self, error: Exception) -> bool:
        """True if the project's response to this exception would deny an effect that is possible. It is logged."""
        misleading = isinstance(error, NotExecuted) or self.is_refusal(error)
        if misleading:
            logger.error(
                "The view of %r ended with an exception that does not prove that nothing happened. See %s",
                operation_of_request(self.request, self.policy),
                docs_url("how-to/external-calls", "what-an-exception-means"),
                exc_info=error,
            )
        return misleading

    def parsed_form(self) -> Any:
        """Return a multipart body if the framework parses it; None to parse it as Django does."""
        return None

    def rewind(self) -> None:
        """Prepare the request for a view that runs again."""
        rewind(self.request)

    # From the request to the stored response

    def call(self) -> Call | HttpResponseBase:
        """Return the call that this request makes, or the response: an error, a replay or that of a bare view."""
        if self.policy.verify is not None:
            require_verification(self.policy, self.request)
        try:
            lines = key_lines(self.request, self.policy)
        except InvalidKey as error:
            return self.invalid_key_response(error)
        if runs_unprotected(self.request, self.policy, lines):
            attach(self.request, NONE)
            response: HttpResponseBase = run_unprotected(self.request, self.view, self.handler)
            return response  # of an async view the coroutine
        if not lines:
            return self.missing_key_response()
        try:
            principal = principal_of(self.request, self.policy)
            call = call_from(self.request, lines, self.policy, principal, self.parsed_form())
            if isinstance(self.policy.scope, str):
                call = self.known_call(call)
        except InvalidKey as error:
            return self.invalid_key_response(error)
        except NoPrincipal as error:
            return self.no_principal_response(error)
        except StoreUnavailable as error:
            return self.unavailable_response(error)
        return self.cached_response(call) or call

    def known_call(self, call: Call) -> Call:
        """Return the call under the guest's principal from before SECRET_KEY was rotated, if it has a record there."""
        for principal in earlier_session_principals(self.request, self.policy.scope):
            scope = scope_of_request(self.request, self.policy, principal)
            if has_record(earlier := replace(call, scope=scope, principal=principal), self.using):
                return earlier
        return call

    def cached_response(self, call: Call) -> HttpResponseBase | None:
        """Return the replay that the cache holds; None if the table has to be asked. Off unless CACHE_ALIAS is set."""
        if not self.policy.cache or conf.CACHE_ALIAS is None or in_transaction(self.using):
            return None
        self.cached = CachedReplay(call, self.using)
        replay = self.cached.read()
        if replay is None:
            return None
        tell(replay, call, self.using)
        return self.answer(replay, call)

    def transactions(self) -> AbstractContextManager[object]:
        """Open the transactions that ATOMIC_REQUESTS gives the view, besides that of the record's database."""
        opened = open_atomic_requests(self.request, self.view, except_for=self.using)
        return opened if isinstance(opened, nullcontext) else open_in_time(opened)

    def keep(
        self, response: HttpResponseBase, *, reached_out: bool = False, explained: bool = False
    ) -> tuple[HttpResponseBase, Reply]:
        """Return the response and the reply to store of it; raise NotKept if the policy stores no such response.

        A success is always stored: its effect has happened, and a free key would let it happen again. The policy may
        know better: a response whose body tells of an error is not stored, and its writes are rolled back. After an
        external call a 4xx response is stored too, because it does not prove that nothing happened; a 5xx, perhaps made
        of the call's timeout, is stored only if the policy names its status, or the exception that it was `explained`
        from.
        """
        tells, status = self.policy.is_error, response.status_code
        if tells is not None and status < 400 and is_true(tells(response)):
            raise NotKept(response)
        if reached_out and status >= 500 and not explained and self.policy.store is None:
            raise NotKept(response)
        is_error = status >= (500 if reached_out else 400)
        if is_error and (self.gives_back(response) or not self.policy.keeps(status)):
            raise NotKept(response)
        check_for_rollback(response)
        return self.capture(response)

    def gives_back(self, response: HttpResponseBase) -> bool:
        """True if this is a validation error in a profile where such an error uses up no key."""
        return self.policy.profile.release_invalid and response.status_code in (400, 422)


def capture_response(
    response: Any, policy: Policy, request: HttpRequest, *, withhold: bool = False
) -> tuple[HttpResponseBase, Reply]:
    """Return a response as it is sent, and the reply to store of it: without its body if `withhold`.

    A template is rendered first. A streamed response is treated as the policy says.
    """
    if callable(getattr(response, "render", None)):
        response = response.render()  # may return another response
    body = response.content if isinstance(response, HttpResponse) else _streamed_body(response, policy)
    why_not = ""
    if _is_no_store(response):
        why_not = "it has the header Cache-Control: no-store"
    elif withhold or _may_hold_csrf_token(request):  # reading a stream may have made the token
        why_not = "its body may have its reader's CSRF token"
    elif body is None or len(body) > policy.reply.longest_body:
        why_not = f"its body is longer than {policy.reply.longest_body} bytes, or streamed as it comes"
    elif len(body) > _SENT_ANYWHERE and not takes_body(len(body), alias()):
        why_not = "its body is longer than the database's max_allowed_packet admits"
    for name, value in response.items():
        if (unfolded := unfold(value)) != value:  # Django folds some values that are not Latin-1; servers refuse them
            response[name] = unfolded
    profile = policy.profile
    if profile.mark_first:
        del response[profile.replayed_header]  # of a transaction that was rolled back
    reply = capture(response.status_code, response.items(), body if not body or not why_not else None, policy.reply)
    if profile.mark_first:
        response[profile.replayed_header] = "false"
    if reply.lost and policy.reply.body and policy.streaming is not Streaming.OMIT:
        _warn_of_loss(operation_of_request(request, policy), why_not)
    return response, reply


_SENT_ANYWHERE: Final = 256 * 1024  # bytes of a body; a limit under which these are too many is not expected
_warned: Final = set[str]()  # operations, once per process


def _warn_of_loss(operation: str, why: str) -> None:
    if operation not in _warned:
        _warned.add(operation)
        page = docs_url("how-to/troubleshooting", "a-replay-without-a-body")
        logger.warning(
            "A response of %s cannot be replayed: %s. Retries get a 409 instead. See %s", operation, why, page
        )


def _may_hold_csrf_token(request: HttpRequest) -> bool:
    """True if the reader's CSRF token was asked for: it may be in a body of any type. Django notes that in `META`."""
    return CSRF_META in request.META


def _is_no_store(response: HttpResponseBase) -> bool:
    return "no-store" in response.headers.get("Cache-Control", "").lower()


def _streamed_body(response: Any, policy: Policy) -> bytes | None:
    """Return the body of a stream, and leave the same chunks to be streamed. None if the body is not stored.

    Events and async streams are sent as they come: whoever reads them does not wait for the last chunk.
    """
    if not isinstance(response, StreamingHttpResponse):
        return None
    if policy.streaming is Streaming.REFUSE:
        raise UnstorableResponse
    events = response.headers.get("Content-Type", "").startswith("text/event-stream")
    if policy.streaming is Streaming.OMIT or response.is_async or events or _is_no_store(response):
        return None
    longest = policy.reply.longest_body
    chunks = iter(response)
    head, size = [], 0
    for chunk in chunks:
        head.append(bytes(chunk))
        size += len(head[-1])
        if size > longest:
            break
    response.streaming_content = chain(head, chunks)
    return b"".join(head) if size <= longest else None


def gate(request: HttpRequest, arguments: Arguments | None, has_key: Callable[..., Any] = key_lines) -> Policy | None:
    """Return the policy that protects this request; None if its view runs unprotected.

    A view inside a protected one is not protected again: it would find its own key claimed. Any other unprotected view
    finds a `request.idempotency` that does nothing.
    """
    policy = None if arguments is None else arguments.policy()
    if policy is not None and request.method in policy.methods:
        if not is_protected(request) and _is_protected(request, policy, has_key):
            return policy
        require_verification(policy, request)  # of a protected request when its key is looked up
    if not is_protected(request):
        attach(request, NONE)
    return None


def _is_protected(request: HttpRequest, policy: Policy, has_key: Callable[..., Any]) -> bool:
    """True unless the policy skips this request, or needs no key and finds none. Its source is asked later."""
    if policy.skip is not None and is_true(policy.skip(request)):
        return False
    return policy.required or policy.key_source is not None or bool(has_key(request, policy))


def run_unprotected(request: HttpRequest, view: Any, handler: Handler) -> Any:
    """Run a view in the transactions that Django would have opened. Inside a protected view they are open."""
    if is_protected(request):
        return handler()
    with open_atomic_requests(request, view):
        return handler()
