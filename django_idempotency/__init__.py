"""Safe retries for Django: one key, one effect, one response.

The names below are the vocabulary that settings, views, operations and reconcilers share. They need neither Django's
app registry nor its settings, so a settings module may import them.
"""

from django_idempotency.core.fingerprint import FingerprintRule
from django_idempotency.core.keys import KeyRule, unguessable
from django_idempotency.core.policy import Policy
from django_idempotency.core.profiles import IETF, STRIPE, Profile
from django_idempotency.core.replies import STANDARD_HEADERS, Reply, ReplyRule, json_reply
from django_idempotency.core.states import Status
from django_idempotency.core.validators import all_of, entropy, no_personal_data

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

__version__ = "0.1.0"
