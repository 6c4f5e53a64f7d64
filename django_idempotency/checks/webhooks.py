"""The check of keys that anybody may send: a body's field under a scope that every caller shares."""

import dis
from collections.abc import Iterator
from itertools import takewhile
from types import FunctionType
from typing import Any, Final

from django.core.checks import CheckMessage, Warning

from django_idempotency.core.policy import Policy
from django_idempotency.http.doors import refuses_nobody
from django_idempotency.http.urlconf import Endpoint
from django_idempotency.http.wrapping import is_guard

_BODY: Final = {"body", "data", "POST"}  # the attributes of a request that have it


def key_of_anybody(endpoint: Endpoint) -> Iterator[CheckMessage]:
    """W044: the key is in the body, every caller has the same scope, and nothing says who may send it."""
    if not any(_is_for_anybody(arguments.policy()) for arguments, _action in endpoint.policies()) or _asks(endpoint):
        return
    yield Warning(
        f"/{endpoint.route}: the key is in the body and every caller has the same scope, so a stranger can send a "
        "forged request first, and its response is stored for the real one.",
        hint="Give the policy `verify`, a function that checks the signature of the request. If a decorator or a "
        "firewall checks it, silence this check.",
        id="django_idempotency.W044",
    )


def _is_for_anybody(policy: Policy) -> bool:
    shared = _ignores_request(policy.scope) or (policy.share_anonymous and policy.guessable_anonymous)
    return policy.verify is None and shared and _reads_body(policy.key_source)


def _reads_body(function: Any) -> bool:
    return isinstance(function, FunctionType) and not _BODY.isdisjoint(_names(function))


def _names(function: FunctionType) -> set[str]:
    """Return the names that a function and those inside it use."""
    codes, found = [function.__code__], set()
    while codes:
        code = codes.pop()
        found |= {*code.co_names}
        codes.extend(each for each in code.co_consts if hasattr(each, "co_names"))
    return found


def _ignores_request(function: Any) -> bool:
    """True if this function never reads its first argument."""
    if not isinstance(function, FunctionType) or function.__code__.co_argcount < 1:
        return False
    request = function.__code__.co_varnames[0]
    if request in function.__code__.co_cellvars:
        return False
    loads = (each.argval for each in dis.get_instructions(function) if each.opname.startswith("LOAD_FAST"))
    return not any(request == loaded or (isinstance(loaded, tuple) and request in loaded) for loaded in loads)


def _asks(endpoint: Endpoint) -> bool:
    """True if something in front of the protection may reject a stranger."""
    if endpoint.operations:
        return any(getattr(each, "auth_callbacks", ()) for each in endpoint.operations)
    outside = takewhile(lambda layer: not is_guard(layer), endpoint.layers)
    permissions = {each.__name__ for each in endpoint.permission_classes if isinstance(each, type)}
    return not refuses_nobody(outside) or bool(permissions - {"AllowAny"})
