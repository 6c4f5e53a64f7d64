"""Django REST framework: a mixin for its views.

    class PaymentViewSet(IdempotentMixin, ModelViewSet):
        idempotency = {"transaction": "late"}

        @idempotent(mode="atomic")
        @action(detail=True, methods=["post"])
        def archive(self, request, pk): ...

A key is looked up only after authentication, permissions, throttling and negotiation let the request through.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial, update_wrapper
from typing import TYPE_CHECKING, Any, Final, TypeVar

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from rest_framework.exceptions import APIException
from rest_framework.renderers import BrowsableAPIRenderer
from rest_framework.request import Empty, Request
from rest_framework.response import Response
from rest_framework.views import APIView

from django_idempotency.conf import Arguments
from django_idempotency.core import problems
from django_idempotency.core.decisions import Answer, Call
from django_idempotency.core.policy import Policy
from django_idempotency.core.replies import Reply
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.atomic_requests import frames, take_over
from django_idempotency.http.context import NONE, Idempotency, NoIdempotency, is_protected
from django_idempotency.http.exchange import MARK, Exchange, covers, unprotected
from django_idempotency.http.responses import Refused, captured, headers_of, refusal
from django_idempotency.http.run import run
from django_idempotency.http.views import operation_status
from django_idempotency.signals import logger

__all__ = [
    "IdempotentMixin",
    "IdempotentRequest",
]

if TYPE_CHECKING:
    _View = APIView
else:
    _View = object

R = TypeVar("R", bound=HttpResponseBase)

FORM: Final = "multipart/form-data"


class IdempotentRequest(Request):
    """For annotations: a request as a protected action gets it."""

    idempotency: Idempotency | NoIdempotency


class IdempotentMixin(_View):
    """Protects the POST and PATCH of a view. `idempotency` holds the policy's arguments; None protects nothing.

    A method or action decorated with `@idempotent` has a policy of its own, one marked `@exempt` has none.
    """

    idempotency: Mapping[str, Any] | Arguments | None = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._own_arguments()  # a wrong one is an error where it is written
        if issubclass(cls, APIView) and cls.__mro__.index(APIView) < cls.__mro__.index(IdempotentMixin):
            raise Misplaced(f"The mixin stands before the view it protects: class {cls.__name__}(IdempotentMixin, …).")

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        if "idempotency" in kwargs:  # of this route alone; a router passes on what `@action` was given
            kwargs["idempotency"] = _arguments(kwargs["idempotency"])
        return take_over(super().as_view(*args, **kwargs))

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        self._policy = self._policy_for(request)
        handler = partial(super().dispatch, request, *args, **kwargs)
        if self._policy is not None:
            return handler()
        if is_protected(request):
            with frames():
                return handler()
        return unprotected(request, type(self).dispatch, handler)

    def _policy_for(self, request: HttpRequest) -> Policy | None:
        """The policy that covers this request; None when it is as if the mixin were not there."""
        name = (request.method or "").lower()
        handler = getattr(self, name, None) if name in self.http_method_names else None
        self._handler_is_decorated = hasattr(handler, MARK)
        arguments = getattr(handler, MARK, _arguments(self.__dict__.get("idempotency", self._own_arguments())))
        if handler is None or arguments is None or is_protected(request):
            return None
        policy: Policy = arguments.policy()
        return policy if covers(request, policy) else None

    @classmethod
    def _own_arguments(cls) -> Arguments | None:
        if "_arguments" not in cls.__dict__:
            cls._arguments = _arguments(cls.idempotency)
        return cls._arguments

    _arguments: Arguments | None
    _policy: Policy | None = None
    _handler_is_decorated = False

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        if self._policy is not None and request.content_type != FORM:
            _ = request.body  # before anybody reads the stream
        return super().initialize_request(request, *args, **kwargs)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self._policy is not None:
            _ = request.user  # a view that authenticates later than usual: a key belongs to somebody
            name = (request.method or "").lower()
            setattr(self, name, partial(_guarded, self, self._policy, getattr(self, name)))

    def handle_exception(self, exc: Exception) -> Response:
        with nullcontext() if self._policy is None else frames():
            return super().handle_exception(exc)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(response, "_is_final", False):
            return response
        return super().finalize_response(request, response, *args, **kwargs)


def as_it_is(response: R) -> R:
    """Keep the view from finalizing it, once more or at all."""
    response._is_final = True  # type: ignore[attr-defined] # ours
    return response


def _arguments(given: Mapping[str, Any] | Arguments | None) -> Arguments | None:
    return Arguments(given) if isinstance(given, Mapping) else given


def _guarded(
    view: APIView, policy: Policy, handler: Callable[..., Any], request: Request, *args: Any, **kwargs: Any
) -> Any:
    return run(RestExchange(view, policy, partial(handler, request, *args, **kwargs), request))


class Refusal(APIException):
    """An answer of the layer's own, on its way through the project's exception handler."""

    def __init__(self, refused: Refused, policy: Policy) -> None:
        self.status_code = refused.status
        self.default_code = refused.problem.code
        self.default_detail = refused.detail or refused.problem.detail
        self.detail: Any = problems.build_members(
            policy.profile, refused.problem, refused.status, refused.detail, **refused.members
        )
        if refused.retry_after is not None:
            self.wait = refused.retry_after

    def get_codes(self) -> Any:
        return self.default_code

    def get_full_details(self) -> Any:
        return {"message": self.default_detail, "code": self.default_code}


class RestExchange(Exchange):
    """DRF finalizes and renders a response; both happen here, inside the transaction that stores it."""

    def __init__(self, view: APIView, policy: Policy, handler: Callable[[], Any], request: Request) -> None:
        super().__init__(request._request, policy, lambda: self.final(handler()), type(view).dispatch)
        self.owner = view
        self.drf_request = request

    def final(self, response: Any) -> Any:
        stored = getattr(self.request, "idempotency", NONE).response
        if stored is not None and response is stored:
            return as_it_is(stored)  # an operation's, made of its record
        headers = dict(self.owner.headers)  # finalizing takes Vary out, and the view may run again
        finished: Any = self.owner.finalize_response(self.drf_request, response, *self.owner.args, **self.owner.kwargs)
        self.owner.headers = headers
        return as_it_is(finished)

    def answer(self, answer: Answer, call: Call) -> HttpResponseBase:
        """What was stored was finalized before that."""
        return as_it_is(super().answer(answer, call))

    def capture(self, response: HttpResponseBase) -> tuple[HttpResponseBase, Reply]:
        """A page of the browsable API is never stored: it carries the reader's CSRF token."""
        finished = response if getattr(response, "_is_final", False) else self.final(response)
        page = isinstance(getattr(finished, "accepted_renderer", None), BrowsableAPIRenderer)
        return captured(finished, self.policy, self.request, withhold=page)

    def refuse(self, refused: Refused) -> HttpResponseBase:
        """Through the project's exception handler; should that fail, plainly."""
        error = Refusal(refused, self.policy)
        try:
            response = self.explain(error)
        except Exception:  # noqa: BLE001 - a handler that cannot explain it must not turn it into a 500
            logger.exception("The project's exception handler failed at a refusal.")
            return as_it_is(refusal(refused, self.policy.profile))
        if _speaks_json(response) and _says_all(response, error.detail):
            response.content_type = problems.choose_media_type(self.policy.profile)  # type: ignore[attr-defined] # DRF's own
        for name, value in headers_of(refused, self.policy.profile).items():
            response[name] = value
        return response

    def explain(self, error: Exception) -> HttpResponseBase:
        """DRF's answer; Django's to what DRF does not know and therefore raises again."""
        with frames():
            try:
                response: HttpResponseBase = self.owner.handle_exception(error)
            except Exception as unexplained:
                if unexplained is not error or isinstance(error, Refusal):
                    raise
                response = super().explain(error)
        finished: HttpResponseBase = self.final(response)
        return finished

    def is_refusal(self, error: BaseException) -> bool:
        return super().is_refusal(error) or (isinstance(error, APIException) and error.status_code < 500)

    def parsed(self) -> Any:
        return self.drf_request.data if self.request.content_type == FORM else None

    def rewind(self) -> None:
        """A view may have taken `request.data` apart: it is made anew, as DRF made it."""
        super().rewind()
        request: Any = self.drf_request
        if self.request.content_type != FORM:
            request._stream = request._data = request._full_data = Empty
        elif request._files:
            request._full_data = request._data.copy()
            request._full_data.update(request._files)


def protect_api_view(view: Any, arguments: Arguments) -> Any:
    """`@idempotent` above `@api_view`: the class behind the function is the function's own, so it may be replaced."""
    cls = view.cls
    if not made_by_api_view(cls):
        raise Misplaced(
            f"@idempotent cannot protect {cls.__name__}.as_view(): write `class {cls.__name__}(IdempotentMixin, …)` "
            "and put the policy into its `idempotency`."
        )
    protected: Any = type(
        cls.__name__, (IdempotentMixin, cls), {"idempotency": arguments, "__module__": cls.__module__}
    )
    protected.__qualname__ = cls.__qualname__
    made = update_wrapper(protected.as_view(), view, updated=())
    setattr(made, MARK, arguments)
    return made


def run_method(request: Any, owner: Any, arguments: Arguments, handler: Callable[[], Any]) -> Any:
    """A decorated method of a DRF view, or a function below `@api_view`, called after DRF let the request through."""
    if isinstance(owner, IdempotentMixin):
        if not owner._handler_is_decorated:
            raise _not_the_handler(owner, handler)
        return handler()
    if not made_by_api_view(type(owner)):
        name = type(owner).__name__
        raise Misplaced(f"@idempotent on a method of {name} needs the mixin: write `class {name}(IdempotentMixin, …)`.")
    policy = arguments.policy()
    if is_protected(request._request) or not covers(request._request, policy):
        return handler()
    return run(RestExchange(owner, policy, handler, request))


def _not_the_handler(owner: Any, handler: Any) -> Misplaced:
    name = f"{type(owner).__name__}.{handler.func.__name__}"
    return Misplaced(
        f"{name} is not what answers {owner.request.method}, so @idempotent has no effect there: "
        "decorate the method that is, or put the policy into `idempotency` of the class."
    )


def _speaks_json(response: HttpResponseBase) -> bool:
    renderer = getattr(response, "accepted_renderer", None)
    return isinstance(response, Response) and getattr(renderer, "media_type", "") == "application/json"


def _says_all(response: Any, content: Mapping[str, Any]) -> bool:
    """Whether the project's handler left the problem's members as they are; more may stand beside them."""
    return isinstance(response.data, Mapping) and content.items() <= response.data.items()


def made_by_api_view(cls: type) -> bool:
    return cls.__qualname__ == "WrappedAPIView"


class OperationView(APIView):
    """How far deferred work is, for the project's own authentication, and for a session besides.

    Nothing but ownership is asked: work of callers without credentials has an address too.
    """

    permission_classes = ()
    schema = None  # its answers are those of other endpoints, so no serializer describes them

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        self._of_session = getattr(request, "user", None)  # authentication overwrites it
        return super().initialize_request(request, *args, **kwargs)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        return super().perform_content_negotiation(request, force=True)  # the answer was rendered long ago

    def get(self, request: Request, ref: str) -> HttpResponseBase:
        known = getattr(request.user, "is_authenticated", False)  # UNAUTHENTICATED_USER may be None
        if not known and request.auth is None and self._of_session is not None:
            request._request.user = self._of_session
        return operation_status(request._request, ref)
