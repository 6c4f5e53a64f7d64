"""drf-spectacular describes protected endpoints: the header, the layer's own responses, and how long one is stored.

    SPECTACULAR_SETTINGS = {"DEFAULT_GENERATOR_CLASS": "django_idempotency.contrib.spectacular.SchemaGenerator"}

The only module that imports drf-spectacular.
"""

from functools import partial
from typing import Any, Final

from django.http import HttpRequest
from drf_spectacular import generators
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ComponentRegistry, ResolvedComponent
from drf_spectacular.utils import OpenApiParameter

from django_idempotency.conf import Arguments, default_policy
from django_idempotency.contrib.openapi import (
    Schema,
    describe_policy,
    key_parameter,
    own_responses,
    replayed_header,
    status_responses,
)
from django_idempotency.core.policy import Policy
from django_idempotency.http.private_names import rest_class
from django_idempotency.http.urlconf import layers, mark_of
from django_idempotency.rest_framework import IdempotentMixin, KeyView, OperationView

__all__ = ["SchemaGenerator"]

_DEFERRING: Final = {"idempotency", "defer"}  # a queryset can be deferred too


class EndpointEnumerator(generators.EndpointEnumerator):
    """Includes the status views, which have no schema elsewhere."""

    def should_include_endpoint(self, path: str, callback: Any) -> bool:
        return rest_class(callback) in (OperationView, KeyView) or super().should_include_endpoint(path, callback)


class SchemaGenerator(generators.SchemaGenerator):
    """Wraps the schema of each protected view, of whatever class it is. A subclass may mix in another generator."""

    endpoint_inspector_cls = EndpointEnumerator

    def create_view(self, callback: Any, method: str, request: Any = None) -> Any:
        view: Any = super().create_view(callback, method, request)  # type: ignore[no-untyped-call]
        schema = _schema_for(view, method)
        if schema is not None:
            self._set_schema_to_view(view, schema)  # type: ignore[no-untyped-call]
        return view


def _schema_for(view: Any, method: str) -> AutoSchema | None:
    if isinstance(view, OperationView):
        schema = KeySchema() if isinstance(view, KeyView) else StatusSchema()
        schema.view = view  # which has no descriptor that would set it
        return schema
    name = method.lower()
    handler = getattr(view, (view.action_map or {}).get(name, name))
    arguments = _arguments_of(view, method, handler)
    if arguments is None or method not in arguments.methods:
        return None
    return ProtectedSchema(view.schema, arguments.policy(), defers=_defers(handler))


def _arguments_of(view: Any, method: str, handler: Any) -> Arguments | None:
    """Return the arguments of the policy that protects this method, as a request would find them."""
    if not isinstance(view, IdempotentMixin):  # @idempotent below @api_view
        return next(filter(None, map(mark_of, layers(handler))), None)
    request = HttpRequest()
    request.method = method
    setattr(view, method.lower(), handler)  # as a view set does before it dispatches
    return view._arguments_for(request)


def _defers(handler: Any) -> bool:
    """True if a method itself calls `request.idempotency.defer`: its code has both names. What it calls is not read."""
    codes = [layer.__code__ for layer in layers(handler) if hasattr(layer, "__code__")]
    return any(_DEFERRING.issubset(code.co_names) for code in codes)


class ProtectedSchema(AutoSchema):
    """Adds to what a view's own schema says. What is there already stays."""

    def __init__(self, own: AutoSchema, policy: Policy, *, defers: bool) -> None:
        super().__init__()
        self.own, self.policy, self.defers = own, policy, defers

    def get_operation(self, path: Any, path_regex: Any, path_prefix: Any, method: Any, registry: Any) -> Schema | None:
        self.own.view = self.view  # one schema serves every view of a class
        operation = self.own.get_operation(path, path_regex, path_prefix, method, registry)
        if operation is None:
            return None
        if self.policy.key_source is None:
            _add_parameter(operation, key_parameter(self.policy))
        responses = operation["responses"]
        for response in responses.values():
            _add(response, {"headers": replayed_header(self.policy.profile)})
        added = own_responses(self.policy, partial(_register, registry), defers=self.defers)
        for status, response in added.items():
            _add(responses.setdefault(status, {}), response)
        operation["responses"] = dict(sorted(responses.items()))
        operation.setdefault("x-idempotency", describe_policy(self.policy))
        return operation


class StatusSchema(AutoSchema):
    """The schema of the status view of requests and of deferred work."""

    def get_operation(self, path: Any, path_regex: Any, path_prefix: Any, method: Any, registry: Any) -> Schema | None:
        operation = super().get_operation(path, path_regex, path_prefix, method, registry)
        responses = status_responses(default_policy(), partial(_register, registry))
        return operation and {**operation, "responses": responses}

    def get_description(self) -> str:  # type: ignore[override] # as drf-spectacular has it
        return "The status of a request, or of work that was handed to a worker, for the caller who sent the request."

    def get_response_serializers(self) -> Any:
        return {}


class KeySchema(StatusSchema):
    """The schema of the view that tells the outcome of a key."""

    def get_description(self) -> str:  # type: ignore[override] # as drf-spectacular has it
        return "The outcome of an idempotency key, for the caller who sent the request. Asking runs nothing."

    def get_override_parameters(self) -> list[Any]:
        about = "The operation of the endpoint, or the name of its route."
        return [OpenApiParameter("operation", str, OpenApiParameter.QUERY, required=True, description=about)]


def _register(registry: ComponentRegistry, name: str, schema: Schema) -> Schema:
    component = ResolvedComponent(name, ResolvedComponent.SCHEMA, schema, name)  # type: ignore[no-untyped-call]
    registry.register_on_missing(component)
    return component.ref


def _add_parameter(operation: Schema, parameter: Schema) -> None:
    there = {(each["in"], each["name"].lower()) for each in operation.get("parameters", [])}
    if (parameter["in"], parameter["name"].lower()) not in there:
        operation.setdefault("parameters", []).append(parameter)


def _add(there: Schema, more: Schema) -> None:
    """Add to a response what it does not have: its description, headers, and content of other media types."""
    for name, value in more.items():
        present: Any = there.setdefault(name, value)
        if isinstance(value, dict):
            for key, each in value.items():
                present.setdefault(key, each)
