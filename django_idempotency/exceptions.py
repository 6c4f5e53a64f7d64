"""Every error of the package.

IdempotencyError
├── InvalidKey              the client sent something that is not a key
├── UnreadableReply         a stored answer cannot be read
├── UnreadableFingerprint   a stored fingerprint cannot be compared
├── StoreUnavailable        the database did not answer within the limit; nothing ran
├── OutcomeUnknown          nobody can tell whether the effect happened
├── LostFence               another attempt owns the record now; this one's writes were rolled back
├── InsideTransaction       a claim was asked for inside somebody's transaction
├── AlreadyFinished         an attempt was finished twice
├── NoPrincipal             nobody can be found whose key it is
├── UnreadBody              the body was consumed before it could be fingerprinted
├── UnstorableResponse      the endpoint streams where its policy refuses streams
├── ChangedDefinition       an operation's steps are not those of the record in flight
├── StepInDoubt             an operation went on past a step of which nobody knows whether it happened
├── UnknownOperation        no operation of that name is registered here
├── KeyReused               the key was first used with another payload
├── StillRunning            somebody else is running it now
├── KeyExpired              its result is no longer kept
├── EndedWithoutResult      the record ended without the result of a run
├── Misplaced               the decorator stands where it cannot protect
└── NotExecuted             raised by a handler: nothing happened, the key may be used again
"""

__all__ = [
    "AlreadyFinished",
    "ChangedDefinition",
    "EndedWithoutResult",
    "IdempotencyError",
    "InsideTransaction",
    "InvalidKey",
    "KeyExpired",
    "KeyReused",
    "LostFence",
    "Misplaced",
    "NoPrincipal",
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
    """Something about an idempotency key went wrong."""

    code = ""  # stable, for machines; set where a caller of `once` or a client has to tell errors apart

    def __init__(self, message: str = "") -> None:
        super().__init__(message or " ".join((type(self).__doc__ or "").split()))


class InvalidKey(IdempotencyError):
    """The header does not hold a usable idempotency key."""

    code = "idempotency_key_invalid"

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UnreadableReply(IdempotencyError):
    """A stored answer cannot be read; it is withheld and nothing runs again."""


class UnreadableFingerprint(IdempotencyError):
    """A stored fingerprint was made by a version or with a key that is not known here."""


class StoreUnavailable(IdempotencyError):
    """The idempotency store did not answer within its limit. Nothing was executed; send the same request again."""

    code = "idempotency_store_unavailable"


class OutcomeUnknown(IdempotencyError):
    """The connection was lost while the result was being stored, and nobody can tell yet whether it was."""

    code = "idempotency_outcome_unknown"


class LostFence(IdempotencyError):
    """The lease ran out and the record was settled or taken over meanwhile; this attempt's writes were rolled back."""


class InsideTransaction(IdempotencyError):
    """A key cannot be claimed inside an open transaction: a rollback would forget the claim.

    Let the decorator open the transaction, move the call out of `atomic()`, or turn autocommit on again.
    """


class AlreadyFinished(IdempotencyError):
    """This attempt has stored its answer already; `finish` is called once."""


class NoPrincipal(IdempotencyError):
    """An idempotency key belongs to somebody, and this request has no credentials."""


class UnreadBody(IdempotencyError):
    """The request's body was consumed before it could be fingerprinted.

    Read `request.body` first, or add IdempotentMixin to the view: it does.
    """


class UnstorableResponse(IdempotencyError):
    """This endpoint's policy refuses streamed answers: return a plain response, or choose another `streaming`."""


class ChangedDefinition(IdempotencyError):
    """The steps of an operation were changed under a record in flight."""


class StepInDoubt(IdempotencyError):
    """Nobody knows whether a step of this operation happened, and the operation went on."""


class UnknownOperation(IdempotencyError):
    """No operation of that name is registered in this process."""


class Misplaced(IdempotencyError):
    """The idempotency decorator stands where it cannot protect the view."""


class NotExecuted(IdempotencyError):
    """Nothing happened: the key may be used again at once."""

    code = "idempotency_not_executed"


class KeyReused(IdempotencyError):
    """The key was first used with another payload. Nothing was done: use another key for another payload."""

    code = "idempotency_key_reused_with_different_payload"


class StillRunning(IdempotencyError):
    """Somebody else is running it now. Nothing was done here: ask again later, with the same key."""

    code = "idempotency_key_in_progress"

    def __init__(self, message: str = "", retry_after: int = 1) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class KeyExpired(IdempotencyError):
    """The result that belonged to this key is no longer kept. Nothing was done: use a new key for new work."""

    code = "idempotency_key_expired"


class EndedWithoutResult(IdempotencyError):
    """The key's record ended without the result of a run. Look at the record; a new key would run again."""

    code = "idempotency_ended_without_result"
