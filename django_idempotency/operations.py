"""Operations: functions made of steps, which any process can run, resume or perform later::

    @operation("rides.create")
    def create_ride(op, *, user_id, origin, target):
        ride = op.phase("ride_created", book_ride, user_id, origin, target)
        charge = op.effect("charge_created", partial(charge_for, ride), in_doubt="repeat")
        op.phase("receipt_queued", queue_receipt, ride, charge)
        return json_reply(201, {"ride": ride})

A phase writes to this database, and its marker commits with its writes. An effect calls an external service: its marker
commits before the call, and its result is stored after it. A finished step does not run again: its result is returned.
"""

from django_idempotency.flow.deferred import enqueue
from django_idempotency.flow.registry import operation
from django_idempotency.flow.steps import Op
from django_idempotency.flow.worker import perform

__all__ = ["Op", "enqueue", "operation", "perform"]
