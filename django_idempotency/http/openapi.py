"""What protects an operation, in an OpenAPI document: the key's header, the policy, the layer's own responses.

The adapter of each framework merges it into what the framework says of the operation.
"""

from collections.abc import Mapping, Set
from typing import Any, Final

from django_idempotency.core import problems
from django_idempotency.core.keys import KeyRule, parse_key
from django_idempotency.core.policy import Policy
from django_idempotency.exceptions import InvalidKey
from django_idempotency.http.openapi_responses import Register, Schema, own_responses, replayed_header
from django_idempotency.http.wrapping import layers

_DEFERRING: Final = {"idempotency", "defer"}  # a queryset can be deferred too
_SCOPES: Final[Mapping[str | None, str]] = {
    None: "authenticated caller",
    "session": "browser session",
    "session-through-login": "browser session",
}


def describe_operation(operation: Schema, policy: Policy, handler: Any, register: Register, shared: Set[int]) -> None:
    """Add to an operation what protects it. What is there already stays.

    `shared` are the statuses of the framework's own errors, such as validation errors, which few projects describe: a
    generated client has to accept them too.
    """
    if policy.key_source is None:
        _add_parameter(operation, key_parameter(policy))
    responses = {str(status): response for status, response in operation["responses"].items()}
    for response in responses.values():
        _add(response, {"headers": replayed_header(policy.profile)})
    for status, response in own_responses(policy, register, shared, defers=_defers(handler)).items():
        _add(responses.setdefault(status, {}), response)
    operation["responses"] = dict(sorted(responses.items()))
    operation.setdefault("x-idempotency", describe_policy(policy))


def _defers(handler: Any) -> bool:
    """True if a method itself calls `request.idempotency.defer`: its code has both names. What it calls is not read."""
    codes = [layer.__code__ for layer in layers(handler) if hasattr(layer, "__code__")]
    return any(_DEFERRING.issubset(code.co_names) for code in codes)


def _add_parameter(operation: Schema, parameter: Schema) -> None:
    there = {(each["in"], each["name"].lower()) for each in operation.get("parameters", [])}
    if (parameter["in"], parameter["name"].lower()) not in there:
        operation.setdefault("parameters", []).append(parameter)


def _add(there: Schema, more: Schema) -> None:
    """Add to a response what it does not have: its description, headers, and content of other media types."""
    for name, value in more.items():
        present: Any = there.setdefault(name, value)
        if isinstance(value, dict):
            for key, each in value.items():
                present.setdefault(key, each)


def describe_policy(policy: Policy) -> Schema:
    """Return the extension `x-idempotency`: what a client may rely on, for people and machines."""
    owner = "owner that the service determines" if callable(policy.scope) else _SCOPES[policy.scope]
    return {
        "mode": policy.mode.value,
        "profile": policy.profile.name,
        "scope": f"One key for each {'tenant, ' if policy.tenant else ''}{owner} and operation.",
        "retention_seconds": None if policy.retention is None else int(policy.retention.total_seconds()),
        "after_expiry": policy.after_expiry.value,
    }


def key_parameter(policy: Policy) -> Schema:
    """Return the header in which a request carries its key."""
    rule = policy.key
    form = "in double quotes" if rule.strict else "bare or in double quotes"
    parameter = {
        "name": policy.profile.header,
        "in": "header",
        "required": policy.required,
        "description": "Makes this request safe to retry. Send a new key with each new request, and the same key with "
        f"each retry. A key has {rule.min_length} to {rule.max_length} characters, {form}.",
        "schema": {
            "type": "string",
            "minLength": rule.min_length + 2 * rule.strict,
            "maxLength": rule.max_length + 2,
            "pattern": _key_pattern(rule),
        },
    }
    example = f'"{problems.EXAMPLE_KEY}"' if rule.strict else problems.EXAMPLE_KEY
    try:
        parse_key([example], rule)
    except InvalidKey:
        return parameter
    return {**parameter, "example": example}


def _key_pattern(rule: KeyRule) -> str:
    """Match a key as it is sent. Quotes and backslashes are left out, which a quoted key could have with escapes."""
    length = f"{{{rule.min_length},{rule.max_length}}}"
    quoted = rf'"[ !#-\[\]-~]{length}"'
    return f"^{quoted}$" if rule.strict else rf"^([!#-+\x2D-:<-~]{length}|{quoted})$"
