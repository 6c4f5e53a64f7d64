"""Compare a request, or its fingerprint, with a fingerprint that was stored."""

import re
from hmac import compare_digest
from typing import Final

from django_idempotency.core.fingerprint import PART_DIGEST, Digests, FingerprintRule, RequestParts
from django_idempotency.exceptions import UnreadableFingerprint

_KEPT: Final = r"[\w-]{22}"  # characters of a digest, which are 132 bits; version 1 kept all 43
_STORED: Final = re.compile(
    rf"v3:(?P<secret_id>[\w-]{{0,16}}):(?P<raw>{_KEPT})(?P<canonical>{_KEPT})?(?P<parts>[\w-]{{4}}|[\w-]{{6}})?", re.A
)
_OLDER: Final = re.compile(
    rf"v[12]:(?P<secret_id>[\w-]{{0,16}}):(?P<raw>{_KEPT})(?:[\w-]{{21}})?:"
    rf"(?:(?P<canonical>{_KEPT})(?:[\w-]{{21}})?)?(?P<parts>)",
    re.A,
)
LONGEST_MAKER: Final = 20  # characters before the digests: version and secret id
_MAKER: Final = re.compile(r"v[123]:([\w-]{0,16}):", re.A)
_PARTS: Final = ("query", "content_type", "headers")  # in the order of their digests; the last one may be missing


def is_same_fingerprint(stored: str, fresh: str) -> bool:
    """True if both texts have one version and secret id and describe the same request; False for any other two."""
    one = _STORED.fullmatch(stored) or _OLDER.fullmatch(stored)
    other = _STORED.fullmatch(fresh) or _OLDER.fullmatch(fresh)
    if one is None or other is None or one["secret_id"] != other["secret_id"]:
        return False
    if compare_digest(one["raw"], other["raw"]):
        return True
    return one["canonical"] is not None and compare_digest(one["canonical"], other["canonical"] or "")


def is_fingerprint_of(stored: str, request: RequestParts, rule: FingerprintRule) -> bool:
    """True if the stored text was made from this request, with any secret of the rule."""
    found = require_readable(stored, rule)
    digests = Digests(request, rule, rule.secrets.get(found["secret_id"]))
    if compare_digest(found["raw"], digests.as_sent()):
        return True
    canonical = digests.in_canonical_form() if found["canonical"] else None
    return canonical is not None and compare_digest(found["canonical"], canonical)


def list_differing_parts(
    stored: str, fresh: str, rule: FingerprintRule, request: RequestParts | None
) -> list[str] | None:
    """Return which of query, content type and headers differ; None if the stored text has no digests of them.

    There is no digest of the body alone, which would make it easier to guess: it differs if nothing else does.
    `request` is needed if the stored text was made with an older secret.
    """
    one, other = require_readable(stored, rule), require_readable(fresh, rule)
    parts = other["parts"]
    if one["secret_id"] != other["secret_id"]:
        parts = request and Digests(request, rule, rule.secrets.get(one["secret_id"])).by_part()
    if not one["parts"] or not parts:
        return None
    places = [slice(place * PART_DIGEST, (place + 1) * PART_DIGEST) for place in range(len(_PARTS))]
    return [name for name, place in zip(_PARTS, places, strict=True) if one["parts"][place] != parts[place]]


def require_readable(stored: str, rule: FingerprintRule) -> re.Match[str]:
    """Raise UnreadableFingerprint if the stored text cannot be compared: later code may have written it.

    The answer "another request" would make the client take a new key, and the effect could happen twice.
    """
    found = _STORED.fullmatch(stored) or _OLDER.fullmatch(stored)
    if found is None:
        raise UnreadableFingerprint
    if found["secret_id"] and found["secret_id"] not in rule.secrets:
        raise UnreadableFingerprint(
            f"The stored fingerprint was made with the secret {found['secret_id']!r}, which is not configured. Keep "
            "old secrets in IDEMPOTENCY['SECRETS'] until their records have expired."
        )
    return found


def read_secret_id(stored: str) -> str | None:
    """Return the id of the secret that made a stored text, of which the beginning is enough; "" if it was made without.

    None if this version of the package does not know the format.
    """
    found = _MAKER.match(stored)
    return None if found is None else found[1]
