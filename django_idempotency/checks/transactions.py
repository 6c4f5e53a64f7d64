"""Durable transactions inside the transaction of a protected view, where Django refuses to open them."""

from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

from django.core.checks import CheckMessage, Warning
from django.db.transaction import Atomic

from django_idempotency.checks.permissions import Inside
from django_idempotency.core.policy import Transaction
from django_idempotency.core.validation import is_coroutine_function
from django_idempotency.http.urlconf import Endpoint


def durable_inside(endpoint: Endpoint, found: Sequence[Inside]) -> Iterator[CheckMessage]:
    """W045: a view, or a decorator of it, opens a durable transaction inside the one of its policy."""
    for function, policy in found:
        if policy.transaction is Transaction.WHOLE and not is_coroutine_function(function) and _is_durable(function):
            yield Warning(
                f"/{endpoint.route}: the view opens a durable transaction inside the one that stores its response, "
                "which Django rejects with a RuntimeError.",
                hint="Set mode='leased', transaction='late', so that the view opens its own transactions, or remove "
                "durable=True.",
                id="django_idempotency.W045",
            )
            return


def _is_durable(function: Any) -> bool:
    """True if this is a function that `atomic(durable=True)` decorates, or one whose code calls `atomic(durable=…)`."""
    if not isinstance(function, FunctionType):
        return False
    cells = [each.cell_contents for each in function.__closure__ or ()]
    if any(isinstance(each, Atomic) and getattr(each, "durable", False) for each in cells):
        return True
    code = function.__code__
    named = any(isinstance(each, tuple) and "durable" in each for each in code.co_consts)
    return named and "atomic" in code.co_names
