"""Django REST framework: a mixin for its views, and the only module that imports it::

    class OrderViewSet(IdempotentMixin, ModelViewSet):
        idempotency = {"mode": "atomic"}

A key is looked up only after authentication, permissions, throttling and negotiation let the request through.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from rest_framework.exceptions import APIException
from rest_framework.renderers import BrowsableAPIRenderer
from rest_framework.request import Empty, Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.conf import Arguments
from django_idempotency.core import problems
from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Answer, Replay
from django_idempotency.core.policy import Policy
from django_idempotency.core.replies import Reply
from django_idempotency.core.validation import OBJECT
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.atomic_requests import open_atomic_requests, opt_out_of_atomic_requests, savepoints
from django_idempotency.http.context import NONE, Idempotency, NoIdempotency, is_protected
from django_idempotency.http.exchange import Exchange, capture_response, gate
from django_idempotency.http.forms import MULTIPART, parse_form
from django_idempotency.http.objects import require_object
from django_idempotency.http.private_names import DJANGO_REQUEST, forget_parsed_body, merge_parsed_form
from django_idempotency.http.requests import may_have_key
from django_idempotency.http.responses import ProblemDetails, problem_headers, problem_response
from django_idempotency.http.run import run
from django_idempotency.http.views import key_status, operation_status
from django_idempotency.http.wrapping import POLICY_MARK
from django_idempotency.signals import logger

__all__ = ["IdempotentMixin", "IdempotentRequest"]

if TYPE_CHECKING:
    _View = APIView
else:
    _View = object

R = TypeVar("R", bound=HttpResponseBase)


class IdempotentRequest(Request):
    """The request of a protected action, for annotations."""

    idempotency: Idempotency | NoIdempotency


class IdempotentMixin(_View):
    # Protects the POST and PATCH of a view. `idempotency` holds the policy's arguments; None protects nothing.
    # A method or action decorated with `@idempotent` has a policy of its own, one marked `@exempt` has none.
    # This is no docstring, because drf-spectacular would publish it as the description of each view without one.

    idempotency: Mapping[str, Any] | Arguments | None = {}

    _class_arguments: Arguments | None
    _policy: Policy | None = None
    _handler_is_decorated = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._class_arguments = _arguments(cls.idempotency)  # reports a wrong argument when the class is defined
        if issubclass(cls, APIView) and cls.__mro__.index(APIView) < cls.__mro__.index(IdempotentMixin):
            raise Misplaced(f"Put the mixin before the view it protects: class {cls.__name__}(IdempotentMixin, …).")

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        if "idempotency" in kwargs:  # for this route alone; a router passes what `@action` was given
            kwargs["idempotency"] = _arguments(kwargs["idempotency"])
        return opt_out_of_atomic_requests(super().as_view(*args, **kwargs))

    def _arguments_for(self, request: HttpRequest) -> Arguments | None:
        """Return the arguments of the method that answers this request, or those of the class."""
        name = (request.method or "").lower()
        handler = getattr(self, name, None) if name in self.http_method_names else None
        self._handler_is_decorated = hasattr(handler, POLICY_MARK)
        if handler is None or self._handler_is_decorated:
            return getattr(handler, POLICY_MARK, None)
        return _arguments(self.__dict__.get("idempotency", self._class_arguments))

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        self._policy = gate(request, self._arguments_for(request), may_have_key)
        if self._policy is not None:
            return super().dispatch(request, *args, **kwargs)
        with savepoints() if is_protected(request) else open_atomic_requests(request, type(self).dispatch):
            return super().dispatch(request, *args, **kwargs)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        if self._policy is not None and request.content_type != MULTIPART:
            _ = request.body  # keeps it for the fingerprint, before a parser reads the stream
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self._policy is not None:
            _ = request.user  # authenticates, if `initial` was overridden and has not
            name = (request.method or "").lower()
            handler = partial(getattr(self, name), request, *args, **kwargs)
            # After `initial`, `dispatch` calls the method that it finds on the instance. It has no other hook there.
            setattr(self, name, partial(run, RestExchange(self, self._policy, handler, request)))

    def handle_exception(self, exc: Exception) -> Response:
        with nullcontext() if self._policy is None else savepoints():
            return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(response, "_is_final", False):
            return response
        return super().finalize_response(request, response, *args, **kwargs)


def mark_final(response: R) -> R:
    """Keep the view from finalizing this response, for the first time or again."""
    response._is_final = True  # type: ignore[attr-defined] # ours
    return response


def _arguments(given: Mapping[str, Any] | Arguments | None) -> Arguments | None:
    return Arguments(given) if isinstance(given, Mapping) else given


class ProblemException(APIException):
    """Carries an error response of the layer through the project's exception handler."""

    def __init__(self, details: ProblemDetails, policy: Policy) -> None:
        self.status_code = details.status
        self.default_code = problems.choose_code(policy.profile, details.problem)
        self.default_detail = details.detail or details.problem.detail
        self.detail: Any = details.content(policy.profile)
        if details.retry_after is not None:
            self.wait = details.retry_after

    def get_codes(self) -> Any:
        return self.default_code

    def get_full_details(self) -> Any:
        return {"message": self.default_detail, "code": self.default_code}


class RestExchange(Exchange):
    """An exchange whose responses the view finalizes and renders, in the transaction that stores them."""

    def __init__(self, view: APIView, policy: Policy, handler: Callable[[], Any], request: Request) -> None:
        super().__init__(getattr(request, DJANGO_REQUEST), policy, handler, type(view).dispatch, owner=view)
        self.rest_request = request

    def finalize(self, response: Any) -> HttpResponseBase:
        stored: HttpResponseBase | None = getattr(self.request, "idempotency", NONE).response
        if stored is not None and response is stored:
            return mark_final(stored)  # an operation's response is sent as its record has it
        super().finalize(response)
        headers = dict(self.owner.headers)  # finalizing removes Vary from them, and the view may run again
        finalized: HttpResponseBase = self.owner.finalize_response(
            self.rest_request, response, *self.owner.args, **self.owner.kwargs
        )
        self.owner.headers = headers
        return mark_final(finalized)

    def answer(self, answer: Answer, call: Call) -> HttpResponseBase:
        """Return the response that a decision stands for. A stored one was finalized before it was stored."""
        return mark_final(super().answer(answer, call))

    def require_authorization(self, replay: Replay) -> None:
        """Raise an error if `authorize` rejects this replay, or the view's permissions its object."""
        if self.policy.authorize == OBJECT:
            require_object(self.owner, replay.reply)
        else:
            super().require_authorization(replay)

    def capture(self, response: HttpResponseBase) -> tuple[HttpResponseBase, Reply]:
        """Finalize and capture. A page of the browsable API is stored without its body: it has a CSRF token in it."""
        finalized = response if getattr(response, "_is_final", False) else self.finalize(response)
        page = isinstance(getattr(finalized, "accepted_renderer", None), BrowsableAPIRenderer)
        return capture_response(finalized, self.policy, self.request, withhold=page)

    def problem_response(self, details: ProblemDetails) -> HttpResponseBase:
        """Return an error response made by the project's exception handler; a plain one if the handler fails."""
        error = ProblemException(details, self.policy)
        try:
            response = self.explain(error)
        except Exception:  # noqa: BLE001 - a failing handler must not turn this response into a 500
            logger.exception("The project's exception handler failed on a problem of the idempotency layer.")
            return mark_final(problem_response(details, self.policy.profile))
        if _is_problem(response, error.detail):
            response.content_type = problems.choose_media_type(self.policy.profile)  # type: ignore[attr-defined] # DRF's own
        for name, value in problem_headers(details, self.policy.profile).items():
            response[name] = value
        return response

    def explain(self, error: Exception) -> HttpResponseBase:
        """Return DRF's response to an exception; Django's to one that DRF does not know and raises again."""
        with savepoints():
            try:
                response: HttpResponseBase = self.owner.handle_exception(error)
            except Exception as unexplained:
                if unexplained is not error or isinstance(error, ProblemException):
                    raise
                response = super().explain(error)
        return self.finalize(response)

    def is_refusal(self, error: Exception) -> bool:
        return super().is_refusal(error) or (isinstance(error, APIException) and error.status_code < 500)

    def parsed_form(self) -> Any:
        if self.request.content_type != MULTIPART:
            return None
        return parse_form(self.request, lambda: self.rest_request.data)

    def rewind(self) -> None:
        """Prepare the request for a view that runs again. It may have changed `request.data`, which is made anew."""
        super().rewind()
        if self.request.content_type == MULTIPART:
            merge_parsed_form(self.rest_request)
        else:
            forget_parsed_body(self.rest_request, Empty)


def _is_problem(response: Any, members: Mapping[str, Any]) -> bool:
    """True if the project's handler made JSON that has all the problem's members. It may have added others."""
    media_type = getattr(getattr(response, "accepted_renderer", None), "media_type", "")
    if media_type != "application/json" or not isinstance(response, Response):
        return False
    return isinstance(response.data, Mapping) and members.items() <= response.data.items()


class OperationView(APIView):
    """The status of a request or of deferred work. The endpoint that took it is asked who may see it."""

    schema = None  # its responses are those of other endpoints, so no serializer describes them

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Ask nothing here: the project's defaults may differ from what the endpoint asks."""

    def get(self, request: Request, ref: str) -> HttpResponseBase:
        return operation_status(getattr(request, DJANGO_REQUEST), ref, partial(_authenticate, request))


class KeyView(OperationView):
    """The outcome of a key."""

    def get(self, request: Request) -> HttpResponseBase:  # type: ignore[override]
        return key_status(getattr(request, DJANGO_REQUEST), partial(_authenticate, request))


def _authenticate(request: Request) -> None:
    """Set the user of Django's request to whom the project's authentication classes know; keep a session's user."""
    asked: HttpRequest = getattr(request, DJANGO_REQUEST)
    session_user = getattr(asked, "user", AnonymousUser())
    with suppress(APIException):
        if getattr(request.user, "is_authenticated", False) or request.auth is not None:
            return
    asked.user = session_user
