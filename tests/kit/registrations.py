"""The operations and reconcilers that a test registers end with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_idempotency.flow import registry


@contextmanager
def temporary_registrations() -> Iterator[None]:
    """Undo on exit whatever the block registers or removes."""
    registries: tuple[dict[Any, Any], ...] = (
        registry._OPERATIONS,
        registry._RECONCILERS,
        registry._STEP_RECONCILERS,
    )
    before = [dict(each) for each in registries]
    try:
        yield
    finally:
        for each, kept in zip(registries, before, strict=True):
            each.clear()
            each.update(kept)
