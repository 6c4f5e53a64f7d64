"""What drf-spectacular cannot see of the service: who is refused, what is not found, and what operations answer."""

from __future__ import annotations

from typing import Any

SETTINGS = {
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "testproject.schema.describe"],
}
ERROR = {"application/json": {"schema": {"type": "object", "properties": {"detail": {"type": "string"}}}}}
TEXT = {"schema": {"type": "string"}}


def describe(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """Add the error responses of Django REST framework, as a hook of drf-spectacular."""
    for path, methods in result["paths"].items():
        for operation in methods.values():
            responses = operation["responses"]
            if {} not in operation["security"]:
                responses["401"] = {"description": "No valid token.", "content": ERROR}
            if "{" in path:
                missing = responses.setdefault("404", {"description": "Not found.", "content": {**ERROR}})
                missing["content"]["text/html"] = TEXT  # of an address that no route has
            if path == "/rides/":
                responses["201"] = responses.pop("200")
                responses["402"] = {"description": "The card was declined.", "content": ERROR}
            if path == "/exports/":
                responses["201"] = {**responses.pop("200"), "content": {"text/csv": TEXT}}
    return result
