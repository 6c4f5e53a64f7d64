"""django-ninja: a decorator for its operations, an API that describes them, and the only module that imports it::

    @api.post("/orders", response={201: OrderOut})
    @idempotent_operation(mode="atomic")
    def create(request, order: OrderIn): ...

A key is looked up only after the operation's authentication and throttling let the request through.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, Final, TypeVar

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from ninja import NinjaAPI
from ninja.decorators import decorate_view
from ninja.errors import HttpError, ValidationError
from ninja.openapi.schema import REF_TEMPLATE, OpenAPISchema
from ninja.operation import Operation

from django_idempotency.conf import Arguments
from django_idempotency.core.policy import Mode, Policy
from django_idempotency.exceptions import Misplaced
from django_idempotency.http.exchange import Exchange, gate, run_unprotected
from django_idempotency.http.openapi import describe_operation
from django_idempotency.http.openapi_responses import Schema
from django_idempotency.http.responses import ProblemDetails, problem_response
from django_idempotency.http.run import arun, run
from django_idempotency.http.wrapping import NINJA_CHECKS, layers, mark_of, mark_policy

__all__ = ["DescribedAPI", "idempotent_operation"]

F = TypeVar("F", bound=Callable[..., Any])
_ERROR_RESPONSES: Final = (HttpError, ValidationError)
# The statuses of its own errors: a body that is no JSON, a missing CSRF token, and the validation.
_SHARED: Final = frozenset({400, 403, 422})
_ERROR: Final = "_idempotency_ninja_error"  # on the request: the exception that its response was made of


def idempotent_operation(**arguments: Any) -> Callable[[F], F]:
    """Make retries of this operation safe. Write it directly below `@api.post`; the arguments are those of `Policy`."""
    chosen = Arguments(arguments)
    decorate: Callable[[F], F] = decorate_view(partial(_protect, chosen))
    return decorate


def _protect(arguments: Arguments, run_operation: Any) -> Any:
    """Return what runs in the place of the operation's `run`: its checks, and the rest under the request's key."""
    operation = getattr(run_operation, "__self__", None)
    if not isinstance(operation, Operation):
        raise Misplaced("@idempotent_operation stands directly below @api.post, above @decorate_view.")
    return _guarded(arguments, operation, run_operation)


def _guarded(arguments: Arguments, operation: Operation, run_operation: Any) -> Any:
    check = operation._run_checks
    if not hasattr(operation, NINJA_CHECKS):  # else they have been replaced already
        setattr(operation, NINJA_CHECKS, check)
    guarded = _guard_async if operation.is_async else _guard
    protected = guarded(arguments, operation, check, run_operation)
    mark_policy(protected, arguments)
    return protected


def protect_operation(arguments: Arguments, operation: Operation) -> None:
    """Protect an operation that its API has registered, outside everything that decorates it."""
    operation.run = _guarded(arguments, operation, operation.run)  # type: ignore[method-assign]


def _guard(arguments: Arguments, operation: Any, check: Any, run_operation: Any) -> Any:
    def protected(request: HttpRequest, **values: Any) -> Any:
        if error := check(request):
            return error
        handler = partial(run_operation, request, **values)
        policy = gate(request, arguments)
        _note_errors(operation.api)
        if policy is None:
            return run_unprotected(request, protected, handler)
        exchange = OperationExchange(request, policy, handler, protected)
        try:
            return run(exchange)
        except Exception as raised:  # noqa: BLE001 - raised again unless the API made a response of it
            return exchange.response_to(raised)

    operation._run_checks = lambda request: None  # they ran
    return protected


def _guard_async(arguments: Arguments, operation: Any, check: Any, run_operation: Any) -> Any:
    async def protected(request: HttpRequest, **values: Any) -> Any:
        if error := await check(request):
            return error
        handler = partial(run_operation, request, **values)
        policy = gate(request, arguments)
        _note_errors(operation.api)
        if policy is None:
            return await handler()
        if policy.mode is Mode.ATOMIC:
            raise Misplaced("An async operation cannot be atomic: Django's transactions are synchronous.")
        exchange = OperationExchange(request, policy, handler, protected)
        try:
            return await arun(exchange)
        except Exception as raised:  # noqa: BLE001 - raised again unless the API made a response of it
            return exchange.response_to(raised)

    async def passed(request: HttpRequest) -> None:
        """Let the request through: the checks ran."""

    operation._run_checks = passed
    return protected


class OperationExchange(Exchange):
    """A request, its policy, and the operation that answers it.

    django-ninja turns each exception into a response. The exception is raised again here, so that the transaction rolls
    back, and the response is kept for the client.
    """

    def __init__(self, request: HttpRequest, policy: Policy, run_operation: Any, view: Any) -> None:
        super().__init__(request, policy, self._arun if iscoroutinefunction(view) else self._run, view)
        self._run_operation = run_operation
        self._error: Exception | None = None
        self._response: HttpResponseBase | None = None

    def _run(self) -> HttpResponseBase:
        return self._raise_again(self._run_operation())

    async def _arun(self) -> HttpResponseBase:
        return self._raise_again(await self._run_operation())

    def _raise_again(self, response: HttpResponseBase) -> HttpResponseBase:
        self._error, self._response = vars(self.request).pop(_ERROR, None), response
        if self._error is not None:
            raise self._error
        return response

    def problem_response(self, details: ProblemDetails) -> HttpResponseBase:
        return problem_response(details, self.policy.profile)

    def is_refusal(self, error: Exception) -> bool:
        return super().is_refusal(error) or isinstance(error, _ERROR_RESPONSES)

    def explain(self, error: Exception) -> HttpResponseBase:
        return super().explain(error) if error is not self._error else self.response_to(error)

    def response_to(self, error: Exception) -> HttpResponseBase:
        """Return the response that the API made of this exception; raise the exception if it made none."""
        if self._response is None or error is not self._error:
            raise error
        return self._response


def _note_errors(api: Any) -> None:
    """Let an API note on the request of which exception it makes a response."""
    if hasattr(api, _ERROR):
        return
    respond = api.on_exception

    def on_exception(request: HttpRequest, error: Exception) -> Any:
        setattr(request, _ERROR, error)
        return respond(request, error)

    api.on_exception = on_exception
    setattr(api, _ERROR, True)


class DescribedAPI(NinjaAPI):
    """A `NinjaAPI` whose OpenAPI document describes what protects its operations."""

    def get_openapi_schema(
        self, *, path_prefix: str | None = None, path_params: dict[str, Any] | None = None
    ) -> OpenAPISchema:
        prefix = self.get_root_path(path_params or {}) if path_prefix is None else path_prefix
        return DescribedSchema(self, prefix)


class DescribedSchema(OpenAPISchema):
    """Adds to what django-ninja says of each protected operation. What is there already stays."""

    def methods(self, operations: list[Operation]) -> dict[str, Any]:
        found = super().methods(operations)
        for operation in operations:
            arguments = next(filter(None, map(mark_of, layers(operation.run))), None)
            for method in operation.methods:
                if arguments and method in arguments.methods and method.lower() in found:
                    described = deepcopy(found[method.lower()])  # its methods share one
                    describe_operation(described, arguments.policy(), operation.view_func, self._register, _SHARED)
                    found[method.lower()] = described
        return found

    def _register(self, name: str, schema: Schema) -> Schema:
        self.schemas.setdefault(name, schema)
        return {"$ref": REF_TEMPLATE.format(model=name)}
