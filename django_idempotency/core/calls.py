"""A request under one key, and the id of its record."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Final
from uuid import UUID

from django_idempotency.core.comparison import (
    is_fingerprint_of,
    is_same_fingerprint,
    list_differing_parts,
    require_readable,
)
from django_idempotency.core.fingerprint import RequestParts, seal
from django_idempotency.core.keys import fit_to_column
from django_idempotency.core.policy import Policy
from django_idempotency.core.refs import NAMESPACE_LENGTH, Ref

ANONYMOUS: Final = "anonymous"  # the principal of all callers without credentials, where the policy lets them share
COMPARED: Final = ("method", "path", "query", "content_type", "headers", "body")  # in which requests may differ
LONGEST_STORED: Final = 255  # of a path or an operation


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
    tenant: str = ""
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
            tenant=tenant,
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

    @property
    def title(self) -> str:
        """Return the operation and where the request was sent, for logs. A path that may hold the key is left out."""
        name = self.label or self.operation or "an operation"
        if not self.path or self.policy.key_source is not None:
            return name
        return f"{name} ({self.method} {self.path.encode('unicode_escape').decode()})"

    @property
    def has_one_principal(self) -> bool:
        """False if callers without credentials share the scope: one must not learn how another's request differs."""
        return self.principal != ANONYMOUS

    def list_differences(self, stored: str, target: Sequence[str]) -> tuple[str, ...]:
        """Return the parts that differ from the request that a record was claimed for; empty if none is known.

        `target` are those of method, path and operation. The body is named only if nothing else differs, because no
        digest of the body alone is stored.
        """
        rule = self.policy.fingerprint
        parts = list_differing_parts(stored, self.fingerprint, rule, self.parts)
        if parts == [] and not target and rule.compares_body and len(self.path) < LONGEST_STORED:
            return ("body",)
        return (*target, *(parts or ()))
