"""Whether an answer is one of those that an OpenAPI document describes."""

from typing import Any

import jsonschema

Document = dict[str, Any]


def conforms(document: Document, operation: Document, answer: Any) -> None:
    """Assert that the document names the status, the media type, the body and the headers of an answer."""
    response = operation["responses"][str(answer.status_code)]
    media_type = answer["Content-Type"].partition(";")[0]
    schema = response["content"][media_type]["schema"]
    alternatives = [each for each in schema.get("anyOf", [schema]) if "additionalProperties" not in each] or [schema]
    jsonschema.validate(answer.json(), {"anyOf": alternatives, "components": document["components"]})
    sent = {name for name in answer.headers if name in ("Retry-After", "Link", "Location")}
    assert sent <= response.get("headers", {}).keys()
