"""OpenAPI of protected endpoints with drf-spectacular: the header, the error responses, the retention::

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
from django_idempotency.core.policy import Policy
from django_idempotency.http.openapi import describe_operation
from django_idempotency.http.openapi_responses import Schema, status_responses
from django_idempotency.http.private_names import rest_class
from django_idempotency.http.wrapping import layers, mark_of
from django_idempotency.rest_framework import IdempotentMixin, KeyView, OperationView

__all__ = ["SchemaGenerator"]

_SHARED: Final = frozenset({400, 403})  # the statuses of validation errors and of missing permissions


class EndpointEnumerator(generators.EndpointEnumerator):
    """Includes the status views, which have no schema elsewhere."""

    def should_include_endpoint(self, path: str, callback: Any) -> bool:
        return rest_class(callback) in (OperationView, KeyView) or super().should_include_endpoint(path, callback)


class SchemaGenerator(generators.SchemaGenerator):
    """Describes each protected view, on top of the view's own schema. A subclass may mix in another generator."""

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
    return ProtectedSchema(view.schema, arguments.policy(), handler)


def _arguments_of(view: Any, method: str, handler: Any) -> Arguments | None:
    """Return the arguments of the policy that protects this method, as a request would find them."""
    if not isinstance(view, IdempotentMixin):  # @idempotent below @api_view
        return next(filter(None, map(mark_of, layers(handler))), None)
    request = HttpRequest()
    request.method = method
    setattr(view, method.lower(), handler)  # as a view set does before it dispatches
    return view._arguments_for(request)


class ProtectedSchema(AutoSchema):
    """Adds to what a view's own schema says. What is there already stays."""

    def __init__(self, own: AutoSchema, policy: Policy, handler: Any) -> None:
        super().__init__()
        self.own, self.policy, self.handler = own, policy, handler

    def get_operation(self, path: Any, path_regex: Any, path_prefix: Any, method: Any, registry: Any) -> Schema | None:
        self.own.view = self.view  # one schema serves every view of a class
        operation = self.own.get_operation(path, path_regex, path_prefix, method, registry)
        if operation is None:
            return None
        describe_operation(operation, self.policy, self.handler, partial(_register, registry), _SHARED)
        return operation


class StatusSchema(AutoSchema):
    """The schema of the status view of requests and of deferred work."""

    def get_operation(self, path: Any, path_regex: Any, path_prefix: Any, method: Any, registry: Any) -> Schema | None:
        operation = super().get_operation(path, path_regex, path_prefix, method, registry)
        responses = status_responses(default_policy(), partial(_register, registry))
        return operation and {**operation, "responses": responses}

    def get_description(self) -> str:  # type: ignore[override] # as drf-spectacular has it
        return "The status of a request, or of work that was handed to a worker, for the caller who sent the request."

    def get_auth(self) -> Any:
        return [*super().get_auth(), {}]  # callers without credentials are told about work of their own

    def get_response_serializers(self) -> Any:
        return {}


class KeySchema(StatusSchema):
    """The schema of the view that tells the outcome of a key."""

    def get_description(self) -> str:  # type: ignore[override] # as drf-spectacular has it
        return "The outcome of an idempotency key, for the caller who sent the request. Asking runs nothing."

    def get_override_parameters(self) -> list[Any]:
        path = "The path to which the client sent its request, with its query if it had one."
        method = "The method of that request; POST if left out."
        key = default_policy().profile.header
        return [
            OpenApiParameter("path", str, OpenApiParameter.QUERY, required=True, description=path),
            OpenApiParameter("method", str, OpenApiParameter.QUERY, description=method),
            OpenApiParameter(key, str, OpenApiParameter.HEADER, required=True, description="The key of that request."),
        ]


def _register(registry: ComponentRegistry, name: str, schema: Schema) -> Schema:
    component = ResolvedComponent(name, ResolvedComponent.SCHEMA, schema, name)  # type: ignore[no-untyped-call]
    registry.register_on_missing(component)
    return component.ref
