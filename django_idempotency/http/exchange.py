"""One request under one key: what the layer asks of it, stores of its response, and answers in the view's place.

Django REST framework's views need another way in some of these; `rest_framework.RestExchange` overrides them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any, Final

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.db import Error
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase, StreamingHttpResponse

from django_idempotency.conf import Arguments
from django_idempotency.core import problems
from django_idempotency.core.decisions import Accepted, Answer, Call, Replay
from django_idempotency.core.policy import OnError, Policy, Streaming
from django_idempotency.core.replies import Reply, capture
from django_idempotency.exceptions import InvalidKey, NoPrincipal, NotExecuted, StoreUnavailable, UnstorableResponse
from django_idempotency.flow.claim import peek
from django_idempotency.http.atomic_requests import check_for_rollback, open_atomic_requests
from django_idempotency.http.context import NONE, attach, is_protected
from django_idempotency.http.private_names import CSRF_META
from django_idempotency.http.requests import call_from, key_lines, principal_of, rewind
from django_idempotency.http.responses import (
    ProblemDetails,
    accepted_response,
    apply_upgrade,
    nothing_done_problem,
    problem_for,
    problem_response,
    replay_response,
    same_key_only,
    unavailable_problem,
)
from django_idempotency.signals import logger
from django_idempotency.store.database import alias

Handler = Callable[[], Any]
# Django turns these exceptions into a 400, 403 or 404.
ERROR_RESPONSES: Final = (Http404, PermissionDenied, SuspiciousOperation, BadRequest, MultiPartParserError)
VALIDATION_STATUSES: Final = (400, 422)


class NotKept(Exception):
    """The policy does not store this response: the view's writes are rolled back, and the key is free again."""

    def __init__(self, response: HttpResponseBase) -> None:
        self.response = response


class Exchange:
    """A request, its policy, and the view that answers it."""

    def __init__(self, request: HttpRequest, policy: Policy, handler: Handler, view: Any) -> None:
        self.request = request
        self.policy = policy
        self.handler = handler  # the view, with its arguments
        self.view = view  # carries the opt-outs from ATOMIC_REQUESTS
        self.using = alias()

    # Overridden for Django REST framework

    def finalize(self, response: HttpResponseBase) -> HttpResponseBase:
        """Return the response that the framework makes of what the view returned."""
        return response

    def capture(self, response: HttpResponseBase) -> tuple[HttpResponseBase, Reply]:
        """Return the response as it is sent, and the reply to store of it."""
        return capture_response(response, self.policy, self.request)

    def explain(self, error: Exception) -> HttpResponseBase:
        """Return the project's own response to an exception."""
        return response_for_exception(self.request, error)

    def stores_response_to(self, error: Exception) -> bool:
        """True if the project's response to this exception is stored: the view meant it as an error response."""
        return self.policy.on_error is OnError.STORE or isinstance(error, (*ERROR_RESPONSES, *self.policy.refusals))

    def problem_response(self, details: ProblemDetails) -> HttpResponseBase:
        """Return an error response of the layer's own."""
        return problem_response(details, self.policy.profile)

    def parsed_form(self) -> Any:
        """Return a multipart body if the framework parses it; None to parse it as Django does."""
        return None

    def rewind(self) -> None:
        """Prepare the request for a view that runs again."""
        rewind(self.request)

    # From the request to the stored response

    def call(self) -> Call | HttpResponseBase:
        """Return the call that this request makes, or the error response to a key that is missing or invalid."""
        profile = self.policy.profile
        lines = key_lines(self.request, self.policy)
        if not lines:
            return self.problem_response(ProblemDetails(problems.MISSING_KEY, profile.missing))
        try:
            principal = principal_of(self.request, self.policy)
            return call_from(self.request, lines, self.policy, principal, self.parsed_form())
        except InvalidKey as error:
            members = {"reason": error.reason}
            return self.problem_response(
                ProblemDetails(problems.INVALID_KEY, profile.invalid, str(error), members=members)
            )
        except NoPrincipal:
            return self.problem_response(ProblemDetails(problems.NO_PRINCIPAL, 403))

    @contextmanager
    def transactions(self) -> Iterator[None]:
        """Open the transactions that ATOMIC_REQUESTS gives the view, besides that of the record's database."""
        with ExitStack() as stack:
            try:
                stack.enter_context(open_atomic_requests(self.request, self.view, except_for=self.using))
            except Error as error:
                raise StoreUnavailable from error
            yield

    def keep(self, response: HttpResponseBase, *, reached_out: bool = False) -> tuple[HttpResponseBase, Reply]:
        """Return the response and the reply to store of it; raise NotKept if the policy stores no such response.

        A success is always stored: its effect has happened, and a free key would let it happen again. After an external
        call so is a 4xx response, because it does not prove that nothing happened.
        """
        is_error = response.status_code >= (500 if reached_out else 400)
        if is_error and (self.gives_back(response) or not self.policy.keeps(response.status_code)):
            raise NotKept(response)
        check_for_rollback(response)
        return self.capture(response)

    def gives_back(self, response: HttpResponseBase) -> bool:
        """True if this is a validation error in a profile where such an error uses up no key."""
        return self.policy.profile.release_invalid and response.status_code in VALIDATION_STATUSES

    # What the layer answers in the view's place

    def answer(self, answer: Answer, call: Call) -> HttpResponseBase:
        """Return the response that a decision stands for."""
        if isinstance(answer, Accepted):
            return accepted_response(call, answer.retry_after)
        if not isinstance(answer, Replay):
            return self.problem_response(problem_for(answer, call))
        if self.policy.authorize is not None and not self.policy.authorize(self.request, answer.record):
            raise PermissionDenied
        return replay_response(apply_upgrade(answer.reply, self.policy), self.policy.profile)

    def unavailable_response(self) -> HttpResponseBase:
        return self.problem_response(unavailable_problem(self.policy))

    def not_executed_response(self, error: NotExecuted, attempts: int = 1) -> HttpResponseBase:
        logger.info("Nothing was executed: %s", error)
        return self.problem_response(nothing_done_problem(self.policy, self.policy.pause_after(attempts)))

    def unknown_outcome_response(self, call: Call) -> HttpResponseBase:
        return self.problem_response(
            ProblemDetails(problems.UNKNOWN, self.policy.profile.unknown, members=same_key_only(call))
        )

    def settled_response(self, call: Call) -> HttpResponseBase:
        """Return what the record says now: another attempt, a reconciler or an operator has changed it."""
        try:
            answer = peek(call, self.using)
        except StoreUnavailable:  # nothing is known, and the view has run
            answer = None
        return self.unknown_outcome_response(call) if answer is None else self.answer(answer, call)


def capture_response(
    response: Any, policy: Policy, request: HttpRequest, *, withhold: bool = False
) -> tuple[HttpResponseBase, Reply]:
    """Return the response as it is sent, and the reply to store of it: without its body if `withhold`.

    A template is rendered first. A streamed response is treated as the policy says.
    """
    if callable(getattr(response, "render", None)):
        response = response.render()  # may return another response
    if isinstance(response, StreamingHttpResponse):
        body = _streamed_body(response, policy)
        if withhold or _holds_csrf_token(response, request):  # reading the stream may have made the token
            body = None
    elif isinstance(response, HttpResponse):
        private = withhold or _is_no_store(response) or _holds_csrf_token(response, request)
        body = None if response.content and private else response.content
    else:
        body = None
    return response, capture(response.status_code, response.items(), body, policy.reply)


def _holds_csrf_token(response: HttpResponseBase, request: HttpRequest) -> bool:
    """True if this is an HTML page and the reader's CSRF token was made for it. Django notes that in `META`."""
    return CSRF_META in request.META and response.headers.get("Content-Type", "").startswith("text/html")


def _is_no_store(response: HttpResponseBase) -> bool:
    return "no-store" in response.headers.get("Cache-Control", "").lower()


def _streamed_body(response: StreamingHttpResponse, policy: Policy) -> bytes | None:
    """Return the body of a stream, and leave the same chunks to be streamed. None if the body is not stored."""
    if policy.streaming is Streaming.REFUSE:
        raise UnstorableResponse
    if policy.streaming is Streaming.OMIT or response.is_async or _is_no_store(response):
        return None
    chunks = iter(response)
    head, size = [], 0
    for chunk in chunks:
        head.append(bytes(chunk))
        size += len(head[-1])
        if size > policy.reply.longest_body:
            break
    response.streaming_content = chain(head, chunks)
    return b"".join(head) if size <= policy.reply.longest_body else None


def gate(request: HttpRequest, arguments: Arguments | None) -> Policy | None:
    """Return the policy that protects this request; None if its view runs unprotected.

    A view inside a protected one is not protected again: it would find its own key claimed. Any other unprotected view
    finds a `request.idempotency` that does nothing.
    """
    if is_protected(request):
        return None
    policy = None if arguments is None else arguments.policy()
    if policy is not None and request.method in policy.methods and (policy.required or key_lines(request, policy)):
        return policy
    attach(request, NONE)
    return None


def run_unprotected(request: HttpRequest, view: Any, handler: Handler) -> Any:
    """Run a view in the transactions that Django would have opened. Inside a protected view they are open."""
    if is_protected(request):
        return handler()
    with open_atomic_requests(request, view):
        return handler()
