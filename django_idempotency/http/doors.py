"""The second door to a stored response: an endpoint asks a caller what it asks of a retry, and its view does not run.

A receipt and an operation's address show nothing before the endpoint has let the caller in. Imports neither Django REST
framework nor django-ninja: the endpoint brings everything along.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, takewhile
from types import FunctionType
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch

from django_idempotency.conf import Arguments
from django_idempotency.core.decisions import Record
from django_idempotency.core.policy import Policy
from django_idempotency.core.replies import Reply
from django_idempotency.core.validation import OBJECT, is_true
from django_idempotency.http.objects import require_object
from django_idempotency.http.private_names import skip_csrf_check
from django_idempotency.http.urlconf import Endpoint, match_of, path_info
from django_idempotency.http.wrapping import NINJA_CHECKS, is_guard, layers

# Headers of a refusal that tell the caller what to do.
_ADVICE: Final = ("WWW-Authenticate", "Retry-After")
# Code around a view that refuses nobody; what Django REST framework and django-ninja refuse is asked.
_TRANSPARENT: Final = (
    "django.views.decorators.cache",
    "django.views.decorators.csrf",
    "django.views.generic.base",
    "django_idempotency",
    "ninja",
    "rest_framework",
)


def require_authorization(policy: Policy, request: HttpRequest, record: Record) -> None:
    """Raise PermissionDenied if the function in the policy's `authorize` rejects this replay."""
    if callable(policy.authorize) and not is_true(policy.authorize(request, record)):
        raise PermissionDenied


def require_verification(policy: Policy, request: HttpRequest) -> None:
    """Raise PermissionDenied if the policy's `verify` rejects this request."""
    if policy.verify is not None and not is_true(policy.verify(request)):
        raise PermissionDenied


Authentication: TypeAlias = Callable[[], None]  # sets the user of a request


class NotAdmitted(Exception):
    """The endpoint does not let this caller in. The response has its status, and nothing that its view made."""

    def __init__(self, refusal: HttpResponseBase, caller: HttpRequest) -> None:
        self.caller = caller
        advice = {name: refusal[name] for name in _ADVICE if name in refusal}
        self.response = HttpResponse(status=refusal.status_code, headers=advice)


@dataclass(frozen=True, slots=True)
class Visitor:
    """A caller as the endpoint knows it."""

    request: HttpRequest  # as if the caller had sent the first request again, without its body
    policy: Policy
    view: Any  # the instance, in Django REST framework

    def require_authorization(self, record: Record, reply: Reply) -> None:
        """Ask the policy's `authorize`, as for a replay."""
        with refusals(self.view, self.request):
            if self.policy.authorize != OBJECT:
                require_authorization(self.policy, self.request, record)
            elif self.view is None:
                raise PermissionDenied
            else:
                require_object(self.view, reply)


@dataclass(frozen=True, slots=True)
class Door:
    """A protected endpoint, as a path and a method lead to it."""

    path: str  # as the first request had it
    method: str
    match: ResolverMatch
    arguments: Arguments
    is_askable: bool  # nothing outside the protection refuses a request, apart from what is asked here

    @property
    def opens(self) -> bool:
        """True if the endpoint can say who may see a stored response."""
        policy = self.arguments.policy()
        return policy.receipts if policy.receipts is not None else self.is_askable or policy.authorize is not None

    def let_in(self, request: HttpRequest, query: str = "", authenticate: Authentication | None = None) -> Visitor:
        """Ask what the endpoint asks before it looks a key up. NotAdmitted if it does not let this caller in.

        `authenticate` tells the user of a plain view, as far as the project's own classes know him.
        """
        endpoint, policy = Endpoint("", self.match.func), self.arguments.policy()
        if authenticate is not None and not endpoint.is_rest and not endpoint.operations:
            authenticate()
        asked = self._send_again(request, query)
        view = self._make_view(endpoint, asked) if endpoint.is_rest else None
        with refusals(view, asked):
            if view is not None:
                view.initial(view.request, *view.args, **view.kwargs)
            for operation in _operations(endpoint, self.method):
                _run_checks(operation, asked)
            require_verification(policy, asked)
        return Visitor(asked, policy, view)

    def _send_again(self, request: HttpRequest, query: str) -> HttpRequest:
        again: Any = copy(request)
        info = path_info(self.path)
        again.method, again.path, again.path_info, again.resolver_match = self.method, self.path, info, self.match
        again.META = {**request.META, "REQUEST_METHOD": self.method, "PATH_INFO": info, "QUERY_STRING": query}
        again.META |= {"CONTENT_LENGTH": "", "CONTENT_TYPE": ""}
        again.GET, again.content_type, again.content_params = QueryDict(query), "", {}
        skip_csrf_check(again)  # nothing is changed
        return again  # type: ignore[no-any-return]

    def _make_view(self, endpoint: Endpoint, asked: HttpRequest) -> Any:
        cls: Any = endpoint.view
        view = cls(**endpoint.arguments)
        if endpoint.is_view_set:
            view.action_map = endpoint.handlers
            view.request, view.args, view.kwargs = asked, self.match.args, self.match.kwargs
        else:
            view.setup(asked, *self.match.args, **self.match.kwargs)
        view.headers = view.default_response_headers
        view.request = view.initialize_request(asked, *self.match.args, **self.match.kwargs)
        return view


def door_at(path: str, method: str) -> Door | None:
    """Return the door of the protected endpoint that answers this method at this path; None if there is none."""
    match = match_of(path)
    if match is None:
        return None
    try:
        arguments, is_askable = _look_at(match.func, method)
    except TypeError:  # the view is not hashable
        arguments, is_askable = _look_at.__wrapped__(match.func, method)
    return None if arguments is None else Door(path, method, match, arguments, is_askable)


@contextmanager
def refusals(view: Any, asked: HttpRequest) -> Iterator[None]:
    """Raise NotAdmitted for what the framework makes an error response of."""
    try:
        yield
    except NotAdmitted:
        raise
    except PermissionDenied as error:
        refusal = HttpResponse(status=403) if view is None else view.handle_exception(error)
        raise NotAdmitted(refusal, asked) from error
    except Exception as error:
        if view is None:
            raise
        raise NotAdmitted(view.handle_exception(error), asked) from error  # which raises what is no response again


@lru_cache(maxsize=1024)
def _look_at(callback: Any, method: str) -> tuple[Arguments | None, bool]:
    endpoint = Endpoint("", callback)
    found = (each for each in endpoint.policies_around(method) if each is not None and method in each.methods)
    arguments = next(found, None)
    return arguments, arguments is not None and _is_askable(endpoint, method)


def _is_askable(endpoint: Endpoint, method: str) -> bool:
    """True if everything outside the protection is Django REST framework's or django-ninja's, and can be asked."""
    if operations := _operations(endpoint, method):
        return all(is_guard(each.run) and hasattr(each, NINJA_CHECKS) for each in operations)
    if not endpoint.is_rest or endpoint.view is None:
        return False
    dispatches = [vars(each)["dispatch"] for each in endpoint.view.__mro__ if "dispatch" in vars(each)]
    name = endpoint.handlers.get(method.lower(), "")
    around = layers(getattr(endpoint.view, name)) if name in endpoint.inside else iter(())
    outside = takewhile(lambda layer: not is_guard(layer), around)
    return _are_transparent(chain(endpoint.layers, dispatches, outside))


def _are_transparent(functions: Iterable[Any]) -> bool:
    return all(isinstance(each, FunctionType) and _is_transparent(each) for each in functions)


def _is_transparent(function: FunctionType) -> bool:
    module = function.__globals__["__name__"]  # functools.wraps changes `__module__`
    return any(module == each or module.startswith(f"{each}.") for each in _TRANSPARENT)


def _operations(endpoint: Endpoint, method: str) -> list[Any]:
    """Return the operation of django-ninja that answers this method, if there is one."""
    return [each for each in endpoint.operations if method in each.methods][:1]


def _run_checks(operation: Any, asked: HttpRequest) -> None:
    check = getattr(operation, NINJA_CHECKS)
    refusal = async_to_sync(check)(asked) if iscoroutinefunction(check) else check(asked)
    if refusal is not None:
        raise NotAdmitted(refusal, asked)


def sent_path(given: str) -> tuple[str, str]:
    """Return the path and the query of an address as a client knows it."""
    path, _, query = given.partition("#")[0].partition("?")
    return unquote(path), query
