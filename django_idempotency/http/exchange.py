"""One request under one key, and what the layer itself answers to it. DRF's views differ in what is overridden here."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.core.handlers.exception import response_for_exception
from django.db import Error
from django.http import Http404, HttpRequest
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase

from django_idempotency.core import problems
from django_idempotency.core.decisions import Accepted, Answer, Call, Replay
from django_idempotency.core.policy import Policy
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import InvalidKey, NoPrincipal, NotExecuted, StoreUnavailable
from django_idempotency.flow.claim import peek
from django_idempotency.http.atomic_requests import as_django_would, check_given_up
from django_idempotency.http.context import NONE, attach
from django_idempotency.http.requests import call_from, key_lines, principal_of, rewind
from django_idempotency.http.responses import (
    Refused,
    accepted,
    captured,
    refusal,
    refused,
    replay,
    unavailable,
    upgraded,
)
from django_idempotency.signals import logger
from django_idempotency.store.database import alias

Handler = Callable[[], Any]
REFUSALS: Final = (Http404, PermissionDenied, SuspiciousOperation, BadRequest, MultiPartParserError)
INVALID: Final = (400, 422)
MARK: Final = "_idempotency"  # an endpoint's arguments, on whatever was decorated; None exempts it


class NotKept(Exception):
    """The policy keeps no such answer: its writes roll back and the key is free again."""

    def __init__(self, response: HttpResponseBase) -> None:
        self.response = response


class Exchange:
    """A request, its policy, and the view that answers it."""

    def __init__(self, request: HttpRequest, policy: Policy, handler: Handler, view: Any) -> None:
        self.request = request
        self.policy = policy
        self.handler = handler
        self.view = view  # carries the opt-outs from ATOMIC_REQUESTS
        self.using = alias()

    # What DRF does in its own way

    def refuse(self, refused: Refused) -> HttpResponseBase:
        """A refusal as a response."""
        return refusal(refused, self.policy.profile)

    def capture(self, response: HttpResponseBase) -> tuple[HttpResponseBase, Reply]:
        """A response as it is sent, and what is stored of it."""
        return captured(response, self.policy, self.request)

    def explain(self, error: Exception) -> HttpResponseBase:
        """The project's own answer to an exception."""
        return response_for_exception(self.request, error)

    def is_refusal(self, error: BaseException) -> bool:
        """Whether an exception is a deliberate answer of the endpoint."""
        return isinstance(error, (*REFUSALS, *self.policy.refusals))

    def parsed(self) -> Any:
        """A multipart body that has been parsed already."""
        return None

    def rewind(self) -> None:
        """Before the view runs again within one request."""
        rewind(self.request)

    # The endpoint's part

    def call(self) -> Call | HttpResponseBase:
        """The key, checked before any query of ours; or why there is none."""
        profile = self.policy.profile
        lines = key_lines(self.request, self.policy)
        if not lines:
            return self.refuse(Refused(problems.MISSING_KEY, profile.missing))
        try:
            principal = principal_of(self.request, self.policy)
            return call_from(self.request, lines, self.policy, principal, self.parsed())
        except InvalidKey as error:
            return self.refuse(
                Refused(problems.INVALID_KEY, profile.invalid, str(error), members={"reason": error.reason})
            )
        except NoPrincipal:
            return self.refuse(Refused(problems.NO_PRINCIPAL, 403))

    @contextmanager
    def transactions(self) -> Iterator[None]:
        """Those that ATOMIC_REQUESTS gives the view besides the record's. What is not kept takes them all back."""
        with ExitStack() as stack:
            try:
                stack.enter_context(as_django_would(self.request, self.view, but=self.using))
            except Error as error:
                raise StoreUnavailable from error
            yield

    def kept(self, response: HttpResponseBase, *, reached_out: bool = False) -> tuple[HttpResponseBase, Reply]:
        """A success is always kept: its effect is there, and a free key would run it again.

        So is a refusal that follows a call to somebody else, which does not prove that nothing happened.
        """
        refused = response.status_code >= (500 if reached_out else 400)
        if refused and (self.gives_back(response) or not self.policy.keeps(response.status_code)):
            raise NotKept(response)
        check_given_up(response)
        return self.capture(response)

    def gives_back(self, response: HttpResponseBase) -> bool:
        """Whether the request was refused as invalid, in a profile where that uses up no key."""
        return self.policy.profile.release_invalid and response.status_code in INVALID

    # What the layer says when the endpoint has no answer

    def answer(self, answer: Answer, call: Call) -> HttpResponseBase:
        """The response that a decision stands for."""
        if isinstance(answer, Accepted):
            return accepted(call, answer.retry_after)
        if not isinstance(answer, Replay):
            return self.refuse(refused(answer, call))
        if self.policy.authorize is not None and not self.policy.authorize(self.request, answer.record):
            raise PermissionDenied
        return replay(upgraded(answer.reply, self.policy), self.policy.profile)

    def unavailable(self) -> HttpResponseBase:
        return self.refuse(unavailable(self.policy))

    def not_executed(self, error: NotExecuted) -> HttpResponseBase:
        logger.info("Nothing was executed: %s", error)
        refused = unavailable(self.policy)
        return self.refuse(Refused(problems.NOTHING_DONE, refused.status, "", refused.retry_after))

    def in_doubt(self, call: Call) -> HttpResponseBase:
        members = {"safe_new_key": False, "operation_ref": str(call.id)}
        return self.refuse(Refused(problems.UNKNOWN, self.policy.profile.unknown, members=members))

    def overtaken(self, call: Call) -> HttpResponseBase:
        """Somebody else settled the record: what it says now is the answer."""
        try:
            answer = peek(call, self.using)
        except StoreUnavailable:  # the view has run
            answer = None
        return self.in_doubt(call) if answer is None else self.answer(answer, call)


def unprotected(request: HttpRequest, view: Any, handler: Handler, *, transactions: bool = True) -> Any:
    """A request that is not covered gets what Django would have done; async views have no transaction."""
    attach(request, NONE)
    if not transactions:
        return handler()
    with as_django_would(request, view):
        return handler()


def covers(request: HttpRequest, policy: Policy) -> bool:
    """Whether this request is about a key at all."""
    return request.method in policy.methods and (policy.required or bool(key_lines(request, policy)))
