"""What is known about the effect of a record's request. Whatever a client or an operator is told follows from it."""

from enum import StrEnum

from django_idempotency.core.states import Status


class Effect(StrEnum):
    """What is known about the effect. A new key is safe exactly where it is `NONE`."""

    NONE = "none"  # there is none, and none can follow
    POSSIBLE = "possible"  # there may be one, or a part of one, or it may still follow
    DONE = "done"  # it happened: the response was a success


def effect_of(
    status: Status, reply_status: int | None, grace_left: float | None = None, *, traced: bool = False
) -> Effect:
    """Return what is known about the effect, from what the record holds.

    It is `traced` if an earlier attempt is in doubt, a downstream key was derived, the acceptance of deferred work
    committed writes, or a step began. A stored error below 500 is a refusal, which shows without a trace that nothing
    happened. A released key counts as released once the grace period is over.
    """
    answered = status in (Status.COMPLETED, Status.EXPIRED)
    if answered and reply_status is not None and reply_status < 400:
        return Effect.DONE
    if traced or status in Status.OPEN:
        return Effect.POSSIBLE
    if answered:
        none = reply_status is not None and reply_status < 500
    else:
        none = status is Status.FAILED or grace_left is None or grace_left <= 0
    return Effect.NONE if none else Effect.POSSIBLE
