"""What an expert would write by hand for one endpoint: raw SQL in the view, with nothing general about it.

This is the floor that `python -m benchmarks` compares the package with. It uses the package's table, so that both pay
for the same indexes and constraints. It has no time limit, no take-over, no audit trail, no scope of its caller, and it
knows no body but this endpoint's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse

Work = Callable[[HttpRequest], Any]

SCOPE = "benchmark"

_OWN = """(id, scope, key, fingerprint, attempt_token, lease_seconds, grace_seconds, retention_seconds, created_at,
    status, locked_until"""
_VALUES = "%s, %s, %s, %s, %s, 300, 300, 86400, STATEMENT_TIMESTAMP()"
CLAIM = f"""
    INSERT INTO idempotency_key {_OWN})
    VALUES ({_VALUES}, 'in_progress', STATEMENT_TIMESTAMP() + INTERVAL '300 s')
    ON CONFLICT DO NOTHING
"""
READ = """
    SELECT status, fingerprint, response_status, response_headers, response_body FROM idempotency_key
    WHERE scope = %s AND id = %s
"""
COMPLETE = """
    UPDATE idempotency_key
    SET status = 'completed', response_status = %s, response_headers = %s, response_body = %s,
        completed_at = STATEMENT_TIMESTAMP(), expires_at = STATEMENT_TIMESTAMP() + INTERVAL '1 day', locked_until = NULL
    WHERE scope = %s AND id = %s AND attempt_token = %s AND status = 'in_progress'
"""
LOOK = """
    SELECT gate.mine, status, fingerprint, response_status, response_headers, response_body
    FROM (SELECT PG_TRY_ADVISORY_XACT_LOCK(%s) AS mine) AS gate
    LEFT JOIN idempotency_key ON scope = %s AND id = %s
"""
FINISHED = f"""
    INSERT INTO idempotency_key {_OWN}, response_status, response_headers, response_body, completed_at, expires_at)
    VALUES ({_VALUES}, 'completed', NULL, %s, %s, %s, STATEMENT_TIMESTAMP(), STATEMENT_TIMESTAMP() + INTERVAL '1 day')
    ON CONFLICT DO NOTHING
"""


def leased(work: Work, request: HttpRequest) -> Any:
    """Claim the key, then work and store the response in one transaction; a known key gets what is stored."""
    key, record, fingerprint = read_call(request)
    token = uuid4()
    with connection.cursor() as cursor:
        cursor.execute(CLAIM, (record, SCOPE, key, fingerprint, token))
        if not cursor.rowcount:
            cursor.execute(READ, (SCOPE, record))
            return replay(fingerprint, *cursor.fetchone())
    with transaction.atomic(), connection.cursor() as cursor:
        response = work(request)
        cursor.execute(COMPLETE, (*stored(response), SCOPE, record, token))
        if not cursor.rowcount:
            raise RuntimeError("Another attempt owns the key.")
    return response


def atomic(work: Work, request: HttpRequest) -> Any:
    """Claim the key, work and store the response in one transaction; a known key gets what is stored."""
    key, record, fingerprint = read_call(request)
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LOOK, (int.from_bytes(record.bytes[:8], "big", signed=True), SCOPE, record))
        alone, *found = cursor.fetchone()
        if found[0] is not None:
            return replay(fingerprint, *found)
        if not alone:
            return HttpResponse(status=409)
        response = work(request)
        cursor.execute(FINISHED, (record, SCOPE, key, fingerprint, uuid4(), *stored(response)))
        if not cursor.rowcount:
            raise RuntimeError("Another request stored its response first.")
    return response


def read_call(request: HttpRequest) -> tuple[str, UUID, str]:
    key = request.META["HTTP_IDEMPOTENCY_KEY"]
    fingerprint = sha256(f"{request.method} {request.path}\n".encode() + request.body).hexdigest()
    return key, UUID(bytes=sha256(f"{SCOPE}\n{key}".encode()).digest()[:16]), fingerprint


def stored(response: HttpResponse) -> tuple[int, str, bytes]:
    return response.status_code, json.dumps(list(response.items())), response.content


def replay(fresh: str, status: str, fingerprint: str, code: int, headers: str, body: bytes) -> HttpResponse:
    if fingerprint != fresh:
        return HttpResponse(status=422)
    if status != "completed":
        return HttpResponse(status=409)
    response = HttpResponse(bytes(body), status=code)
    for name, value in json.loads(headers):
        response[name] = value
    response["Idempotency-Replayed"] = "true"
    return response
