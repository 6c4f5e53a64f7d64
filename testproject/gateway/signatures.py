"""Signed webhooks: HMAC-SHA256 over the timestamp and the body, so that neither can be changed or kept for later."""

from __future__ import annotations

import hashlib
import hmac
import re
import time

HEADER = "Gateway-Signature"
TOLERANCE_SECONDS = 300
SHAPE = re.compile(r"t=(\d{1,12}),v1=([0-9a-f]{64})")


def sign(secret: str, body: bytes, timestamp: int | None = None) -> str:
    moment = int(time.time()) if timestamp is None else timestamp
    return f"t={moment},v1={_digest(secret, moment, body)}"


def verify(secret: str, body: bytes, signature: str) -> bool:
    if not (match := SHAPE.fullmatch(signature)):
        return False
    moment = int(match[1])
    fresh = abs(time.time() - moment) <= TOLERANCE_SECONDS
    return fresh and hmac.compare_digest(match[2], _digest(secret, moment, body))


def _digest(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
