"""A request under one key, and the id of its record."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from uuid import UUID

from django_idempotency.core.fingerprint import (
    RequestParts,
    is_fingerprint_of,
    is_same_fingerprint,
    require_readable,
    seal,
)
from django_idempotency.core.keys import fit_to_column
from django_idempotency.core.policy import Policy
from django_idempotency.core.refs import NAMESPACE_LENGTH, Ref


def make_record_id(scope: str, key: str) -> UUID:
    """Return the id of the record of this scope and key, equal in every database."""
    digest = sha256()
    for part in (scope.encode(), key.encode()):
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return UUID(bytes=digest.digest()[:16], version=5)


@lru_cache(maxsize=256)
def digest_namespace(namespace: str) -> str:
    """Return what a record and its downstream keys keep of a namespace."""
    return sha256(namespace.encode(errors="surrogatepass")).hexdigest()[:NAMESPACE_LENGTH]


@dataclass(frozen=True)
class Call:
    """One request under one key, without its framework."""

    scope: str
    key: str
    fingerprint: str
    policy: Policy
    principal: str = ""
    operation: str = ""
    method: str = ""
    path: str = ""
    label: str = ""  # the operation's name in metrics, if another than `operation`
    parts: RequestParts | None = None  # to compare with a fingerprint that was made with an older secret

    @classmethod
    def outside_http(
        cls, kind: str, scope: str, key: str, operation: str, parts: RequestParts, policy: Policy, *, label: str = ""
    ) -> "Call":
        """Make the call of code without a request. The kind separates its scopes from those of requests."""
        tenant = policy.tenant_without_request()
        owner = f"{kind}@{len(tenant)}:{tenant}" if tenant else kind
        return cls(
            scope=fit_to_column("scope", f"{owner}:{scope}"),
            key=fit_to_column("key", key),
            fingerprint=seal(parts, policy.fingerprint),
            policy=policy,
            operation=operation,
            label=label,
            parts=parts if policy.fingerprint.secrets else None,
        )

    @cached_property
    def id(self) -> UUID:
        return make_record_id(self.scope, self.key)

    def ref(self, using: str) -> Ref:
        return Ref(self.scope, self.id, using)

    def matches(self, stored: str) -> bool:
        """True if the record was claimed for this request, or was released without a fingerprint.

        Raise UnreadableFingerprint if that cannot be told.
        """
        if not stored or is_same_fingerprint(stored, self.fingerprint):
            return True
        if self.parts is None:
            require_readable(stored, self.policy.fingerprint)
            return False
        return is_fingerprint_of(stored, self.parts, self.policy.fingerprint)
