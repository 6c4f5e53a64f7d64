"""What a request can fail with, and how views that are not DRF's answer it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.deprecation import MiddlewareMixin
from rest_framework.exceptions import APIException


class CardDeclined(APIException):
    status_code = 402
    default_code = "card_declined"


class GatewayUnreachable(APIException):
    status_code = 503
    default_code = "gateway_unreachable"


class GatewayUnanswered(APIException):
    """The charge may exist or not."""

    status_code = 504
    default_code = "gateway_unanswered"


class SimulatedFailure(Exception):
    """The view failed because the request asked for it."""


class SimulatedFailureBefore(SimulatedFailure):
    """The same, before anything was done."""


def had_no_effect(error: BaseException) -> bool:
    """What this service can prove: the gateway was never reached, or the view had not begun."""
    return isinstance(error, GatewayUnreachable | SimulatedFailureBefore)


class ErrorsAsJson(MiddlewareMixin):
    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return as_json(exception) if isinstance(exception, APIException) else None


def as_json(error: APIException) -> JsonResponse:
    data = error.detail if isinstance(error.detail, dict) else {"detail": error.detail}
    response = JsonResponse(data, status=error.status_code)
    if error.status_code == 401:
        response["WWW-Authenticate"] = "Token"
    return response


def answering_refusals(explain: Callable[[APIException], HttpResponse] = as_json) -> Callable[[Any], Any]:
    """Below `@idempotent`: what the view refuses is its answer, so that a repeat is refused in the same words."""

    def refusal(error: APIException) -> HttpResponse:
        if error.status_code >= 500:
            raise error
        return explain(error)

    def decorate(view: Any) -> Any:
        @wraps(view)
        def sync_view(*args: Any, **kwargs: Any) -> Any:
            try:
                return view(*args, **kwargs)
            except APIException as error:
                return refusal(error)

        @wraps(view)
        async def async_view(*args: Any, **kwargs: Any) -> Any:
            try:
                return await view(*args, **kwargs)
            except APIException as error:
                return refusal(error)

        return async_view if iscoroutinefunction(view) else sync_view

    return decorate
