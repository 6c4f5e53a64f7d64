"""The errors of a call that gets no response from the endpoint. The docstring of an error is its default message.

CallError
├── KeyRejected        the service cannot use the key, or knows no owner for it; nothing was done
├── KeyReused          the service got another request with this key first; this one was not executed
├── InProgress         the first request with this key is still running
├── OutcomeUnknown     the service does not know yet whether the request took effect
├── KeyExpired         the service no longer has the response
├── ResponseLost       the request took effect, but the service could not store its response
├── NothingDone        it is proven that no try of the request had an effect
├── ChangedRequest     not sent: another request was sent with this key or name before
├── UnrepeatableBody   not sent: the body can be sent only once
├── OtherOrigin        not sent: the address, or the one that it redirects to, is not the service's
└── TooOld             not sent: the service may have forgotten the key of this open call
"""

from typing import Any, Final

from django_idempotency.client.calls import ReceivedResponse

__all__ = ["CallError", "InProgress", "KeyExpired", "KeyRejected", "KeyReused", "NothingDone", "OutcomeUnknown"]
__all__ += ["ResponseLost"]
__all__ += ["ChangedRequest", "OtherOrigin", "TooOld", "UnrepeatableBody"]  # found before anything is sent

_KINDS: Final[dict[str, type["CallError"]]] = {}  # by the code of the service


class CallError(Exception):
    """The service rejected the call."""

    code = ""  # the stable code of the service; empty for errors that are found here
    status = 0
    key = ""
    operation_ref = ""  # for the support of the service
    effect = ""  # "none", "possible" or "done": what the service knows about all tries with this key
    safe_new_key = False  # with another key the work could be done twice
    first_status = 0  # of the first response, if the effect is done
    location = ""  # where to find the result
    retry_after = 0.0  # seconds

    def __init_subclass__(cls, codes: tuple[str, ...] = ()) -> None:
        _KINDS.update({f"idempotency_{code}": cls for code in codes})

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or self.__doc__)
        vars(self).update(details)


class KeyRejected(CallError, codes=("key_missing", "key_invalid", "principal_missing")):
    """The service cannot use the idempotency key, or knows no owner for it. Nothing was executed."""


class KeyReused(CallError, codes=("key_reused_with_different_payload",)):
    """The service got another request with this key first. This one was not executed."""


class InProgress(CallError, codes=("key_in_progress", "key_in_use")):  # the second is Stripe's
    """The first request with this key is still running. Send it again later, with the same key."""


class OutcomeUnknown(CallError, codes=("outcome_unknown",)):
    """It is not known yet whether the request took effect. Send it again later, never with another key."""


class KeyExpired(CallError, codes=("key_expired",)):
    """The service no longer has the response for this key. Find out what happened before you use a new one."""


class ResponseLost(CallError, codes=("response_not_stored",)):
    """The request took effect, but its response could not be stored. Find its result; never use another key."""


class NothingDone(CallError, codes=("not_executed", "store_unavailable", "attempts_exhausted", "work_abandoned")):
    """The request was not executed and had no effect."""


class ChangedRequest(CallError):
    """Another request was sent with this key or name before. This one was not sent."""


class UnrepeatableBody(CallError):
    """The body can be sent only once, so the request was not sent. Pass its bytes instead of a generator or stream."""


class OtherOrigin(CallError):
    """The address has another origin than the service. The call was not sent there."""


class TooOld(CallError):
    """The service may have forgotten the key of this call. Find out what happened, then delete it from the outbox."""


# Stripe's errors of the type idempotency_error may have no code.
_STRIPE: Final = {400: "idempotency_key_reused_with_different_payload", 409: "idempotency_key_in_use"}


def read_error(response: ReceivedResponse, key: str) -> CallError | None:
    """Return the error that an error response is about, in problem+json or Stripe's dialect; None if it is another."""
    members = response.members if response.status >= 400 else {}
    if isinstance(stripe := members.get("error"), dict):
        usual = _STRIPE.get(response.status) if stripe.get("type") == "idempotency_error" else None
        members = {"code": stripe.get("code") or usual, "detail": stripe.get("message")}
    code = str(members.get("code"))
    if not code.startswith("idempotency_"):
        return None
    details = {"code": code, "status": response.status, "key": key, "retry_after": response.retry_after}
    details |= {name: str(members.get(name) or "") for name in ("operation_ref", "effect")}
    details |= {"safe_new_key": members.get("safe_new_key") is True, "first_status": members.get("first_status") or 0}
    details["location"] = response.headers.get("location", "")
    return _KINDS.get(code, CallError)(f"{response.status} {code}: {members.get('detail', '')}", **details)


def add_doubt(error: CallError, *, is_doubted: bool) -> CallError:
    """Return what an error that denies an effect means if an earlier try may have had one.

    What the service knows about all tries with the key decides. Without that, the error is about this try alone.
    """
    if (error.effect != "none") if error.effect else is_doubted:
        doubt = OutcomeUnknown(f"{error} An earlier try may have taken effect: use the same key again.", **vars(error))
        doubt.__cause__ = error
        return doubt
    return error
