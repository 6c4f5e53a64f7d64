"""A request under one key, without its framework."""

from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from django_idempotency.core.fingerprint import RequestParts, is_fingerprint_of, is_same_fingerprint, seal
from django_idempotency.core.identity import Ref, make_record_id
from django_idempotency.core.keys import fit_to_column
from django_idempotency.core.policy import Policy


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
        """True if the record was claimed for this request, or was released without a fingerprint."""
        if not stored or is_same_fingerprint(stored, self.fingerprint):
            return True
        return self.parts is not None and is_fingerprint_of(stored, self.parts, self.policy.fingerprint)
