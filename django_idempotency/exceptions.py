"""Every error of the package. The docstring of an exception is its default message.

IdempotencyError
├── InvalidKey              the client sent a value that is not a usable idempotency key
├── UnreadableReply         a stored response cannot be read
├── UnreadableFingerprint   a stored fingerprint cannot be compared
├── StoreUnavailable        the database did not answer within the limit; nothing was executed
├── OutcomeUnknown          it is not known whether the work took effect
├── LostFence               the attempt no longer owns its record; its writes were rolled back
├── InsideTransaction       a key cannot be claimed inside an open transaction
├── AlreadyFinished         an attempt was finished a second time
├── NoPrincipal             the request does not say who owns the key
├── UnreadBody              the request's body was read before its fingerprint was made
├── NotAResponse            the view returned something other than a response
├── UnstorableResponse      the view streams a response, and its policy rejects streaming responses
├── ChangedDefinition       an operation's steps in the code differ from the steps in its record
├── DuplicateStep           an operation has two steps with the same name
├── StepInDoubt             an operation continued after a step whose outcome is unknown
├── UnknownOperation        this process has no operation with this name
├── KeyReused               the key was first used with a different payload
├── StillRunning            the work with this key is still running
├── KeyExpired              the result for this key is no longer stored
├── EndedWithoutResult      the record ended without a result
├── Misplaced               a decorator, mixin or call cannot protect the view where it is
└── NotExecuted             your code raises it: nothing happened, so the key may be used again
"""

from typing import ClassVar

from django_idempotency.core.links import docs_url

__all__ = [
    "AlreadyFinished",
    "ChangedDefinition",
    "DuplicateStep",
    "EndedWithoutResult",
    "IdempotencyError",
    "InsideTransaction",
    "InvalidKey",
    "KeyExpired",
    "KeyReused",
    "LostFence",
    "Misplaced",
    "NoPrincipal",
    "NotAResponse",
    "NotExecuted",
    "OutcomeUnknown",
    "StepInDoubt",
    "StillRunning",
    "StoreUnavailable",
    "UnknownOperation",
    "UnreadBody",
    "UnreadableFingerprint",
    "UnreadableReply",
    "UnstorableResponse",
]


class IdempotencyError(Exception):
    """The work could not be protected by its idempotency key."""

    code = ""  # stable, for machines; set where a caller of `once` or a client has to tell errors apart

    def __init__(self, message: str = "") -> None:
        super().__init__(message or _doc(type(self)))
        kind = next(each for each in type(self).__mro__ if each.__module__ == __name__)
        self.add_note(f"See {docs_url('reference/errors', kind.__name__)}")  # shown below the traceback


def _doc(kind: type[Exception]) -> str:
    return " ".join((kind.__doc__ or "").split())


class InvalidKey(IdempotencyError):
    """The request header does not contain a usable idempotency key."""

    code = "idempotency_key_invalid"

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UnreadableReply(IdempotencyError):
    """The stored response cannot be read. It is not sent, and nothing runs again."""


class UnreadableFingerprint(IdempotencyError):
    """The stored fingerprint has an unknown format, written by another version of the package.

    Until it can be compared, nothing runs under its key.
    """


class StoreUnavailable(IdempotencyError):
    """The idempotency store did not respond within its time limit. Nothing was executed; retry with the same key."""

    code = "idempotency_store_unavailable"


class OutcomeUnknown(IdempotencyError):
    """The database connection was lost during COMMIT, so it is not known whether the result was stored.

    Retry with the same key, never with a new one.
    """

    code = "idempotency_outcome_unknown"


class LostFence(IdempotencyError):
    """The lease expired and the record was settled or taken over, so this attempt's writes were rolled back."""


class InsideTransaction(IdempotencyError):
    """A key cannot be claimed inside an open transaction, because a rollback would remove the claim.

    Let the decorator open the transaction, move the call out of `atomic()`, or turn autocommit on again.
    """


class AlreadyFinished(IdempotencyError):
    """This attempt has already stored its response. Call `finish()` once per request."""


class NoPrincipal(IdempotencyError):
    """The request has no credentials, so it is not known who owns its idempotency key.

    Authenticate the request, give the policy a `scope` function, or set `share_anonymous=True`.
    """

    def __init__(self, message: str = "", *, unknown_credentials: bool = False) -> None:
        super().__init__(message)
        self.unknown_credentials = unknown_credentials  # the request has some, which name no caller here


class UnreadBody(IdempotencyError):
    """The request's body was read as a stream before its fingerprint was made.

    Read `request.body` first, or add IdempotentMixin to the view, which does so.
    """


class NotAResponse(IdempotencyError):
    """The view returned something other than a response, so there is nothing to store.

    Return an HttpResponse. If another decorator makes the response, put @idempotent outside it. Operations of
    django-ninja have a decorator of their own, `django_idempotency.ninja.idempotent_operation`.
    """

    def __init__(self, returned: object, endpoint: str) -> None:
        kind = type(returned).__name__
        super().__init__(f"The view of {endpoint!r} returned a value of type {kind}. {_doc(type(self))}")


class UnstorableResponse(IdempotencyError):
    """The view returned a streaming response, and its policy has streaming='refuse'.

    Return a plain response, or choose streaming='omit' or 'buffer'.
    """


class ChangedDefinition(IdempotencyError):
    """The operation's steps in the code differ from the steps in its record.

    Deploy the code that the record was started with, or settle the record by hand.
    """


class DuplicateStep(IdempotencyError):
    """An operation has two steps of one name. Give each step its own, and each turn of a loop too: f"page_{number}"."""


class StepInDoubt(IdempotencyError):
    """The operation continued after a step whose outcome is unknown. Let the step's exception propagate."""


class UnknownOperation(IdempotencyError):
    """No operation of this name is registered in this process. Import the module that defines it."""


class Misplaced(IdempotencyError):
    """The idempotency decorator, mixin or call cannot protect the view where it is."""


class NotExecuted(IdempotencyError):
    """Nothing was executed. Retry with the same key."""

    code = "idempotency_not_executed"


class _AboutFirstRequest(IdempotencyError):
    """The key belongs to an earlier request, about whose effect something is known."""

    ADVICE: ClassVar[dict[str, str]]

    def __init__(self, message: str = "", *, effect: str = "possible") -> None:
        super().__init__(message or self.ADVICE[effect])
        self.effect = effect  # what is known about the first request's: "none", "possible" or "done"
        self.safe_new_key = effect == "none"


class KeyReused(_AboutFirstRequest):
    """The key was first used with a different payload. Nothing was executed here."""

    code = "idempotency_key_reused_with_different_payload"
    ADVICE: ClassVar[dict[str, str]] = {
        "none": "The key was first used with a different payload, which had no effect. Nothing was executed here. Use "
        "a new key.",
        "possible": "The key was first used with a different payload, and that work may have taken effect or may still "
        "do so. Nothing was executed here. Do not use a new key until the outcome is known.",
        "done": "The key was first used with a different payload, and that work took effect. Nothing was executed "
        "here. Use a new key only for other work.",
    }


class StillRunning(IdempotencyError):
    """The first run with this key has not finished. Nothing was executed here; retry later with the same key."""

    code = "idempotency_key_in_progress"

    def __init__(self, message: str = "", retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class KeyExpired(_AboutFirstRequest):
    """The result for this key is no longer stored. Nothing was executed here."""

    code = "idempotency_key_expired"
    ADVICE: ClassVar[dict[str, str]] = {
        "none": "The result for this key is no longer stored; the work had no effect. Use a new key.",
        "possible": "The result for this key is no longer stored, and the work may have taken effect. Find out what "
        "happened before you use a new key.",
        "done": "The result for this key is no longer stored, and the work took effect. Use a new key only for other "
        "work.",
    }


class EndedWithoutResult(IdempotencyError):
    """The record of this key ended without a result. Inspect it before you use a new key, which would run again."""

    code = "idempotency_ended_without_result"
