"""JSON in and out for views that are not DRF's."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from rest_framework.exceptions import ParseError


def refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def read(request: HttpRequest) -> dict[str, Any]:
    try:
        body = json.loads(request.body, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"The body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ParseError("The body is not a JSON object.")
    return body


def answer(status: int, data: Any) -> HttpResponse:
    return HttpResponse(status=status) if data is None else JsonResponse(data, status=status)
