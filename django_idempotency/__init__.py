"""Safe retries for Django: one key, one effect, one response.

The names below are the vocabulary that settings, views, operations and reconcilers share. They need neither Django's
app registry nor its settings, so a settings module may import them. Each is imported when it is first used: loading the
app needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

__all__ = [
    "IETF",
    "STANDARD_HEADERS",
    "STRIPE",
    "FingerprintRule",
    "KeyRule",
    "Policy",
    "Profile",
    "Reply",
    "ReplyRule",
    "Status",
    "all_of",
    "entropy",
    "json_reply",
    "no_personal_data",
    "unguessable",
]

__version__ = "1.0.0rc1"

if TYPE_CHECKING:
    from django_idempotency.core.fingerprint import FingerprintRule
    from django_idempotency.core.keys import KeyRule, unguessable
    from django_idempotency.core.policy import Policy
    from django_idempotency.core.profiles import IETF, STRIPE, Profile
    from django_idempotency.core.replies import STANDARD_HEADERS, Reply, ReplyRule, json_reply
    from django_idempotency.core.states import Status
    from django_idempotency.core.validators import all_of, entropy, no_personal_data
else:
    _MODULES: Final = {
        "IETF": "profiles",
        "STANDARD_HEADERS": "replies",
        "STRIPE": "profiles",
        "FingerprintRule": "fingerprint",
        "KeyRule": "keys",
        "Policy": "policy",
        "Profile": "profiles",
        "Reply": "replies",
        "ReplyRule": "replies",
        "Status": "states",
        "all_of": "validators",
        "entropy": "validators",
        "json_reply": "replies",
        "no_personal_data": "validators",
        "unguessable": "keys",
    }

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.core.{_MODULES[name]}"), name)
