"""A stored answer as the statements write it."""

from typing import Any, Final

from django_idempotency.core.replies import Reply, dump_headers

# Entering a terminal state always starts its retention.
ANSWER: Final = """
    response_status = %(response_status)s, response_headers = %(response_headers)s,
    response_body = %(response_body)s, response_schema_version = %(schema_version)s,
    completed_at = {now}, expires_at = {now + retention_seconds}, locked_until = NULL, reconcile_after = NULL
"""


def reply_values(reply: Reply) -> dict[str, Any]:
    """A reply as the statements' parameters."""
    return {
        "response_status": reply.status,
        "response_headers": dump_headers(reply),
        "response_body": reply.body,
        "schema_version": reply.schema_version,
    }
