"""What is found out and kept about a key that was sent with a different request."""

from dataclasses import replace

from django.db import Error

from django_idempotency.core.calls import Call
from django_idempotency.core.decisions import Mismatch
from django_idempotency.exceptions import StoreUnavailable
from django_idempotency.signals import logger, security
from django_idempotency.store import claims, events, limits


def note_mismatch(mismatch: Mismatch, call: Call, using: str) -> Mismatch:
    """Return the mismatch with the parts that differ, and leave a trace of it for operators.

    Neither can fail the request: the response to a mismatch does not depend on them.
    """
    ref = mismatch.record.ref(using)
    try:
        with limits.limited(using, call.policy.claim_limit.total_seconds()):
            target = claims.list_differing_targets(call, using)
            mismatch = replace(mismatch, differs_in=call.list_differences(mismatch.record.fingerprint, target))
            events.write_mismatch(ref, actor=call.principal, differs_in=mismatch.differs_in)
    except (StoreUnavailable, Error):
        limits.drop_broken(using)
        logger.warning("A mismatch of idempotency record %s could not be noted.", ref.id, exc_info=True)
    security.warning(
        "An idempotency key was sent with a different request: record %s, operation %r, principal %r, differs in %s.",
        ref.id,
        call.operation,
        call.principal,
        ", ".join(mismatch.differs_in) or "an unknown part",
    )
    return mismatch
