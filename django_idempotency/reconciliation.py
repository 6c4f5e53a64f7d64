"""Reconciliation: find out what happened to a request whose outcome is unknown::

    @reconciler("payments.create")
    def ask_the_provider(record):
        charge = provider.find(record.derive("charge"))
        if charge is None:
            return NotLanded()
        return Landed(write=partial(book, charge))

A webhook or an operator that knows the outcome calls `resolve()` instead.
"""

from django_idempotency.flow.registry import reconciler
from django_idempotency.flow.resolve import find_record, resolve, try_again
from django_idempotency.flow.settle import Inconclusive, Landed, NotLanded, Outcome, StepLanded, Verdict

__all__ = [
    "Inconclusive",
    "Landed",
    "NotLanded",
    "Outcome",
    "StepLanded",
    "Verdict",
    "find_record",
    "reconciler",
    "resolve",
    "try_again",
]
