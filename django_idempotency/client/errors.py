"""The errors of a call that gets no response from the endpoint. The docstring of an error is its default message.

CallError
├── KeyRejected        the service cannot use the key, or knows no owner for it; nothing was done
├── KeyReused          the service got another request with this key first; this one was not executed
├── InProgress         the first request with this key is still running
├── OutcomeUnknown     the service does not know yet whether the request took effect
├── KeyExpired         the service no longer has the response
├── NothingDone        it is proven that the request had no effect
├── ChangedRequest     not sent: another request was sent with this key or name before
├── UnrepeatableBody   not sent: the body can be sent only once
└── TooOld             not sent: the service may have forgotten the key of this open call
"""

from inspect import getdoc
from typing import Any, Final

from django_idempotency.client.calls import ReceivedResponse

__all__ = [
    "CallError",
    "ChangedRequest",
    "InProgress",
    "KeyExpired",
    "KeyRejected",
    "KeyReused",
    "NothingDone",
    "OutcomeUnknown",
    "TooOld",
    "UnrepeatableBody",
]


class CallError(Exception):
    """The service rejected the call."""

    code = ""  # the stable code of the service; empty for errors that are found here
    status = 0
    key = ""
    operation_ref = ""  # for the support of the service
    safe_new_key = False  # with another key the work could be done twice
    retry_after = 0.0  # seconds

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or getdoc(self))
        vars(self).update(details)


class KeyRejected(CallError):
    """The service cannot use the idempotency key, or knows no owner for it. Nothing was executed."""


class KeyReused(CallError):
    """The service got another request with this key first. This one was not executed."""


class InProgress(CallError):
    """The first request with this key is still running. Send it again later, with the same key."""


class OutcomeUnknown(CallError):
    """It is not known yet whether the request took effect. Send it again later, never with another key."""


class KeyExpired(CallError):
    """The service no longer has the response for this key. Find out what happened before you use a new one."""


class NothingDone(CallError):
    """The request was not executed and had no effect."""


class ChangedRequest(CallError):
    """Another request was sent with this key or name before. This one was not sent."""


class UnrepeatableBody(CallError):
    """The body can be sent only once, so the request was not sent. Pass its bytes instead of a generator or stream."""


class TooOld(CallError):
    """This call has been open for so long that the service may have forgotten its key, so it was not sent again.

    Find out what happened, then delete it from the outbox.
    """


_CODES: Final[dict[type[CallError], tuple[str, ...]]] = {
    CallError: ("operation_not_found",),
    KeyRejected: ("key_missing", "key_invalid", "principal_missing"),
    KeyReused: ("key_reused_with_different_payload",),
    InProgress: ("key_in_progress", "key_in_use"),  # the second is Stripe's
    OutcomeUnknown: ("outcome_unknown",),
    KeyExpired: ("key_expired",),
    NothingDone: ("not_executed", "store_unavailable", "attempts_exhausted", "work_abandoned"),
}
_KINDS: Final = {f"idempotency_{code}": kind for kind, codes in _CODES.items() for code in codes}
# Its errors of this type may have no code.
_STRIPE: Final = {400: "idempotency_key_reused_with_different_payload", 409: "idempotency_key_in_use"}


def read_error(response: ReceivedResponse, key: str) -> CallError | None:
    """Return the error that an error response is about, in problem+json or Stripe's dialect; None if it is another."""
    members = response.members
    if isinstance(stripe := members.get("error"), dict):
        usual = _STRIPE.get(response.status) if stripe.get("type") == "idempotency_error" else None
        members = {"code": stripe.get("code") or usual, "detail": stripe.get("message")}
    code = str(members.get("code"))
    if response.status < 400 or code not in _KINDS:
        return None
    details = {"code": code, "status": response.status, "key": key, "retry_after": response.retry_after}
    details["operation_ref"] = str(members.get("operation_ref", ""))
    details["safe_new_key"] = members.get("safe_new_key") is True
    return _KINDS[code](f"{response.status} {code}: {members.get('detail', '')}", **details)
