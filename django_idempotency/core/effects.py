"""What is known about the effect of a record's request. Whatever a client or an operator is told follows from it."""

from enum import StrEnum

from django_idempotency.core.states import Status


class Effect(StrEnum):
    """What is known about the effect. A new key is safe exactly where it is `NONE`."""

    NONE = "none"  # there is none, and none can follow
    POSSIBLE = "possible"  # there may be one, or a part of one, or it may still follow
    DONE = "done"  # it happened: the response was a success


def effect_of(
    status: Status,
    reply_status: int | None,
    grace_left: float | None,
    *,
    tainted: bool = False,
    derived: bool = False,
    wrote: bool = False,
    steps_done: int = 0,
) -> Effect:
    """Return what is known about the effect, from what the record holds.

    A released key counts as released once the grace period is over. A stored error below 500 is a refusal, and so it
    shows that nothing happened, unless an external service or an earlier attempt may know better.
    """
    answered = status in (Status.COMPLETED, Status.EXPIRED)
    if answered and reply_status is not None and reply_status < 400:
        return Effect.DONE
    if status in Status.OPEN or tainted or derived or wrote or steps_done > 0:
        return Effect.POSSIBLE
    if answered:
        none = reply_status is not None and reply_status < 500
    else:
        none = status is Status.FAILED or grace_left is None or grace_left <= 0
    return Effect.NONE if none else Effect.POSSIBLE
