"""The second door to a stored response: an endpoint asks a caller what it asks of a retry, and its view does not run.

A receipt and an operation's address show nothing before the endpoint has let the caller in. Imports neither Django REST
framework nor django-ninja: the endpoint brings everything along.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
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
class Keeper:
    """What is asked of the callers of one endpoint. It is found once for each view and method."""

    arguments: Arguments
    is_askable: bool  # nothing outside the protection refuses a request, apart from what is asked here
    view: Any  # the class, in Django REST framework
    initial_arguments: Mapping[str, Any]  # of the class
    actions: Mapping[str, str] | None  # of a view set
    operation: Any  # of django-ninja

    def make_view(self, asked: HttpRequest, match: ResolverMatch) -> Any:
        """Make the view of Django REST framework, as for a request of its own; None for other endpoints."""
        if self.view is None:
            return None
        view = self.view(**self.initial_arguments)
        if self.actions is None:
            view.setup(asked, *match.args, **match.kwargs)
        else:
            view.action_map = self.actions
            view.request, view.args, view.kwargs = asked, match.args, match.kwargs
        view.headers = view.default_response_headers
        view.request = view.initialize_request(asked, *match.args, **match.kwargs)
        return view

    def ask_operation(self, asked: HttpRequest) -> None:
        """Run the checks of an operation of django-ninja. NotAdmitted if they make a response."""
        if self.operation is None:
            return
        check = getattr(self.operation, NINJA_CHECKS, self.operation._run_checks)
        refusal = async_to_sync(check)(asked) if iscoroutinefunction(check) else check(asked)
        if refusal is not None:
            raise NotAdmitted(refusal, asked)


@dataclass(frozen=True, slots=True)
class Door:
    """A protected endpoint, as a path and a method lead to it."""

    path: str  # as the first request had it
    method: str
    match: ResolverMatch
    keeper: Keeper

    @property
    def policy(self) -> Policy:
        return self.keeper.arguments.policy()

    @property
    def opens(self) -> bool:
        """True if the endpoint can say who may see a stored response."""
        policy = self.policy
        return (
            policy.receipts if policy.receipts is not None else self.keeper.is_askable or policy.authorize is not None
        )

    def let_in(self, request: HttpRequest, query: str = "", authenticate: Authentication | None = None) -> Visitor:
        """Ask what the endpoint asks before it looks a key up. NotAdmitted if it does not let this caller in.

        `authenticate` tells the user of a plain view, as far as the project's own classes know him.
        """
        keeper, policy = self.keeper, self.policy
        if authenticate is not None and keeper.view is None and keeper.operation is None:
            authenticate()
        asked = self._send_again(request, query)
        view = keeper.make_view(asked, self.match)
        with refusals(view, asked):
            if view is not None:
                view.initial(view.request, *view.args, **view.kwargs)
            keeper.ask_operation(asked)
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


def door_at(path: str, method: str) -> Door | None:
    """Return the door of the protected endpoint that answers this method at this path; None if there is none."""
    match = match_of(path)
    if match is None:
        return None
    try:
        keeper = _keeper_of(match.func, method)
    except TypeError:  # the view is not hashable
        keeper = _keeper_of.__wrapped__(match.func, method)
    return None if keeper is None else Door(path, method, match, keeper)


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
def _keeper_of(callback: Any, method: str) -> Keeper | None:
    endpoint = Endpoint("", callback)
    found = (each for each in endpoint.policies_around(method) if each is not None and method in each.methods)
    arguments = next(found, None)
    if arguments is None:
        return None
    view = endpoint.view if endpoint.is_rest else None
    operation = next((each for each in endpoint.operations if method in each.methods), None)
    return Keeper(
        arguments=arguments,
        is_askable=_is_askable(endpoint, method, operation),
        view=view,
        initial_arguments=endpoint.arguments,
        actions=endpoint.handlers if endpoint.is_view_set else None,
        operation=operation,
    )


def _is_askable(endpoint: Endpoint, method: str, operation: Any) -> bool:
    """True if everything outside the protection is Django REST framework's or django-ninja's, and can be asked."""
    if operation is not None:
        return is_guard(operation.run) and hasattr(operation, NINJA_CHECKS)
    if not endpoint.is_rest or endpoint.view is None:
        return False
    dispatches = [vars(each)["dispatch"] for each in endpoint.view.__mro__ if "dispatch" in vars(each)]
    name = endpoint.handlers.get(method.lower(), "")
    around = layers(getattr(endpoint.view, name)) if name in endpoint.inside else iter(())
    outside = takewhile(lambda layer: not is_guard(layer), around)
    return refuses_nobody(chain(endpoint.layers, dispatches, outside))


def refuses_nobody(functions: Iterable[Any]) -> bool:
    """True if each of these is known to let every request pass, apart from what is asked here."""
    return all(isinstance(each, FunctionType) and _is_transparent(each) for each in functions)


def _is_transparent(function: FunctionType) -> bool:
    module = function.__globals__["__name__"]  # functools.wraps changes `__module__`
    return any(module == each or module.startswith(f"{each}.") for each in _TRANSPARENT)


def sent_path(given: str) -> tuple[str, str]:
    """Return the path and the query of an address as a client knows it."""
    path, _, query = given.partition("#")[0].partition("?")
    return unquote(path), query
