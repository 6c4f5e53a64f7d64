"""What is known about the effect of a record's request. Whatever a client or an operator is told follows from it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from django_idempotency.core.states import Status

if TYPE_CHECKING:
    from django_idempotency.core.replies import Reply


class Effect(StrEnum):
    """What is known about the effect. A new key is safe exactly where it is `NONE`."""

    NONE = "none"  # there is none, and none can follow
    POSSIBLE = "possible"  # there may be one, or a part of one, or it may still follow
    DONE = "done"  # it happened: the response was a success


def members_of(effect: Effect, reply: Reply | None = None) -> dict[str, Any]:
    """Return what an error response says about the effect: of a success also its status."""
    first = {"first_status": reply.status} if effect is Effect.DONE and reply is not None else {}
    return {"effect": effect.value, "safe_new_key": effect is Effect.NONE, **first}


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
