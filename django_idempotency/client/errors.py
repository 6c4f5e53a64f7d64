"""What can become of a call that gets no response of its own. The docstring of an error is its default message.

CallError
├── KeyRejected        the service cannot use the key, or knows no owner for it; nothing was done
├── KeyReused          the service got another request with this key first; this one was not executed
├── InProgress         the first request with this key is still running
├── OutcomeUnknown     the service does not know yet whether the request took effect
├── KeyExpired         the service no longer has the response
├── NothingDone        proven: the request had no effect
├── ChangedRequest     found here: another request was sent with this key or name before
├── UnrepeatableBody   found here: the body can be sent only once
└── TooOld             found here: the service may have forgotten the key of this open call
"""

from typing import Any, ClassVar, Final

from django_idempotency.client.calls import ReceivedResponse


class CallError(Exception):
    """The service rejected the call."""

    codes: ClassVar[tuple[str, ...]] = ("idempotency_operation_not_found",)

    code = ""  # the stable code of the service; empty for errors that are found here
    status = 0
    key = ""
    operation_ref = ""  # for the support of the service
    safe_new_key = False  # with another key the work could be done twice
    retry_after = 0.0  # seconds

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or " ".join((self.__doc__ or "").split()))
        vars(self).update(details)


class KeyRejected(CallError):
    """The service cannot use the idempotency key, or knows no owner for it. Nothing was executed."""

    codes = ("idempotency_key_missing", "idempotency_key_invalid", "idempotency_principal_missing")


class KeyReused(CallError):
    """The service got another request with this key first. This one was not executed."""

    codes = ("idempotency_key_reused_with_different_payload",)


class InProgress(CallError):
    """The first request with this key is still running. Send it again later, with the same key."""

    codes = ("idempotency_key_in_progress", "idempotency_key_in_use")


class OutcomeUnknown(CallError):
    """It is not known yet whether the request took effect. Send it again later, never with another key."""

    codes = ("idempotency_outcome_unknown",)


class KeyExpired(CallError):
    """The service no longer has the response for this key. Find out what happened before you use a new one."""

    codes = ("idempotency_key_expired",)


class NothingDone(CallError):
    """The request was not executed and had no effect."""

    codes = (
        "idempotency_not_executed",
        "idempotency_store_unavailable",
        "idempotency_attempts_exhausted",
        "idempotency_work_abandoned",
    )


class ChangedRequest(CallError):
    """Another request was sent with this key or name before. This one was not sent."""


class UnrepeatableBody(CallError):
    """The body can be sent only once, so the request was not sent. Pass its bytes instead of a generator or stream."""


class TooOld(CallError):
    """This call has been open for so long that the service may have forgotten its key, so it was not sent again.

    Find out what happened, then delete it from the outbox.
    """


_KINDS: Final[list[type[CallError]]] = [CallError, *CallError.__subclasses__()]
_BY_CODE: Final = {code: kind for kind in _KINDS for code in vars(kind).get("codes", ())}
_STRIPE: Final = {400: KeyReused.codes[0], 409: InProgress.codes[0]}  # its errors of this type may have no code


def read_error(response: ReceivedResponse, key: str) -> CallError | None:
    """Return the error that an error response is about, in problem+json or Stripe's dialect; None if it is another."""
    if response.status < 400:
        return None
    members = response.members
    stripe: Any = members.get("error")
    if isinstance(stripe, dict):
        usual = _STRIPE.get(response.status, "") if stripe.get("type") == "idempotency_error" else ""
        members = {"code": stripe.get("code") or usual, "detail": stripe.get("message")}
    code = members.get("code")
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        return None
    return kind(
        f"{response.status} {code}: {members.get('detail', '')}",
        code=str(code),
        status=response.status,
        key=key,
        operation_ref=str(members.get("operation_ref", "")),
        safe_new_key=members.get("safe_new_key") is True,
        retry_after=response.retry_after,
    )
